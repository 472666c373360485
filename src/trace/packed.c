/* SPDX-License-Identifier: Apache-2.0 */
/* A trace as words: the number of lanes; then for each lane its name, its number of spans, and the
 * spans, oldest first. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "trace/spans.h"

#define NAME_WORDS 8
#define SPAN_WORDS (sizeof(yoke_span) / sizeof(int64_t))
#define LANE_WORDS (NAME_WORDS + 1)
#define LANES_MOST 4096

_Static_assert(sizeof(yoke_span) % sizeof(int64_t) == 0, "a span is a whole number of words");

yoke_status yoke_trace_pack(const yoke_trace *trace, int64_t **words, size_t *count) {
    *count = 1;
    for (int lane = 0; lane < trace->lane_count; lane++)
        *count += LANE_WORDS + yoke_lane_count(trace, lane) * SPAN_WORDS;
    int64_t *next = *words = yoke_calloc(*count, sizeof *next);
    if (next == NULL) return FAIL_MEMORY(*count * sizeof *next, "a packed trace");
    *next++ = trace->lane_count;
    for (int lane = 0; lane < trace->lane_count; lane++) {
        uint32_t spans = yoke_lane_count(trace, lane);
        strncpy((char *)next, trace->lanes[lane].name, NAME_WORDS * sizeof *next - 1);
        next[NAME_WORDS] = spans;
        next += LANE_WORDS;
        for (uint32_t i = 0; i < spans; i++, next += SPAN_WORDS)
            memcpy(next, yoke_lane_span(trace, lane, i), sizeof(yoke_span));
    }
    return YOKE_OK;
}

/* Whether the words are those of a packed trace; finds the most spans of a lane. */
static bool is_packed(const int64_t *words, size_t count, uint32_t *most) {
    *most = 1;
    if (count < 1 || words[0] < 1 || words[0] > LANES_MOST) return false;
    size_t used = 1;
    for (int64_t lane = 0; lane < words[0]; lane++) {
        if (count - used < LANE_WORDS) return false;
        int64_t spans = words[used + NAME_WORDS];
        used += LANE_WORDS;
        if (spans < 0 || (uint64_t)spans > (count - used) / SPAN_WORDS) return false;
        if (memchr(&words[used - LANE_WORDS], '\0', NAME_WORDS * sizeof *words) == NULL)
            return false;
        used += (size_t)spans * SPAN_WORDS;
        if (spans > *most) *most = (uint32_t)spans;
    }
    return used == count;
}

yoke_status yoke_trace_unpack(yoke_trace **trace, const int64_t *words, size_t count) {
    const char *names[LANES_MOST];
    const int64_t *spans[LANES_MOST];
    yoke_trace_options options = {.lanes = names};
    *trace = NULL;
    if (!is_packed(words, count, &options.capacity))
        return FAIL(YOKE_ERROR_DATA, "%zu words are not a packed trace", count);
    options.lane_count = (int)words[0];
    const int64_t *next = words + 1;
    for (int lane = 0; lane < options.lane_count; lane++) {
        names[lane] = (const char *)next;
        spans[lane] = next + NAME_WORDS;
        next += LANE_WORDS + (size_t)*spans[lane] * SPAN_WORDS;
    }
    TRY(yoke_trace_create(trace, &options));
    for (int lane = 0; lane < options.lane_count; lane++) {
        yoke_lane *own = &(*trace)->lanes[lane];
        own->recorded = (uint64_t)*spans[lane];
        memcpy(own->spans, spans[lane] + 1, own->recorded * sizeof *own->spans);
    }
    return YOKE_OK;
}
