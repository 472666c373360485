/* SPDX-License-Identifier: Apache-2.0 */
/* Adds up spans: at every instant a device is in one stage, or idle. */
#include "cli/compare/compare_account.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

/* Where stages run at the same time, the first of them gets the time: communication behind
 * computation costs none. */
static const yoke_stage precedence[] = {
    YOKE_STAGE_PYTHON,    YOKE_STAGE_FORWARD,  YOKE_STAGE_LOSS,   YOKE_STAGE_BACKWARD,
    YOKE_STAGE_UPDATE,    YOKE_STAGE_EXCHANGE, YOKE_STAGE_REDUCE, YOKE_STAGE_ALL_REDUCE,
    YOKE_STAGE_REPLICATE, YOKE_STAGE_SCATTER,  YOKE_STAGE_GATHER, YOKE_STAGE_LOAD,
    YOKE_STAGE_WAIT,
};
#define STAGES (sizeof precedence / sizeof precedence[0])

/* A begin or an end of a stage on the lane. */
typedef struct turn {
    uint64_t ns;
    yoke_stage stage;
    int change; /* +1, -1 */
} turn;

static int by_time(const void *left, const void *right) {
    const turn *a = left, *b = right;
    return (a->ns > b->ns) - (a->ns < b->ns);
}

yoke_status compare_spans_read(const yoke_trace *trace, compare_spans *spans) {
    *spans = (compare_spans){.count = yoke_trace_read(trace, NULL, 0)};
    spans->all = calloc(spans->count + 1, sizeof *spans->all);
    if (spans->all == NULL)
        return FAIL_MEMORY((spans->count + 1) * sizeof *spans->all, "the spans of a trace");
    spans->all[0].struct_size = sizeof *spans->all;
    spans->count = yoke_trace_read(trace, spans->all, spans->count);
    return YOKE_OK;
}

void compare_spans_free(compare_spans *spans) {
    free(spans->all);
    *spans = (compare_spans){0};
}

/* Shortens the window to the steps that the trace still has. */
static compare_window recorded(const compare_spans *spans, const compare_window *window) {
    compare_window known = {.begin_ns = window->end_ns, .end_ns = window->end_ns};
    for (size_t i = 0; i < spans->count; i++) {
        const yoke_span_info *span = &spans->all[i];
        if (span->stage != YOKE_STAGE_STEP || span->begin_ns < window->begin_ns) continue;
        if (span->begin_ns < known.begin_ns) known.begin_ns = span->begin_ns;
        known.steps++;
    }
    return known;
}

static uint64_t clamp(uint64_t ns, const compare_window *window) {
    return ns < window->begin_ns ? window->begin_ns : ns > window->end_ns ? window->end_ns : ns;
}

/* turns[2 spans]; returns their number. */
static size_t list_turns(const compare_spans *spans, const compare_window *window, int lane,
                         turn *turns, compare_account *account) {
    size_t count = 0;
    for (size_t i = 0; i < spans->count; i++) {
        const yoke_span_info *span = &spans->all[i];
        uint64_t begin = clamp(span->begin_ns, window), end = clamp(span->end_ns, window);
        if (span->lane != lane || end <= begin) continue;
        turns[count++] = (turn){begin, span->stage, 1};
        turns[count++] = (turn){end, span->stage, -1};
        account->bytes[span->stage] += (double)span->bytes / window->steps;
        account->sent += (double)span->sent_bytes / window->steps;
        account->received += (double)span->received_bytes / window->steps;
    }
    qsort(turns, count, sizeof *turns, by_time);
    return count;
}

static void add_up(const turn *turns, size_t count, int steps, compare_account *account) {
    int running[YOKE_STAGE_COUNT] = {0};
    for (size_t i = 0; i < count; i++) {
        double ms = i > 0 ? 1e-6 * (double)(turns[i].ns - turns[i - 1].ns) / steps : 0;
        size_t first = 0;
        while (first < STAGES && running[precedence[first]] == 0)
            first++;
        if (first < STAGES) account->stage_ms[precedence[first]] += ms;
        running[turns[i].stage] += turns[i].change;
    }
}

