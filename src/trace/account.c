/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/account.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "trace/trace.h"

static const yoke_activity activities[YOKE_ACCOUNT_STAGES] = {
    [YOKE_STAGE_LOAD] = YOKE_WAITS,
    [YOKE_STAGE_SCATTER] = YOKE_COMMUNICATES,
    [YOKE_STAGE_REPLICATE] = YOKE_COMMUNICATES,
    [YOKE_STAGE_PYTHON] = YOKE_COMPUTES,
    [YOKE_STAGE_FORWARD] = YOKE_COMPUTES,
    [YOKE_STAGE_LOSS] = YOKE_COMPUTES,
    [YOKE_STAGE_BACKWARD] = YOKE_COMPUTES,
    [YOKE_STAGE_REDUCE] = YOKE_COMMUNICATES,
    [YOKE_STAGE_UPDATE] = YOKE_COMPUTES,
    [YOKE_STAGE_EXCHANGE] = YOKE_COMMUNICATES,
    [YOKE_STAGE_ALL_REDUCE] = YOKE_COMMUNICATES,
    [YOKE_STAGE_WAIT] = YOKE_WAITS,
    [YOKE_STAGE_GATHER] = YOKE_COMMUNICATES,
    [YOKE_STAGE_STEP] = YOKE_IDLES,
    [YOKE_STAGE_EVALUATE] = YOKE_IDLES,
    [YOKE_STAGE_IDLE] = YOKE_IDLES,
};

yoke_activity yoke_activity_of(int stage) {
    return activities[stage];
}

const char *yoke_account_name(int stage) {
    return stage == YOKE_STAGE_IDLE ? "idle" : yoke_stage_name((yoke_stage)stage);
}

const char *yoke_account_meaning(int stage) {
    static const char *const meanings[YOKE_ACCOUNT_STAGES] = {
#define MEANING(name, text, what) what,
        YOKE_STAGE_TABLE(MEANING)
#undef MEANING
            "no stage runs here, and the device is not known to wait"};
    return meanings[stage];
}

/* Spans. */

typedef size_t (*span_reader)(const yoke_trace *trace, uint64_t steps, yoke_span_info *spans,
                              size_t capacity);

static yoke_status read_list(span_reader read, const yoke_trace *trace, uint64_t steps,
                             yoke_span_info **list, size_t *count) {
    size_t room = read(trace, steps, NULL, 0) + 1;
    *list = yoke_calloc(room, sizeof **list);
    if (*list == NULL) return FAIL_MEMORY(room * sizeof **list, "the spans of a trace");
    (*list)->struct_size = sizeof **list;
    *count = read(trace, steps, *list, room - 1);
    return YOKE_OK;
}

yoke_status yoke_spans_read(const yoke_trace *trace, uint64_t steps, yoke_spans *spans) {
    uint64_t last = steps > 0 ? steps : UINT64_MAX;
    *spans = (yoke_spans){0};
    yoke_status status = read_list(yoke_trace_read_last, trace, last, &spans->all, &spans->count);
    if (status == YOKE_OK)
        status = read_list(yoke_trace_read_links, trace, last, &spans->links, &spans->link_count);
    if (status != YOKE_OK) yoke_spans_free(spans);
    return status;
}

void yoke_spans_free(yoke_spans *spans) {
    yoke_free(spans->links);
    yoke_free(spans->all);
    *spans = (yoke_spans){0};
}

size_t yoke_spans_of_lane(const yoke_span_info *spans, size_t count, int lane,
                          const yoke_span_info **list) {
    size_t used = 0;
    for (size_t i = 0; i < count; i++)
        if (spans[i].lane == lane) list[used++] = &spans[i];
    return used;
}

/* The rule. */

/* Sorts by begin; where two begin together, the longer one comes first, as the outer one. */
static int by_begin(const void *left, const void *right) {
    const yoke_span_info *a = *(yoke_span_info *const *)left, *b = *(yoke_span_info *const *)right;
    if (a->begin_ns != b->begin_ns) return a->begin_ns < b->begin_ns ? -1 : 1;
    return (a->end_ns < b->end_ns) - (a->end_ns > b->end_ns);
}

/* The span that counts among open ones, which lie in the order of their begins: among equals the
 * last to begin. NULL: none is open. */
static const yoke_span_info *choose(const yoke_span_info *const *open, size_t count) {
    const yoke_span_info *best = NULL;
    for (size_t i = 0; i < count; i++)
        if (best == NULL || activities[open[i]->stage] <= activities[best->stage]) best = open[i];
    return best;
}

