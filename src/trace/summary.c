/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of the stage table. A step waits for its slowest device, so a stage's time in a step is
 * the time of the lane that spent longest in that stage. */
#include <stdlib.h>

#include "base/base.h"
#include "trace/spans.h"

/* A span in sortable form: by stage, step and lane. */
typedef struct part {
    yoke_stage stage;
    int lane;
    uint64_t step, ns, bytes;
} part;

static int compare_parts(const void *left, const void *right) {
    const part *a = left, *b = right;
    if (a->stage != b->stage) return a->stage < b->stage ? -1 : 1;
    if (a->step != b->step) return a->step < b->step ? -1 : 1;
    return (a->lane > b->lane) - (a->lane < b->lane);
}

static int compare_times(const void *left, const void *right) {
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* The evaluations, in order of time; lane 0 records them. `spans` has room for all. */
static size_t find_evaluations(const yoke_trace *trace, const yoke_span **spans) {
    size_t count = 0;
    for (uint32_t i = 0; i < yoke_lane_count(trace, 0); i++) {
        const yoke_span *span = yoke_lane_span(trace, 0, i);
        if (span->stage == YOKE_STAGE_EVALUATE) spans[count++] = span;
    }
    return count;
}

/* Whether the span lies inside an evaluation: an evaluation is one row of the table, and its stages
 * belong to no step. */
static bool is_within(const yoke_span *span, const yoke_span *const *evaluations, size_t count) {
    size_t low = 0;
    while (count > 0) { /* find the first evaluation that ends after the span begins */
        size_t half = count / 2;
        bool before = evaluations[low + half]->end_ns <= span->begin_ns;
        low += before ? half + 1 : 0;
        count = before ? count - half - 1 : half;
    }
    return evaluations[low] != NULL && evaluations[low]->begin_ns <= span->begin_ns &&
           span->stage != YOKE_STAGE_EVALUATE;
}

/* evaluations[spans of lane 0 + 1], all NULL. */
static size_t collect(const yoke_trace *trace, const yoke_span **evaluations, part *parts) {
    uint64_t first = yoke_trace_first_step(trace);
    size_t count = 0, evaluation_count = find_evaluations(trace, evaluations);
    for (int lane = 0; lane < trace->lane_count; lane++) {
        for (uint32_t i = 0; i < yoke_lane_count(trace, lane); i++) {
            const yoke_span *span = yoke_lane_span(trace, lane, i);
            if (span->step < first || is_within(span, evaluations, evaluation_count)) continue;
            parts[count++] = (part){.stage = span->stage,
                                    .lane = lane,
                                    .step = span->step,
                                    .ns = span->end_ns - span->begin_ns,
                                    .bytes = span->bytes};
        }
    }
    return count;
}

/* Sums the parts of one stage in one step by lane; returns how many parts there are. */
static size_t longest_lane(const part *parts, size_t count, uint64_t *longest_ns,
                           double *total_bytes) {
    size_t i = 0;
    *longest_ns = 0;
    while (i < count && parts[i].stage == parts[0].stage && parts[i].step == parts[0].step) {
        uint64_t lane_ns = 0;
        size_t lane_begin = i;
        for (; i < count && compare_parts(&parts[i], &parts[lane_begin]) == 0; i++) {
            lane_ns += parts[i].ns;
            *total_bytes += (double)parts[i].bytes;
        }
        if (lane_ns > *longest_ns) *longest_ns = lane_ns;
    }
    return i;
}

static double median_ms(uint64_t *times, size_t count) {
    qsort(times, count, sizeof *times, compare_times);
    uint64_t middle = times[count / 2];
    uint64_t other = count % 2 ? middle : times[count / 2 - 1];
    return ((double)middle + (double)other) / 2e6;
}

/* Makes one row of the parts at the beginning of parts[0 .. count) that have its stage; returns how
 * many. Until all rows are known, `share` holds the stage's total in milliseconds. */
static size_t summarize_stage(const part *parts, size_t count, uint64_t *times,
                              yoke_stage_summary *row) {
    size_t used = 0, steps = 0;
    double bytes = 0, total_ns = 0;
    while (used < count && parts[used].stage == parts[0].stage) {
        used += longest_lane(parts + used, count - used, &times[steps], &bytes);
        total_ns += (double)times[steps++];
    }
    *row = (yoke_stage_summary){.struct_size = sizeof *row,
                                .stage = parts[0].stage,
                                .count = steps,
                                .share = total_ns / 1e6,
                                .bytes = bytes / (double)steps};
    row->median_ms = median_ms(times, steps);
    if (row->median_ms > 0) row->gigabytes_per_second = row->bytes / (row->median_ms * 1e6);
    return used;
}

static int summarize(part *parts, size_t count, uint64_t *times,
                     yoke_stage_summary own[YOKE_STAGE_COUNT]) {
    qsort(parts, count, sizeof *parts, compare_parts);
    int rows = 0;
    double steps_ms = 0;
    for (size_t used = 0; used < count; rows++) {
        used += summarize_stage(parts + used, count - used, times, &own[rows]);
        if (own[rows].stage == YOKE_STAGE_STEP) steps_ms = own[rows].share;
    }
    for (int i = 0; i < rows; i++)
        own[i].share = steps_ms > 0 ? own[i].share / steps_ms : 0;
    return rows;
}

/* Copies into the caller's rows, which may have the size of another version. */
static int copy_rows(const yoke_stage_summary *own, int count, yoke_stage_summary *rows,
                     int capacity) {
    size_t row_bytes = rows->struct_size ? rows->struct_size : sizeof *rows;
    int given = count < capacity ? count : capacity;
    for (int i = 0; i < given; i++) {
        void *row = (char *)rows + (size_t)i * row_bytes;
        *(size_t *)row = row_bytes;
        if (yoke_options_store(row, &own[i], sizeof own[i], "yoke_stage_summary") != YOKE_OK)
            return 0;
    }
    return given;
}

int yoke_trace_summarize(const yoke_trace *trace, yoke_stage_summary *rows, int capacity) {
    if (trace == NULL || rows == NULL || capacity < 1) return 0;
    size_t spans = 0;
    for (int lane = 0; lane < trace->lane_count; lane++)
        spans += yoke_lane_count(trace, lane);
    if (spans == 0) return 0;
    part *parts = malloc(spans * sizeof *parts);
    uint64_t *times = malloc(spans * sizeof *times);
    const yoke_span **evaluations = calloc(yoke_lane_count(trace, 0) + 1u, sizeof *evaluations);
    int given = 0;
    if (parts != NULL && times != NULL && evaluations != NULL) {
        yoke_stage_summary own[YOKE_STAGE_COUNT];
        int count = summarize(parts, collect(trace, evaluations, parts), times, own);
        given = copy_rows(own, count, rows, capacity);
    }
    free(evaluations);
    free(times);
    free(parts);
    return given;
}
