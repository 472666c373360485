/* SPDX-License-Identifier: Apache-2.0 */
/* Records spans: one store per span into the lane's ring, without locks or allocation. */
#include "trace/trace.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "trace/spans.h"

#define DEFAULT_CAPACITY 65536

const char *yoke_stage_name(yoke_stage stage) {
    static const char *const names[] = {
#define NAME(name, text, what) text,
        YOKE_STAGE_TABLE(NAME)
#undef NAME
    };
    return (unsigned)stage < YOKE_STAGE_COUNT ? names[stage] : "unknown stage";
}

static yoke_status build(yoke_trace *trace, const yoke_trace_options *options) {
    trace->capacity = options->capacity ? options->capacity : DEFAULT_CAPACITY;
    trace->queued = options->queued;
    for (; trace->lane_count < options->lane_count; trace->lane_count++) {
        yoke_lane *lane = &trace->lanes[trace->lane_count];
        const char *name = options->lanes[trace->lane_count];
        lane->name = yoke_strdup(name);
        if (lane->name == NULL) return FAIL_MEMORY(strlen(name) + 1, "a trace lane's name");
        lane->spans = yoke_calloc(trace->capacity, sizeof *lane->spans);
        if (lane->spans == NULL) {
            yoke_free(lane->name);
            return FAIL_MEMORY(trace->capacity * sizeof *lane->spans, "the spans of a trace");
        }
    }
    return YOKE_OK;
}

yoke_status yoke_trace_create(yoke_trace **trace, const yoke_trace_options *options) {
    *trace = NULL;
    if (options->lane_count < 1)
        return FAIL(YOKE_ERROR_ARGUMENT, "a trace of %d lanes: at least 1 is needed",
                    options->lane_count);
    size_t bytes = sizeof(yoke_trace) + (size_t)options->lane_count * sizeof(yoke_lane);
    yoke_trace *created = yoke_calloc(1, bytes);
    if (created == NULL) return FAIL_MEMORY(bytes, "a trace");
    yoke_status status = build(created, options);
    if (status != YOKE_OK) {
        yoke_trace_destroy(created);
        return status;
    }
    *trace = created;
    return YOKE_OK;
}

void yoke_trace_destroy(yoke_trace *trace) {
    if (trace == NULL) return;
    for (int i = 0; i < trace->lane_count; i++) {
        yoke_free(trace->lanes[i].spans);
        yoke_free(trace->lanes[i].name);
    }
    yoke_free(trace);
}

uint64_t yoke_trace_now(void) {
    return yoke_now_ns();
}

void yoke_trace_span(yoke_trace *trace, int lane, yoke_stage stage, uint64_t step,
                     uint64_t begin_ns, uint64_t bytes) {
    yoke_trace_end_span(trace, lane,
                        &(yoke_span){.begin_ns = begin_ns,
                                     .step = step,
                                     .bytes = bytes,
                                     .stage = stage,
                                     .bucket = YOKE_NO_BUCKET});
}

void yoke_trace_end_span(yoke_trace *trace, int lane, const yoke_span *span) {
    if (trace == NULL) return;
    yoke_span ended = *span;
    ended.track = trace->queued ? YOKE_TRACK_HOST : YOKE_TRACK_COMPUTE;
    ended.end_ns = yoke_now_ns();
    yoke_trace_past_span(trace, lane, &ended);
}

void yoke_trace_past_span(yoke_trace *trace, int lane, const yoke_span *span) {
    assert(lane >= 0 && lane < trace->lane_count);
    yoke_lane *own = &trace->lanes[lane];
    own->spans[own->recorded++ % trace->capacity] = *span;
}

void yoke_trace_reset(yoke_trace *trace) {
    if (trace == NULL) return;
    for (int i = 0; i < trace->lane_count; i++)
        trace->lanes[i].recorded = 0;
}

uint32_t yoke_lane_count(const yoke_trace *trace, int lane) {
    uint64_t recorded = trace->lanes[lane].recorded;
    return recorded < trace->capacity ? (uint32_t)recorded : trace->capacity;
}

