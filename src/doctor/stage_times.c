/* SPDX-License-Identifier: Apache-2.0 */
/* Where the time of a device goes, by the rule of trace/account.h, window by window. */
#include <stdlib.h>

#include "base/base.h"
#include "doctor/analysis.h"

typedef struct interval {
    int64_t begin_ns, end_ns;
} interval;

/* What of a device lies in one window; times since its begin. */
typedef struct window_spans {
    yoke_span_info *spans; /* [capacity] */
    const yoke_span_info **list;
    yoke_piece *pieces;    /* [2 * capacity + 1] */
    interval *collectives; /* [capacity] all-reduces; merged */
    size_t count, capacity, collective_count;
    size_t *next; /* [lanes] the first piece that may lie in the window */
} window_spans;

static void free_spans(window_spans *own) {
    yoke_free(own->spans);
    yoke_free(own->list);
    yoke_free(own->pieces);
    yoke_free(own->collectives);
    yoke_free(own->next);
}

static yoke_status grow(window_spans *own) {
    size_t capacity = own->capacity > 0 ? 2 * own->capacity : 1024;
    void *spans = yoke_realloc(own->spans, capacity * sizeof *own->spans);
    if (spans != NULL) own->spans = spans;
    void *list = yoke_realloc(own->list, capacity * sizeof *own->list);
    if (list != NULL) own->list = list;
    void *pieces = yoke_realloc(own->pieces, (2 * capacity + 1) * sizeof *own->pieces);
    if (pieces != NULL) own->pieces = pieces;
    void *collectives = yoke_realloc(own->collectives, capacity * sizeof *own->collectives);
    if (collectives != NULL) own->collectives = collectives;
    if (spans == NULL || list == NULL || pieces == NULL || collectives == NULL)
        return FAIL_MEMORY(capacity * sizeof *own->spans, "a step of a trace");
    own->capacity = capacity;
    return YOKE_OK;
}

static yoke_status add(window_spans *own, const step_window *window, const lane_piece *piece,
                       yoke_stage stage, bool collective) {
    int64_t begin_ns = piece->begin_ns, end_ns = piece->end_ns;
    if (begin_ns < window->device_begin_ns) begin_ns = window->device_begin_ns;
    if (end_ns > window->device_end_ns) end_ns = window->device_end_ns;
    if (end_ns <= begin_ns) return YOKE_OK;
    if (own->count == own->capacity) TRY(grow(own));
    begin_ns -= window->device_begin_ns;
    end_ns -= window->device_begin_ns;
    if (collective) own->collectives[own->collective_count++] = (interval){begin_ns, end_ns};
    own->spans[own->count++] = (yoke_span_info){
        .stage = stage, .bucket = -1, .begin_ns = (uint64_t)begin_ns, .end_ns = (uint64_t)end_ns};
    return YOKE_OK;
}

static bool is_collective(const kineto_span *span) {
    bool nccl = span->name->kind == DOCTOR_WORK && (span->name->marks & DOCTOR_NCCL) != 0;
    return span->name->stage == YOKE_STAGE_ALL_REDUCE &&
           (nccl || span->name->kind == DOCTOR_COLLECTIVE);
}

/* Whether the lane tells of the device: on GPUs one of its streams, or the thread that trains,
 * whose loading explains idle time. */
static bool is_of(const analysis *found, int lane, int device, bool *loading) {
    const kineto_lane *own = &found->trace->lanes[lane];
    *loading = found->gpu && !own->gpu;
    if (*loading) return lane == found->main_lane;
    return !found->gpu || (int)own->process == device;
}

static yoke_status gather(const analysis *found, int device, const step_window *window,
                          window_spans *own) {
    own->count = own->collective_count = 0;
    for (int lane = 0; lane < found->trace->lane_count; lane++) {
        bool loading;
        size_t *next = &own->next[lane], end = found->lanes[lane].end;
        if (!is_of(found, lane, device, &loading)) continue;
        while (*next < end && found->pieces[*next].end_ns <= window->device_begin_ns)
            ++*next;
        for (size_t i = *next; i < end; i++) {
            const lane_piece *piece = &found->pieces[i];
            yoke_stage stage = (yoke_stage)found->stages[piece->span];
            if (piece->begin_ns >= window->device_end_ns) break;
            if (stage == NO_STAGE || (loading && stage != YOKE_STAGE_LOAD)) continue;
            TRY(add(own, window, piece, stage, is_collective(&found->trace->spans[piece->span])));
        }
    }
    return YOKE_OK;
}

static int by_begin(const void *left, const void *right) {
    const interval *a = left, *b = right;
    return (a->begin_ns > b->begin_ns) - (a->begin_ns < b->begin_ns);
}

