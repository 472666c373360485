/* SPDX-License-Identifier: Apache-2.0 */
/* On devices that queue: events at begin and end of each bar, and a base event of known time. */
#include <stdlib.h>

#include "parallel/observers/observers.h"

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

static int slot_count(const yoke_step *step) {
    return FIRST_SEGMENT_SLOT + 2 * step->flat->bucket_count;
}

static int slot_of(const yoke_step *step, const yoke_span *span) {
    switch (span->stage) {
    case YOKE_STAGE_SCATTER:
        return SCATTER_SLOT;
    case YOKE_STAGE_FORWARD:
        return FORWARD_SLOT;
    case YOKE_STAGE_LOSS:
        return LOSS_SLOT;
    case YOKE_STAGE_BACKWARD:
        return FIRST_SEGMENT_SLOT + span->bucket;
    default:
        return FIRST_SEGMENT_SLOT + step->flat->bucket_count + span->bucket;
    }
}

static yoke_stream stream_of(const yoke_step *step, yoke_stage stage) {
    if (stage == YOKE_STAGE_SCATTER) return YOKE_STREAM_COPY;
    return stage == YOKE_STAGE_EXCHANGE ? step->exchange_stream : YOKE_STREAM_COMPUTE;
}

static timed_slot *slot_for(const yoke_step *step, int lane, const yoke_span *span) {
    return &step->lanes[lane].clock->turns[step->watch.turn][slot_of(step, span)];
}

static yoke_track track_of(yoke_stage stage) {
    if (stage == YOKE_STAGE_SCATTER) return YOKE_TRACK_COPY;
    return stage == YOKE_STAGE_EXCHANGE ? YOKE_TRACK_COMMUNICATION : YOKE_TRACK_COMPUTE;
}

/* The device has queued the bar: its times are read later. */
static void after_replay(yoke_step *step, int lane, yoke_open_bar *open) {
    if (step->lanes[lane].clock == NULL) return;
    timed_slot *slot = slot_for(step, lane, &open->span);
    slot->pending = true;
    slot->span = open->span;
    slot->span.track = track_of(open->span.stage);
}

static yoke_status before_bar(yoke_step *step, int lane, yoke_open_bar *open) {
    if (!open->bar->on_stream || step->lanes[lane].clock == NULL) return YOKE_OK;
    return yoke_device_event_record(slot_for(step, lane, &open->span)->begin,
                                    stream_of(step, open->span.stage));
}

/* Inside a recording a bar only places its events. */
static yoke_status after_bar(yoke_step *step, int lane, yoke_open_bar *open) {
    if (!open->bar->on_stream || step->lanes[lane].clock == NULL) return YOKE_OK;
    if (!yoke_device_is_recording(step->lanes[lane].device)) after_replay(step, lane, open);
    return yoke_device_event_record(slot_for(step, lane, &open->span)->end,
                                    stream_of(step, open->span.stage));
}

/* Reading. */

/* Events of a turn passed long ago, unless the lane has had no rows since. */
static yoke_status read_turn(yoke_step *step, int lane, int turn) {
    const struct yoke_clock *clock = step->lanes[lane].clock;
    for (int i = 0; i < slot_count(step); i++) {
        timed_slot *slot = &clock->turns[turn][i];
        double begin_ms, spent_ms;
        if (!slot->pending) continue;
        slot->pending = false;
        TRY(yoke_device_event_synchronize(slot->end));
        TRY(yoke_device_event_elapsed(clock->bases[clock->base], slot->begin, &begin_ms));
        TRY(yoke_device_event_elapsed(slot->begin, slot->end, &spent_ms));
        slot->span.begin_ns = (uint64_t)(clock->base_ns + begin_ms * 1e6);
        slot->span.end_ns = slot->span.begin_ns + (uint64_t)(spent_ms * 1e6);
        yoke_trace_past_span(step->watch.trace, lane, &slot->span);
        yoke_speeds_add(step, lane, slot->span.stage, spent_ms * 1e-3);
    }
    return YOKE_OK;
}

