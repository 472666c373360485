/* SPDX-License-Identifier: Apache-2.0 */
/* What a lane does at every instant of a step, by the rule of trace/account.h, and what other lanes
 * do while it waits. */
#include <stdlib.h>

#include "base/base.h"
#include "report/trace_reader.h"

static bool works(int stage) {
    return yoke_activity_of(stage) < YOKE_WAITS;
}

yoke_status yoke_report_add_pieces(yoke_report_lane *lane, const yoke_piece *pieces, size_t count,
                                   uint64_t begin_ns) {
    for (size_t i = 0; i < count; i++) {
        const yoke_span_info *of = pieces[i].span;
        yoke_report_span span = {.stage = YOKE_STAGE_IDLE,
                                 .bucket = -1,
                                 .begin_ms = 1e-6 * (double)(pieces[i].begin_ns - begin_ns),
                                 .end_ms = 1e-6 * (double)(pieces[i].end_ns - begin_ns),
                                 .cause_lane = -1,
                                 .cause_stage = -1};
        if (of != NULL) {
            span.stage = (int)of->stage;
            span.bucket = of->bucket;
            span.bytes = (double)of->bytes;
        }
        TRY(yoke_report_add_span(lane, &span));
    }
    return YOKE_OK;
}

yoke_status yoke_report_cut(yoke_report_lane *lane, const yoke_span_info *spans, size_t count,
                            int number, uint64_t begin_ns, uint64_t end_ns) {
    size_t bytes = (count + 1) * sizeof(yoke_span_info *);
    size_t piece_bytes = (2 * count + 1) * sizeof(yoke_piece);
    const yoke_span_info **list = malloc(bytes);
    yoke_piece *pieces = malloc(piece_bytes);
    yoke_status status = YOKE_OK;
    if (list == NULL || pieces == NULL) {
        status = FAIL_MEMORY(bytes + piece_bytes, "a step of a report");
    } else {
        count = yoke_spans_of_lane(spans, count, number, list);
        count = yoke_account_cut(list, count, begin_ns, end_ns, pieces);
        status = yoke_report_add_pieces(lane, pieces, count, begin_ns);
    }
    free(pieces);
    free(list);
    return status;
}

/* Causes. */

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

/* Another lane that works for half of the time at least. */
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
}

void yoke_report_find_causes(yoke_report_mode *mode) {
    for (int i = 0; i < mode->lane_count; i++) {
        yoke_report_lane *lane = &mode->lanes[i];
        for (int j = 0; j < lane->span_count; j++)
            if (!works(lane->spans[j].stage) && lane->spans[j].cause_lane < 0)
                find_cause(mode, i, &lane->spans[j]);
    }
}
