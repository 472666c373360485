/* SPDX-License-Identifier: Apache-2.0 */
/* Spans of a thread lie in each other; at every time the innermost counts. What surrounds an
 * operation says more about it than the operation itself. */
#include <stdlib.h>

#include "base/base.h"
#include "doctor/analysis.h"

#define DEEPEST 256 /* of spans within spans; what is deeper counts as what is around it */

static bool has_stage(const analysis *found, size_t span) {
    doctor_kind kind = found->trace->spans[span].name->kind;
    return kind == DOCTOR_OPERATION || found->stages[span] != NO_STAGE;
}

static yoke_status emit(analysis *found, int64_t begin_ns, int64_t end_ns, size_t span) {
    if (end_ns <= begin_ns) return YOKE_OK;
    if (found->piece_count == found->piece_capacity) {
        size_t capacity = found->piece_capacity > 0 ? 2 * found->piece_capacity : 4096;
        lane_piece *larger = yoke_realloc(found->pieces, capacity * sizeof *larger);
        if (larger == NULL) return FAIL_MEMORY(capacity * sizeof *larger, "the parts of a trace");
        found->pieces = larger;
        found->piece_capacity = capacity;
    }
    found->pieces[found->piece_count++] = (lane_piece){begin_ns, end_ns, span};
    return YOKE_OK;
}

typedef struct open_spans {
    size_t spans[DEEPEST];
    int count;
    int64_t now_ns; /* up to here pieces are cut */
} open_spans;

/* Ends what ends before `until_ns`. */
static yoke_status close_spans(analysis *found, open_spans *open, int64_t until_ns) {
    while (open->count > 0) {
        size_t inner = open->spans[open->count - 1];
        int64_t end_ns = found->trace->spans[inner].end_ns;
        if (end_ns > until_ns) break;
        TRY(emit(found, open->now_ns, end_ns, inner));
        if (end_ns > open->now_ns) open->now_ns = end_ns;
        open->count--;
    }
    if (open->count > 0 && until_ns != NEVER) {
        TRY(emit(found, open->now_ns, until_ns, open->spans[open->count - 1]));
        if (until_ns > open->now_ns) open->now_ns = until_ns;
    }
    return YOKE_OK;
}

static yoke_status cut_lane(analysis *found, size_t begin, size_t end) {
    const kineto_span *spans = found->trace->spans;
    open_spans open = {.now_ns = 0};
    for (size_t i = begin; i < end; i++) {
        if (!has_stage(found, i)) continue;
        TRY(close_spans(found, &open, spans[i].begin_ns));
        bool operation = spans[i].name->kind == DOCTOR_OPERATION;
        if ((operation && open.count > 0) || open.count == DEEPEST) continue;
        if (spans[i].begin_ns > open.now_ns) open.now_ns = spans[i].begin_ns;
        open.spans[open.count++] = i;
    }
    return close_spans(found, &open, NEVER);
}

yoke_status analysis_cut_lanes(analysis *found, bool gpu) {
    const kineto_trace *trace = found->trace;
    for (size_t begin = 0, end; begin < trace->count; begin = end) {
        int lane = trace->spans[begin].lane;
        for (end = begin; end < trace->count && trace->spans[end].lane == lane;)
            end++;
        if (trace->lanes[lane].gpu != gpu) continue;
        found->lanes[lane].begin = found->piece_count;
        TRY(cut_lane(found, begin, end));
        found->lanes[lane].end = found->piece_count;
    }
    return YOKE_OK;
}

yoke_stage analysis_stage_at(const analysis *found, int lane, int64_t at_ns) {
    size_t low = found->lanes[lane].begin, high = found->lanes[lane].end;
    while (low < high) { /* the first piece that ends behind the time */
        size_t middle = low + (high - low) / 2;
        if (found->pieces[middle].end_ns <= at_ns)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == found->lanes[lane].end || found->pieces[low].begin_ns > at_ns) return NO_STAGE;
    return (yoke_stage)found->stages[found->pieces[low].span];
}

static int by_lane_and_time(const void *left, const void *right) {
    const kineto_span *a = left, *b = right;
    if (a->lane != b->lane) return a->lane < b->lane ? -1 : 1;
    if (a->begin_ns != b->begin_ns) return a->begin_ns < b->begin_ns ? -1 : 1;
    if (a->end_ns != b->end_ns) return a->end_ns > b->end_ns ? -1 : 1;
    return (a->name > b->name) - (a->name < b->name); /* the table has what is around first */
}

yoke_status analysis_open(analysis *found, kineto_trace *trace, const char *name) {
    size_t count = trace->count > 0 ? trace->count : 1;
    size_t lanes = trace->lane_count > 0 ? (size_t)trace->lane_count : 1;
    *found = (analysis){.trace = trace, .main_lane = -1};
    found->stages = yoke_malloc(count);
    found->launch_ns = yoke_calloc(count, sizeof *found->launch_ns);
    found->lanes = yoke_calloc(lanes, sizeof *found->lanes);
    found->devices = yoke_calloc(lanes, sizeof *found->devices);
    if (found->stages == NULL || found->launch_ns == NULL || found->lanes == NULL ||
        found->devices == NULL)
        return FAIL_MEMORY(count * (sizeof *found->launch_ns + 1), "the stages of a trace");
    if (trace->count > 0) qsort(trace->spans, trace->count, sizeof *trace->spans, by_lane_and_time);
    for (size_t i = 0; i < trace->count; i++) {
        const doctor_name *own = trace->spans[i].name;
        found->stages[i] = (uint8_t)(own->kind == DOCTOR_WORK ? NO_STAGE : own->stage);
        found->gpu = found->gpu || own->kind == DOCTOR_WORK;
    }
    TRY(analysis_cut_lanes(found, false));
    TRY(analysis_find_windows(found, name));
    analysis_resolve_operations(found);
    TRY(analysis_resolve_work(found));
    return analysis_cut_lanes(found, true);
}

void analysis_close(analysis *found) {
    yoke_free(found->stages);
    yoke_free(found->launch_ns);
    yoke_free(found->pieces);
    yoke_free(found->lanes);
    yoke_free(found->windows);
    yoke_free(found->devices);
    *found = (analysis){0};
}

yoke_status timed_add(timed_list *list, int64_t at_ns, double value) {
    if (list->count == list->capacity) {
        size_t capacity = list->capacity > 0 ? 2 * list->capacity : 256;
        struct timed_value *larger = yoke_realloc(list->values, capacity * sizeof *larger);
        if (larger == NULL) return FAIL_MEMORY(capacity * sizeof *larger, "the times of a trace");
        list->values = larger;
        list->capacity = capacity;
    }
    list->values[list->count++] = (struct timed_value){at_ns, value};
    return YOKE_OK;
}

static int by_time(const void *left, const void *right) {
    const struct timed_value *a = left, *b = right;
    return (a->at_ns > b->at_ns) - (a->at_ns < b->at_ns);
}

void timed_sort(timed_list *list) {
    if (list->count > 0) qsort(list->values, list->count, sizeof *list->values, by_time);
}