static yoke_status move_base(const yoke_step *step, struct yoke_clock *clock) {
    if (clock->rebasing) {
        double milliseconds;
        TRY(yoke_device_event_synchronize(clock->bases[1 - clock->base])); /* as in read_turn */
        TRY(yoke_device_event_elapsed(clock->bases[clock->base], clock->bases[1 - clock->base],
                                      &milliseconds));
        clock->base_ns += milliseconds * 1e6;
        clock->base = 1 - clock->base;
    }
    clock->rebasing = step->watch.turns % BASE_TURNS == BASE_TURNS - 1;
    if (!clock->rebasing) return YOKE_OK;
    return yoke_device_event_record(clock->bases[1 - clock->base], YOKE_STREAM_COMPUTE);
}

static yoke_status after_stage(yoke_step *step, const yoke_stage_def *stage) {
    yoke_watch *watch = &step->watch;
    if (!stage->ends_batch) return YOKE_OK;
    watch->turn = 1 - watch->turn;
    for (int k = 0; k < step->count && step->lanes[k].clock != NULL; k++) {
        TRY(read_turn(step, k, watch->turn));
        TRY(move_base(step, step->lanes[k].clock));
    }
    watch->turns++;
    return YOKE_OK;
}

yoke_status yoke_timeline_read(yoke_step *step) {
    TRY(yoke_lanes_synchronize(step));
    for (int k = 0; k < step->count && step->lanes[k].clock != NULL; k++) {
        TRY(read_turn(step, k, 1 - step->watch.turn));
        TRY(read_turn(step, k, step->watch.turn));
    }
    return YOKE_OK;
}

/* Life. */

static yoke_status create_slots(const yoke_step *step, yoke_device *device, timed_slot **slots) {
    size_t count = (size_t)slot_count(step);
    *slots = yoke_calloc(count, sizeof **slots);
    if (*slots == NULL) return FAIL_MEMORY(count * sizeof **slots, "the spans of a batch");
    for (size_t i = 0; i < count; i++) {
        TRY(yoke_device_event_create_timed(&(*slots)[i].begin, device));
        TRY(yoke_device_event_create_timed(&(*slots)[i].end, device));
    }
    return YOKE_OK;
}

yoke_status yoke_clock_create(yoke_step *step, int index) {
    yoke_lane *lane = &step->lanes[index];
    struct yoke_clock *clock = lane->clock = yoke_calloc(1, sizeof *clock);
    if (clock == NULL) return FAIL_MEMORY(sizeof *clock, "a clock");
    for (int i = 0; i < 2; i++) {
        TRY(create_slots(step, lane->device, &clock->turns[i]));
        TRY(yoke_device_event_create_timed(&clock->bases[i], lane->device));
    }
    TRY(yoke_device_event_record(clock->bases[0], YOKE_STREAM_COMPUTE));
    TRY(yoke_device_event_synchronize(clock->bases[0]));
    clock->base_ns = (double)yoke_trace_now();
    return YOKE_OK;
}

void yoke_clock_destroy(yoke_step *step, int lane) {
    struct yoke_clock *clock = step->lanes[lane].clock;
    for (int turn = 0; clock != NULL && turn < 2; turn++) {
        for (int i = 0; clock->turns[turn] != NULL && i < slot_count(step); i++) {
            yoke_device_event_destroy(clock->turns[turn][i].begin);
            yoke_device_event_destroy(clock->turns[turn][i].end);
        }
        yoke_free(clock->turns[turn]);
        yoke_device_event_destroy(clock->bases[turn]);
    }
    yoke_free(clock);
}

const yoke_observer yoke_observe_timeline = {.after_stage = after_stage,
                                             .before_bar = before_bar,
                                             .after_bar = after_bar,
                                             .after_replay = after_replay};