static void merge(window_spans *own) {
    size_t kept = 0;
    interval *all = own->collectives;
    if (own->collective_count > 0) qsort(all, own->collective_count, sizeof *all, by_begin);
    for (size_t i = 0; i < own->collective_count; i++) {
        if (kept > 0 && all[i].begin_ns <= all[kept - 1].end_ns) {
            if (all[i].end_ns > all[kept - 1].end_ns) all[kept - 1].end_ns = all[i].end_ns;
        } else {
            all[kept++] = all[i];
        }
    }
    own->collective_count = kept;
}

static int64_t shared_ns(interval a, int64_t begin_ns, int64_t end_ns) {
    if (a.begin_ns > begin_ns) begin_ns = a.begin_ns;
    if (a.end_ns < end_ns) end_ns = a.end_ns;
    return end_ns > begin_ns ? end_ns - begin_ns : 0;
}

/* How long the device computes while an all-reduce runs. */
static int64_t hidden_ns(const window_spans *own, size_t pieces) {
    int64_t sum_ns = 0;
    size_t first = 0;
    for (size_t i = 0; i < pieces; i++) {
        const yoke_piece *piece = &own->pieces[i];
        if (piece->span == NULL || yoke_activity_of((int)piece->span->stage) != YOKE_COMPUTES)
            continue;
        int64_t begin_ns = (int64_t)piece->begin_ns, end_ns = (int64_t)piece->end_ns;
        while (first < own->collective_count && own->collectives[first].end_ns <= begin_ns)
            first++;
        for (size_t c = first; c < own->collective_count; c++) {
            if (own->collectives[c].begin_ns >= end_ns) break;
            sum_ns += shared_ns(own->collectives[c], begin_ns, end_ns);
        }
    }
    return sum_ns;
}

/* The stage of a time without a span. */
static void add_idle(const analysis *found, const step_window *window, const yoke_piece *piece,
                     double *stage_ms) {
    int64_t begin_ns = (int64_t)piece->begin_ns + window->device_begin_ns;
    int64_t end_ns = (int64_t)piece->end_ns + window->device_begin_ns;
    int64_t python_ns = end_ns - begin_ns;
    if (found->gpu) {
        interval forward = {window->forward_begin_ns, window->forward_end_ns};
        bool replicas = (found->trace->marks & DOCTOR_DP) != 0 && window->forward_end_ns > 0;
        python_ns = replicas ? shared_ns(forward, begin_ns, end_ns) : 0;
    }
    stage_ms[YOKE_STAGE_PYTHON] += 1e-6 * (double)python_ns;
    stage_ms[YOKE_STAGE_IDLE] += 1e-6 * (double)(end_ns - begin_ns - python_ns);
}

static void account(const analysis *found, const step_window *window, window_spans *own,
                    device_times *times) {
    uint64_t length_ns = (uint64_t)(window->device_end_ns - window->device_begin_ns);
    double step_ms = 1e-6 * (double)length_ns;
    for (size_t i = 0; i < own->count; i++)
        own->list[i] = &own->spans[i];
    size_t pieces = yoke_account_cut(own->list, own->count, 0, length_ns, own->pieces);
    for (size_t i = 0; i < pieces; i++) {
        const yoke_piece *piece = &own->pieces[i];
        if (piece->span == NULL)
            add_idle(found, window, piece, times->stage_ms);
        else
            times->stage_ms[piece->span->stage] += 1e-6 * (double)(piece->end_ns - piece->begin_ns);
    }
    merge(own);
    for (size_t i = 0; i < own->collective_count; i++)
        times->travel_ms +=
            1e-6 * (double)(own->collectives[i].end_ns - own->collectives[i].begin_ns);
    times->hidden_ms += 1e-6 * (double)hidden_ns(own, pieces);
    times->step_ms += step_ms;
    if (step_ms < times->shortest_ms || times->shortest_ms == 0) times->shortest_ms = step_ms;
    if (step_ms > times->longest_ms) times->longest_ms = step_ms;
}

static yoke_status add_windows(const analysis *found, int device, device_times *times,
                               window_spans *own) {
    for (int lane = 0; lane < found->trace->lane_count; lane++)
        own->next[lane] = found->lanes[lane].begin;
    TRY(grow(own));
    for (int w = 0; w < found->window_count; w++) {
        TRY(gather(found, device, &found->windows[w], own));
        account(found, &found->windows[w], own, times);
    }
    return YOKE_OK;
}

yoke_status analysis_times(const analysis *found, int device, device_times *times) {
    window_spans own = {0};
    size_t lanes = (size_t)found->trace->lane_count + 1;
    double weight = 1.0 / found->window_count;
    *times = (device_times){0};
    own.next = yoke_calloc(lanes, sizeof *own.next);
    yoke_status status = own.next == NULL
                             ? FAIL_MEMORY(lanes * sizeof *own.next, "the steps of a trace")
                             : add_windows(found, device, times, &own);
    for (int stage = 0; stage < YOKE_ACCOUNT_STAGES; stage++)
        times->stage_ms[stage] *= weight;
    times->step_ms *= weight;
    times->travel_ms *= weight;
    times->hidden_ms *= weight;
    free_spans(&own);
    return status;
}
