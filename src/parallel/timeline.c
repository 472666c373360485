/* SPDX-License-Identifier: Apache-2.0 */
/* Bars of the timeline: events at begin and end of a stage, and a base event of known time. */
#include "parallel/timeline.h"

#include <stdlib.h>

#include "parallel/engine.h"

/* Turns between two new bases: an event's distance from its base is a float of milliseconds. */
#define BASE_TURNS 1024

typedef struct timed_slot {
    yoke_device_event *begin, *end;
    yoke_span span; /* times to be filled in */
    bool pending;
} timed_slot;

/* The stages of one replica's batch in flight and of the one before. */
struct yoke_clock {
    timed_slot *turns[2];
    yoke_device_event *bases[2]; /* the one in use passed at base_ns of the host's clock */
    int base;
    double base_ns;
    bool rebasing; /* the other one has been recorded */
};

enum { SCATTER_SLOT, FORWARD_SLOT, LOSS_SLOT, FIRST_SEGMENT_SLOT };

static int slot_count(const yoke_data_parallel *parallel) {
    return FIRST_SEGMENT_SLOT + 2 * parallel->flat->bucket_count;
}

static int slot_of(const yoke_data_parallel *parallel, const yoke_stage_span *stage) {
    switch (stage->stage) {
    case YOKE_STAGE_SCATTER:
        return SCATTER_SLOT;
    case YOKE_STAGE_FORWARD:
        return FORWARD_SLOT;
    case YOKE_STAGE_LOSS:
        return LOSS_SLOT;
    case YOKE_STAGE_BACKWARD:
        return FIRST_SEGMENT_SLOT + stage->bucket;
    default:
        return FIRST_SEGMENT_SLOT + parallel->flat->bucket_count + stage->bucket;
    }
}

static yoke_stream stream_of(yoke_stage stage) {
    if (stage == YOKE_STAGE_SCATTER) return YOKE_STREAM_COPY;
    return stage == YOKE_STAGE_EXCHANGE ? YOKE_STREAM_COMMUNICATION : YOKE_STREAM_COMPUTE;
}

static timed_slot *timed(const yoke_data_parallel *parallel, const yoke_stage_span *stage) {
    return &parallel->lanes[stage->lane]
                .clock->turns[parallel->timeline.turn][slot_of(parallel, stage)];
}

static yoke_track track_of(yoke_stage stage) {
    switch (stream_of(stage)) {
    case YOKE_STREAM_COPY:
        return YOKE_TRACK_COPY;
    case YOKE_STREAM_COMMUNICATION:
        return YOKE_TRACK_COMMUNICATION;
    default:
        return YOKE_TRACK_COMPUTE;
    }
}

/* Times to be filled in. */
static yoke_span span_of(const yoke_data_parallel *parallel, const yoke_stage_span *stage) {
    bool has_bucket = stage->stage == YOKE_STAGE_BACKWARD || stage->stage == YOKE_STAGE_EXCHANGE;
    return (yoke_span){.begin_ns = stage->begin_ns,
                       .step = parallel->steps,
                       .bytes = stage->bytes,
                       .stage = stage->stage,
                       .bucket = has_bucket ? stage->bucket : YOKE_NO_BUCKET,
                       .track = track_of(stage->stage)};
}

yoke_status yoke_stage_begin(yoke_data_parallel *parallel, yoke_stage_span *stage) {
    stage->begin_ns = yoke_trace_now();
    if (parallel->lanes[stage->lane].clock == NULL) return YOKE_OK;
    return yoke_device_event_record(timed(parallel, stage)->begin, stream_of(stage->stage));
}

yoke_status yoke_stage_end(yoke_data_parallel *parallel, const yoke_stage_span *stage) {
    const yoke_lane *lane = &parallel->lanes[stage->lane];
    if (lane->clock == NULL) {
        yoke_span span = span_of(parallel, stage);
        yoke_trace_end_span(parallel->trace, stage->lane, &span);
        return YOKE_OK;
    }
    if (!yoke_device_is_recording(lane->device)) yoke_stage_queued(parallel, stage);
    return yoke_device_event_record(timed(parallel, stage)->end, stream_of(stage->stage));
}

void yoke_stage_queued(yoke_data_parallel *parallel, const yoke_stage_span *stage) {
    timed_slot *slot = timed(parallel, stage);
    slot->pending = true;
    slot->span = span_of(parallel, stage);
}

/* Reading. */