static double step_of(const compare_window *window) {
    return 1e-6 * (double)(window->end_ns - window->begin_ns) / window->steps;
}

/* The steps that the trace still has stand for all of them. */
static void scale(compare_account *account, double factor) {
    account->step_ms *= factor;
    account->idle_ms *= factor;
    for (int stage = 0; stage < YOKE_STAGE_COUNT; stage++)
        account->stage_ms[stage] *= factor;
}

yoke_status compare_account_read(const compare_spans *spans, const compare_window *window,
                                 compare_account *lanes, int count) {
    compare_window known = recorded(spans, window);
    memset(lanes, 0, (size_t)count * sizeof *lanes);
    if (known.steps == 0) return YOKE_OK;
    turn *turns = calloc(2 * spans->count, sizeof *turns);
    if (turns == NULL) return FAIL_MEMORY(2 * spans->count * sizeof *turns, "the spans of a trace");
    for (int lane = 0; lane < count; lane++) {
        size_t used = list_turns(spans, &known, lane, turns, &lanes[lane]);
        add_up(turns, used, known.steps, &lanes[lane]);
        compare_account_stretch(&lanes[lane], step_of(&known));
        if (known.steps < window->steps) scale(&lanes[lane], step_of(window) / step_of(&known));
    }
    free(turns);
    return YOKE_OK;
}

void compare_account_stretch(compare_account *account, double milliseconds) {
    account->step_ms = account->idle_ms = milliseconds;
    for (int stage = 0; stage < YOKE_STAGE_COUNT; stage++)
        account->idle_ms -= account->stage_ms[stage];
}

void compare_account_add(compare_account *sum, const compare_account *other, double weight) {
    sum->step_ms += weight * other->step_ms;
    sum->idle_ms += weight * other->idle_ms;
    sum->sent += weight * other->sent;
    sum->received += weight * other->received;
    for (int stage = 0; stage < YOKE_STAGE_COUNT; stage++) {
        sum->stage_ms[stage] += weight * other->stage_ms[stage];
        sum->bytes[stage] += weight * other->bytes[stage];
    }
}

/* One step. */

static double step_ms(const yoke_span_info *span) {
    return 1e-6 * (double)(span->end_ns - span->begin_ns);
}

/* NULL: the trace has no such step. */
static const yoke_span_info *choose_step(const compare_spans *spans, const compare_step *wanted) {
    const yoke_span_info *best = NULL;
    for (size_t i = 0; i < spans->count; i++) {
        const yoke_span_info *span = &spans->all[i];
        if (span->stage != YOKE_STAGE_STEP) continue;
        if (span->step == wanted->number) return span;
        if (wanted->number != COMPARE_NO_STEP) continue;
        if (best == NULL ||
            fabs(step_ms(span) - wanted->milliseconds) < fabs(step_ms(best) - wanted->milliseconds))
            best = span;
    }
    return best;
}

static void copy_span(compare_step *step, const yoke_span_info *span, int capacity) {
    if (step->count < capacity)
        step->spans[step->count++] = *span;
    else
        step->left_out++;
}

void compare_step_read(const compare_spans *spans, compare_step *step, int capacity) {
    const yoke_span_info *whole = choose_step(spans, step);
    step->count = step->left_out = 0;
    if (whole == NULL) return;
    step->number = whole->step;
    step->begin_ns = whole->begin_ns;
    step->end_ns = whole->end_ns;
    step->milliseconds = step_ms(whole);
    for (size_t i = 0; i < spans->count; i++) {
        const yoke_span_info *span = &spans->all[i];
        if (span->step == whole->step && span->stage != YOKE_STAGE_STEP)
            copy_span(step, span, capacity);
    }
}

void compare_step_join(compare_step *step, const compare_step *part, int rank) {
    if (part->begin_ns < step->begin_ns) step->begin_ns = part->begin_ns;
    if (part->end_ns > step->end_ns) step->end_ns = part->end_ns;
    step->milliseconds = 1e-6 * (double)(step->end_ns - step->begin_ns);
    step->left_out += part->left_out;
    for (int i = 0; i < part->count; i++) {
        yoke_span_info *span = &step->spans[step->count++];
        *span = part->spans[i];
        span->lane = rank;
    }
}