const yoke_span *yoke_lane_span(const yoke_trace *trace, int lane, uint32_t i) {
    const yoke_lane *own = &trace->lanes[lane];
    uint64_t oldest = own->recorded - yoke_lane_count(trace, lane);
    return &own->spans[(oldest + i) % trace->capacity];
}

uint64_t yoke_trace_first_step(const yoke_trace *trace) {
    uint64_t first = 0;
    for (int lane = 0; lane < trace->lane_count; lane++) {
        if (trace->lanes[lane].recorded <= trace->capacity) continue;
        uint64_t after_oldest = yoke_lane_span(trace, lane, 0)->step + 1;
        if (after_oldest > first) first = after_oldest;
    }
    return first;
}

/* Copies into the caller's array, whose spans may have the size of another version. */
static bool copy_span(void *to, size_t bytes, int lane, const yoke_span *span) {
    yoke_span_info own = {.struct_size = sizeof own,
                          .lane = lane,
                          .stage = span->stage,
                          .step = span->step,
                          .begin_ns = span->begin_ns,
                          .end_ns = span->end_ns,
                          .bytes = span->bytes,
                          .bucket = span->bucket,
                          .awaits = YOKE_STAGE_COUNT,
                          .sent_bytes = span->sent,
                          .received_bytes = span->received};
    if (span->stage == YOKE_STAGE_WAIT && span->awaits != YOKE_STAGE_LOAD)
        own.awaits = span->awaits;
    *(size_t *)to = bytes;
    return yoke_options_store(to, &own, sizeof own, "yoke_span_info") == YOKE_OK;
}

/* Finds the lane's first span of step `first` or a later one. A device's spans of a step may come
 * behind the host's spans of the next step. */
static uint32_t first_place(const yoke_trace *trace, int lane, uint64_t first) {
    uint32_t place = yoke_lane_count(trace, lane);
    while (place > 0 && yoke_lane_span(trace, lane, place - 1)->step + 1 >= first)
        place--;
    return place;
}

static size_t read_from(const yoke_trace *trace, uint64_t first, bool of_links,
                        yoke_span_info *spans, size_t capacity) {
    size_t bytes = capacity > 0 && spans->struct_size > 0 ? spans->struct_size : sizeof *spans;
    size_t count = 0;
    for (int lane = 0; lane < trace->lane_count; lane++) {
        for (uint32_t i = first_place(trace, lane, first); i < yoke_lane_count(trace, lane); i++) {
            const yoke_span *span = yoke_lane_span(trace, lane, i);
            if (span->step < first || (span->track == YOKE_TRACK_LINK) != of_links) continue;
            if (count < capacity && !copy_span((char *)spans + count * bytes, bytes, lane, span))
                return 0;
            count++;
        }
    }
    return count;
}

size_t yoke_trace_read(const yoke_trace *trace, yoke_span_info *spans, size_t capacity) {
    if (trace == NULL || (spans == NULL && capacity > 0)) return 0;
    return read_from(trace, yoke_trace_first_step(trace), false, spans, capacity);
}

/* Lane 0 records the whole of a step. */
static uint64_t steps_end(const yoke_trace *trace) {
    for (uint32_t i = yoke_lane_count(trace, 0); i > 0; i--) {
        const yoke_span *span = yoke_lane_span(trace, 0, i - 1);
        if (span->stage == YOKE_STAGE_STEP) return span->step + 1;
    }
    return 0;
}

static size_t read_last(const yoke_trace *trace, uint64_t steps, bool of_links,
                        yoke_span_info *spans, size_t capacity) {
    if (trace == NULL || (spans == NULL && capacity > 0)) return 0;
    uint64_t first = yoke_trace_first_step(trace), end = steps_end(trace);
    if (end > steps && end - steps > first) first = end - steps;
    return read_from(trace, first, of_links, spans, capacity);
}

size_t yoke_trace_read_last(const yoke_trace *trace, uint64_t steps, yoke_span_info *spans,
                            size_t capacity) {
    return read_last(trace, steps, false, spans, capacity);
}

size_t yoke_trace_read_links(const yoke_trace *trace, uint64_t steps, yoke_span_info *spans,
                             size_t capacity) {
    return read_last(trace, steps, true, spans, capacity);
}