/* Events of a turn passed long ago, unless the lane has had no rows since. */
static yoke_status read_turn(yoke_data_parallel *parallel, int lane, int turn) {
    const yoke_clock *clock = parallel->lanes[lane].clock;
    for (int i = 0; i < slot_count(parallel); i++) {
        timed_slot *slot = &clock->turns[turn][i];
        double begin_ms, spent_ms;
        if (!slot->pending) continue;
        slot->pending = false;
        TRY(yoke_device_event_synchronize(slot->end));
        TRY(yoke_device_event_elapsed(clock->bases[clock->base], slot->begin, &begin_ms));
        TRY(yoke_device_event_elapsed(slot->begin, slot->end, &spent_ms));
        slot->span.begin_ns = (uint64_t)(clock->base_ns + begin_ms * 1e6);
        slot->span.end_ns = slot->span.begin_ns + (uint64_t)(spent_ms * 1e6);
        yoke_trace_past_span(parallel->trace, lane, &slot->span);
    }
    return YOKE_OK;
}

static yoke_status move_base(const yoke_data_parallel *parallel, yoke_clock *clock) {
    if (clock->rebasing) {
        double milliseconds;
        TRY(yoke_device_event_synchronize(clock->bases[1 - clock->base])); /* as in read_turn */
        TRY(yoke_device_event_elapsed(clock->bases[clock->base], clock->bases[1 - clock->base],
                                      &milliseconds));
        clock->base_ns += milliseconds * 1e6;
        clock->base = 1 - clock->base;
    }
    clock->rebasing = parallel->timeline.turns % BASE_TURNS == BASE_TURNS - 1;
    if (!clock->rebasing) return YOKE_OK;
    return yoke_device_event_record(clock->bases[1 - clock->base], YOKE_STREAM_COMPUTE);
}

yoke_status yoke_timeline_turn(yoke_data_parallel *parallel) {
    yoke_timeline *timeline = &parallel->timeline;
    timeline->turn = 1 - timeline->turn;
    for (int k = 0; k < timeline->clocks; k++) {
        TRY(read_turn(parallel, k, timeline->turn));
        TRY(move_base(parallel, parallel->lanes[k].clock));
    }
    timeline->turns++;
    return YOKE_OK;
}

yoke_status yoke_timeline_read(yoke_data_parallel *parallel) {
    const yoke_timeline *timeline = &parallel->timeline;
    TRY(yoke_lanes_synchronize(parallel));
    for (int k = 0; k < timeline->clocks; k++) {
        TRY(read_turn(parallel, k, 1 - timeline->turn));
        TRY(read_turn(parallel, k, timeline->turn));
    }
    return YOKE_OK;
}

/* Life. */

static yoke_status create_slots(const yoke_data_parallel *parallel, yoke_device *device,
                                timed_slot **slots) {
    size_t count = (size_t)slot_count(parallel);
    *slots = calloc(count, sizeof **slots);
    if (*slots == NULL) return FAIL_MEMORY(count * sizeof **slots, "the spans of a batch");
    for (size_t i = 0; i < count; i++) {
        TRY(yoke_device_event_create_timed(&(*slots)[i].begin, device));
        TRY(yoke_device_event_create_timed(&(*slots)[i].end, device));
    }
    return YOKE_OK;
}

yoke_status yoke_clock_create(yoke_data_parallel *parallel, int index) {
    yoke_lane *lane = &parallel->lanes[index];
    yoke_clock *clock = lane->clock = calloc(1, sizeof *clock);
    if (clock == NULL) return FAIL_MEMORY(sizeof *clock, "a clock");
    for (int i = 0; i < 2; i++) {
        TRY(create_slots(parallel, lane->device, &clock->turns[i]));
        TRY(yoke_device_event_create_timed(&clock->bases[i], lane->device));
    }
    TRY(yoke_device_event_record(clock->bases[0], YOKE_STREAM_COMPUTE));
    TRY(yoke_device_event_synchronize(clock->bases[0]));
    clock->base_ns = (double)yoke_trace_now();
    return YOKE_OK;
}

void yoke_clock_destroy(yoke_data_parallel *parallel, int lane) {
    yoke_clock *clock = parallel->lanes[lane].clock;
    for (int turn = 0; clock != NULL && turn < 2; turn++) {
        for (int i = 0; clock->turns[turn] != NULL && i < slot_count(parallel); i++) {
            yoke_device_event_destroy(clock->turns[turn][i].begin);
            yoke_device_event_destroy(clock->turns[turn][i].end);
        }
        free(clock->turns[turn]);
        yoke_device_event_destroy(clock->bases[turn]);
    }
    free(clock);
}
