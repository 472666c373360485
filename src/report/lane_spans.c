/* SPDX-License-Identifier: Apache-2.0 */
/* What a lane does at every instant of a step, by the rule of trace/account.h, and what other lanes
 * do while it waits. */
#include <stdio.h>

#include "base/base.h"
#include "report/trace_sums.h"

static bool works(int stage) {
    return yoke_activity_of(stage) < YOKE_WAITS;
}

yoke_status yoke_report_add_pieces(yoke_report_lane *lane, const yoke_piece *pieces, size_t count,
                                   uint64_t begin_ns) {
    for (size_t i = 0; i < count; i++) {
        yoke_report_span piece = {.cause_lane = -1, .cause_stage = -1};
        piece.span = pieces[i].span != NULL
                         ? *pieces[i].span
                         : (yoke_span_info){.stage = YOKE_STAGE_IDLE, .bucket = YOKE_NO_BUCKET};
        piece.span.begin_ns = pieces[i].begin_ns - begin_ns;
        piece.span.end_ns = pieces[i].end_ns - begin_ns;
        TRY(yoke_report_add_span(lane, &piece));
    }
    return YOKE_OK;
}

yoke_status yoke_report_cut(yoke_report_lane *lane, const yoke_span_info *spans, size_t count,
                            int number, uint64_t begin_ns, uint64_t end_ns) {
    size_t bytes = (count + 1) * sizeof(yoke_span_info *);
    size_t piece_bytes = (2 * count + 1) * sizeof(yoke_piece);
    const yoke_span_info **list = yoke_malloc(bytes);
    yoke_piece *pieces = yoke_malloc(piece_bytes);
    yoke_status status = YOKE_OK;
    if (list == NULL || pieces == NULL) {
        status = FAIL_MEMORY(bytes + piece_bytes, "a step of a report");
    } else {
        count = yoke_spans_of_lane(spans, count, number, list);
        count = yoke_account_cut(list, count, begin_ns, end_ns, pieces);
        status = yoke_report_add_pieces(lane, pieces, count, begin_ns);
    }
    yoke_free(pieces);
    yoke_free(list);
    return status;
}

yoke_status yoke_report_add_carried(yoke_report_lane *link, const yoke_span_info *span,
                                    uint64_t begin_ns, uint64_t end_ns) {
    yoke_report_span carried = {.span = *span, .cause_lane = -1, .cause_stage = -1};
    link->kind = YOKE_LANE_LINK;
    if (span->begin_ns >= end_ns || span->end_ns <= begin_ns || span->begin_ns >= span->end_ns)
        return YOKE_OK;
    carried.span.begin_ns = span->begin_ns > begin_ns ? span->begin_ns - begin_ns : 0;
    carried.span.end_ns = (span->end_ns < end_ns ? span->end_ns : end_ns) - begin_ns;
    return yoke_report_add_span(link, &carried);
}

yoke_status yoke_report_add_link_lane(yoke_report_mode *mode, const char *whose,
                                      const yoke_span_info *spans, int count, int number,
                                      uint64_t begin_ns, uint64_t end_ns) {
    yoke_report_lane *link = NULL;
    char name[YOKE_REPORT_NAME_BYTES];
    snprintf(name, sizeof name, "link of %.80s", whose); /* which may move as lanes grow */
    for (const yoke_span_info *span = spans; span < spans + count; span++) {
        if (span->lane != number) continue;
        if (link == NULL) TRY(yoke_report_add_lane(mode, name, &link));
        TRY(yoke_report_add_carried(link, span, begin_ns, end_ns));
    }
    return YOKE_OK;
}

/* Causes. */

/* The first span that ends behind the time. */
static int first_behind(const yoke_report_lane *lane, uint64_t time_ns) {
    int low = 0, high = lane->span_count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (lane->spans[middle].span.end_ns > time_ns)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* How long a lane works during another lane's span; the stage that it works longest in goes to
 * *stage. */
static uint64_t work_within(const yoke_report_lane *lane, const yoke_span_info *time, int *stage) {
    uint64_t sums[YOKE_STAGE_COUNT] = {0}, total = 0;
    for (int i = first_behind(lane, time->begin_ns);
         i < lane->span_count && lane->spans[i].span.begin_ns < time->end_ns; i++) {
        const yoke_span_info *span = &lane->spans[i].span;
        if (!works((int)span->stage)) continue;
        uint64_t from = span->begin_ns > time->begin_ns ? span->begin_ns : time->begin_ns;
        uint64_t to = span->end_ns < time->end_ns ? span->end_ns : time->end_ns;
        sums[span->stage] += to - from;
        total += to - from;
    }
    *stage = 0;
    for (int i = 1; i < YOKE_STAGE_COUNT; i++)
        if (sums[i] > sums[*stage]) *stage = i;
    return total;
}

/* Another lane that works for half of the time at least. */
static void find_cause(const yoke_report_mode *mode, int waiter, yoke_report_span *wait) {
    uint64_t longest = 0;
    for (int i = 0; i < mode->lane_count; i++) {
        int stage;
        if (i == waiter) continue;
        uint64_t work = work_within(&mode->lanes[i], &wait->span, &stage);
        if (work <= longest || 2 * work < wait->span.end_ns - wait->span.begin_ns) continue;
        longest = work;
        wait->cause_lane = i;
        wait->cause_stage = stage;
    }
}

void yoke_report_find_causes(yoke_report_mode *mode) {
    for (int i = 0; i < mode->lane_count; i++) {
        yoke_report_lane *lane = &mode->lanes[i];
        for (int j = 0; j < lane->span_count; j++)
            if (!works((int)lane->spans[j].span.stage) && lane->spans[j].cause_lane < 0)
                find_cause(mode, i, &lane->spans[j]);
    }
}
