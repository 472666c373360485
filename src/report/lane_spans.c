/* SPDX-License-Identifier: Apache-2.0 */
/* What a lane does at every instant of a step, and what it waits for. Where spans lie in each
 * other, the inner one counts; an all-reduce that runs behind other work does not count. */
#include <stdlib.h>

#include "base/base.h"
#include "report/report.h"

static int compare_times(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static bool works(int stage) {
    return stage != YOKE_STAGE_LOAD && stage != YOKE_STAGE_WAIT && stage < YOKE_STAGE_COUNT;
}

/* Cutting. */

/* The span, of those sorted by begin, that counts at the time; NULL: none. */
static const yoke_report_span *span_at(const yoke_report_span *spans, int count, double time_ms) {
    const yoke_report_span *found = NULL;
    for (int i = 0; i < count && spans[i].begin_ms <= time_ms; i++) {
        if (spans[i].end_ms <= time_ms) continue;
        if (found == NULL || found->stage == YOKE_STAGE_ALL_REDUCE ||
            spans[i].stage != YOKE_STAGE_ALL_REDUCE)
            found = &spans[i];
    }
    return found;
}

static double clip(double time_ms, double step_ms) {
    return time_ms < 0 ? 0 : time_ms > step_ms ? step_ms : time_ms;
}

static yoke_status add_piece(yoke_report_lane *lane, const yoke_report_span *of, double begin_ms,
                             double end_ms) {
    yoke_report_span piece = {
        .stage = YOKE_REPORT_IDLE, .bucket = -1, .cause_lane = -1, .cause_stage = -1};
    if (of != NULL) piece = *of;
    piece.begin_ms = begin_ms;
    piece.end_ms = end_ms;
    return yoke_report_add_span(lane, &piece);
}

/* Where a span begins or ends, and the ends of the step. */
static int sort_times(const yoke_report_span *spans, int count, double step_ms, double *times) {
    int used = 0;
    times[used++] = 0;
    times[used++] = step_ms;
    for (int i = 0; i < count; i++) {
        times[used++] = clip(spans[i].begin_ms, step_ms);
        times[used++] = clip(spans[i].end_ms, step_ms);
    }
    qsort(times, (size_t)used, sizeof *times, compare_times);
    return used;
}

/* The pieces of one span that touch are one piece. */
yoke_status yoke_report_cut(yoke_report_lane *lane, const yoke_report_span *spans, int count,
                            double step_ms) {
    size_t bytes = (2 * (size_t)count + 2) * sizeof(double);
    double *times = malloc(bytes);
    if (times == NULL) return FAIL_MEMORY(bytes, "a step of a report");
    int time_count = sort_times(spans, count, step_ms, times);
    yoke_status status = YOKE_OK;
    double begin_ms = 0;
    const yoke_report_span *current = span_at(spans, count, 0);
    for (int i = 1; i < time_count && status == YOKE_OK; i++) {
        bool last = i + 1 == time_count;
        const yoke_report_span *next = last ? NULL : span_at(spans, count, times[i]);
        if (!last && next == current) continue;
        if (times[i] > begin_ms) status = add_piece(lane, current, begin_ms, times[i]);
        begin_ms = times[i];
        current = next;
    }
    free(times);
    return status;
}

/* Waits and their causes. */

/* The first span that ends behind the time. */
static int first_behind(const yoke_report_lane *lane, double time_ms) {
    int low = 0, high = lane->span_count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (lane->spans[middle].end_ms > time_ms)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* How long a lane works between two times; the stage that it works longest in goes to *stage. */
static double work_within(const yoke_report_lane *lane, double begin_ms, double end_ms,
                          int *stage) {
    double sums[YOKE_STAGE_COUNT] = {0}, total = 0;
    for (int i = first_behind(lane, begin_ms);
         i < lane->span_count && lane->spans[i].begin_ms < end_ms; i++) {
        const yoke_report_span *span = &lane->spans[i];
        if (!works(span->stage)) continue;
        double from = span->begin_ms > begin_ms ? span->begin_ms : begin_ms;
        double to = span->end_ms < end_ms ? span->end_ms : end_ms;
        sums[span->stage] += to - from;
        total += to - from;
    }
    *stage = 0;
    for (int i = 1; i < YOKE_STAGE_COUNT; i++)
        if (sums[i] > sums[*stage]) *stage = i;
    return total;
}

/* A gap is waiting when another lane works for half of it at least; otherwise nobody works. */
static void find_cause(const yoke_report_mode *mode, int waiter, yoke_report_span *span) {
    double longest = 0;
    for (int i = 0; i < mode->lane_count; i++) {
        int stage;
        if (i == waiter) continue;
        double work = work_within(&mode->lanes[i], span->begin_ms, span->end_ms, &stage);
        if (work <= longest || 2 * work < span->end_ms - span->begin_ms) continue;
        longest = work;
        span->cause_lane = i;
        span->cause_stage = stage;
    }
    if (span->stage == YOKE_REPORT_IDLE && span->cause_lane >= 0) span->stage = YOKE_REPORT_WAITING;
}

void yoke_report_find_waits(yoke_report_mode *mode) {
    for (int i = 0; i < mode->lane_count; i++) {
        yoke_report_lane *lane = &mode->lanes[i];
        for (int j = 0; j < lane->span_count; j++)
            if (!works(lane->spans[j].stage) && lane->spans[j].cause_lane < 0)
                find_cause(mode, i, &lane->spans[j]);
    }
}