static uint64_t earlier(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* The spans that are open at a time lie at the begin of the list, which has been read so far. */
size_t yoke_account_cut(const yoke_span_info **spans, size_t count, uint64_t begin_ns,
                        uint64_t end_ns, yoke_piece *pieces) {
    size_t next = 0, open = 0, used = 0;
    qsort(spans, count, sizeof *spans, by_begin);
    for (uint64_t at_ns = begin_ns, until_ns; at_ns < end_ns; at_ns = until_ns) {
        size_t kept = 0;
        while (next < count && spans[next]->begin_ns <= at_ns)
            spans[open++] = spans[next++];
        until_ns = next < count ? earlier(spans[next]->begin_ns, end_ns) : end_ns;
        for (size_t i = 0; i < open; i++) {
            if (spans[i]->end_ns <= at_ns || activities[spans[i]->stage] == YOKE_IDLES) continue;
            until_ns = earlier(until_ns, spans[i]->end_ns);
            spans[kept++] = spans[i];
        }
        open = kept;
        const yoke_span_info *now = choose(spans, open);
        if (used == 0 || pieces[used - 1].span != now)
            pieces[used++] = (yoke_piece){now, at_ns, until_ns};
        else
            pieces[used - 1].end_ns = until_ns;
    }
    return used;
}

/* Accounts. */

void yoke_account_add_pieces(yoke_account *account, const yoke_piece *pieces, size_t count,
                             double weight) {
    for (size_t i = 0; i < count; i++) {
        double ms = weight * 1e-6 * (double)(pieces[i].end_ns - pieces[i].begin_ns);
        account->stage_ms[pieces[i].span != NULL ? (int)pieces[i].span->stage : YOKE_STAGE_IDLE] +=
            ms;
        account->step_ms += ms;
    }
}

void yoke_account_add(yoke_account *sum, const yoke_account *other, double weight) {
    sum->step_ms += weight * other->step_ms;
    sum->sent += weight * other->sent;
    sum->received += weight * other->received;
    for (int stage = 0; stage < YOKE_ACCOUNT_STAGES; stage++)
        sum->stage_ms[stage] += weight * other->stage_ms[stage];
    for (int stage = 0; stage < YOKE_STAGE_COUNT; stage++)
        sum->bytes[stage] += weight * other->bytes[stage];
}

void yoke_account_stretch(yoke_account *account, double milliseconds) {
    account->stage_ms[YOKE_STAGE_IDLE] += milliseconds - account->step_ms;
    account->step_ms = milliseconds;
}

double yoke_account_activity_ms(const double stage_ms[YOKE_ACCOUNT_STAGES],
                                yoke_activity activity) {
    double sum = 0;
    for (int stage = 0; stage < YOKE_ACCOUNT_STAGES; stage++)
        if (activities[stage] == activity) sum += stage_ms[stage];
    return sum;
}

yoke_status yoke_account_read(const yoke_spans *spans, const yoke_account_window *window,
                              yoke_account *accounts, int lanes) {
    /* Shorten the window to the steps that the trace still has. */
    yoke_account_window known = {.begin_ns = window->end_ns, .end_ns = window->end_ns};
    for (size_t i = 0; i < spans->count; i++) {
        const yoke_span_info *span = &spans->all[i];
        if (span->stage != YOKE_STAGE_STEP || span->begin_ns < window->begin_ns) continue;
        known.begin_ns = earlier(known.begin_ns, span->begin_ns);
        known.steps++;
    }
    memset(accounts, 0, (size_t)lanes * sizeof *accounts);
    if (known.steps == 0 || known.end_ns <= known.begin_ns) return YOKE_OK;
    size_t bytes = spans->count * sizeof(yoke_span_info *);
    size_t piece_bytes = (2 * spans->count + 1) * sizeof(yoke_piece);
    const yoke_span_info **list = yoke_malloc(bytes);
    yoke_piece *pieces = yoke_malloc(piece_bytes);
    yoke_status status = YOKE_OK;
    if (list == NULL || pieces == NULL)
        status = FAIL_MEMORY(bytes + piece_bytes, "the spans of a trace");
    /* The time of all steps, over that of those that are left: they stand for all. */
    double weight = (double)(window->end_ns - window->begin_ns) / window->steps /
                    (double)(known.end_ns - known.begin_ns);
    if (known.steps == window->steps) weight = 1.0 / known.steps;
    for (int lane = 0; lane < lanes && status == YOKE_OK; lane++) {
        size_t count = yoke_spans_of_lane(spans->all, spans->count, lane, list);
        yoke_account *account = &accounts[lane];
        for (size_t i = 0; i < count; i++) {
            const yoke_span_info *span = list[i];
            if (span->begin_ns >= known.end_ns || span->end_ns <= known.begin_ns) continue;
            account->bytes[span->stage] += (double)span->bytes / known.steps;
            account->sent += (double)span->sent_bytes / known.steps;
            account->received += (double)span->received_bytes / known.steps;
        }
        count = yoke_account_cut(list, count, known.begin_ns, known.end_ns, pieces);
        yoke_account_add_pieces(&accounts[lane], pieces, count, weight);
    }
    yoke_free(pieces);
    yoke_free(list);
    return status;
}
