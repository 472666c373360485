/* SPDX-License-Identifier: Apache-2.0 */
#include "simulate/simulated_spans.h"

#include "base/base.h"

static yoke_status refuse_memory(size_t bytes) {
    return FAIL_MEMORY(bytes, "a simulated timeline");
}

yoke_status yoke_timeline_add(yoke_timeline *timeline, const yoke_span_info *span) {
    if (span->end_ns <= span->begin_ns) return YOKE_OK;
    if (timeline->count == timeline->capacity) {
        int capacity = timeline->capacity > 0 ? 2 * timeline->capacity : 64;
        size_t bytes = (size_t)capacity * sizeof *timeline->spans;
        yoke_span_info *larger = yoke_realloc(timeline->spans, bytes);
        if (larger == NULL) return refuse_memory(bytes);
        timeline->spans = larger;
        timeline->capacity = capacity;
    }
    timeline->spans[timeline->count++] = *span;
    return YOKE_OK;
}

static yoke_status add_pieces(yoke_timeline *timeline, const yoke_piece *pieces, size_t count,
                              uint64_t begin_ns) {
    for (size_t i = 0; i < count; i++) {
        const yoke_span_info *whole = pieces[i].span;
        if (whole == NULL) continue;
        yoke_span_info part = *whole;
        double share = (double)(pieces[i].end_ns - pieces[i].begin_ns) /
                       (double)(whole->end_ns - whole->begin_ns);
        part.begin_ns = pieces[i].begin_ns - begin_ns;
        part.end_ns = pieces[i].end_ns - begin_ns;
        if (share < 1) part.bytes = (uint64_t)(share * (double)whole->bytes);
        TRY(yoke_timeline_add(timeline, &part));
    }
    return YOKE_OK;
}

yoke_status yoke_timeline_cut(yoke_timeline *timeline, int lanes, uint64_t begin_ns,
                              uint64_t end_ns) {
    size_t count = (size_t)timeline->count;
    const yoke_span_info **list = yoke_malloc((count + 1) * sizeof *list);
    yoke_piece *pieces = yoke_malloc((2 * count + 1) * sizeof *pieces);
    yoke_timeline cut = {0};
    yoke_status status = YOKE_OK;
    if (list == NULL || pieces == NULL) status = refuse_memory((2 * count + 1) * sizeof *pieces);
    for (int lane = 0; lane < lanes && status == YOKE_OK; lane++) {
        size_t own = yoke_spans_of_lane(timeline->spans, count, lane, list);
        own = yoke_account_cut(list, own, begin_ns, end_ns, pieces);
        status = add_pieces(&cut, pieces, own, begin_ns);
    }
    yoke_free(pieces);
    yoke_free(list);
    yoke_free(timeline->spans);
    *timeline = cut;
    return status;
}
