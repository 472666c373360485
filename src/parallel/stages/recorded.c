/* SPDX-License-Identifier: Apache-2.0 */
/* A recording for each model, number of rows, way out of staging memory, and turn; where a plan of
 * the model computes the loss, one for steps whose outputs somebody reads, too. Two take turns:
 * each holds the timeline's events of its turn, and writes to the guards of its turn. */
#include "parallel/stages/recorded.h"

#include <stdlib.h>
#include <string.h>

#include "parallel/stages/scatter.h"
#include "parallel/stages/stage_table.h"

typedef struct recorded_size {
    const yoke_model *model;
    int rows;
    bool training, loss_only;
    yoke_unpacking unpacking; /* of its shard */
    yoke_recording *turns[2];
} recorded_size;

/* Batches of as many rows that come out of staging memory in different ways, with second labels or
 * without: more than these run stage by stage. */
#define WAYS 4

struct yoke_recordings {
    recorded_size *sizes;
    int count;
};

yoke_status yoke_recordings_create(yoke_lane *lane) {
    if (!yoke_device_records(lane->device)) return YOKE_OK;
    lane->recordings = yoke_calloc(1, sizeof *lane->recordings);
    return lane->recordings != NULL ? YOKE_OK
                                    : FAIL_MEMORY(sizeof *lane->recordings, "recorded steps");
}

void yoke_recordings_destroy(yoke_lane *lane) {
    struct yoke_recordings *recordings = lane->recordings;
    if (recordings == NULL) return;
    for (int i = 0; i < recordings->count; i++)
        for (int turn = 0; turn < 2; turn++)
            yoke_recording_destroy(recordings->sizes[i].turns[turn]);
    yoke_free(recordings->sizes);
    yoke_free(recordings);
}

static bool is_loss_only(const yoke_step *step, int index) {
    return step->flight.loss_only && yoke_replica_joins_loss(step->lanes[index].replica);
}

/* Of a step as the one in flight. */
static bool has_rows(const recorded_size *size, const yoke_step *step, int index, bool training) {
    return size->model == step->model && size->rows == step->lanes[index].shard.rows &&
           size->training == training && size->loss_only == is_loss_only(step, index);
}

/* ways: how many of these rows there are. */
static recorded_size *find_size(const yoke_step *step, int index, bool training, int *ways) {
    struct yoke_recordings *recordings = step->lanes[index].recordings;
    yoke_unpacking unpacking;
    yoke_unpacking_of(step, index, &unpacking);
    *ways = 0;
    for (int i = 0; recordings != NULL && i < recordings->count; i++) {
        recorded_size *size = &recordings->sizes[i];
        if (!has_rows(size, step, index, training)) continue;
        if (memcmp(&size->unpacking, &unpacking, sizeof unpacking) == 0) return size;
        ++*ways;
    }
    return NULL;
}

/* Recording. */

typedef struct record_job {
    yoke_step *step;
    bool training;
    int lane;
} record_job;

/* A device alone has the exchange in its recording: no other stream waits for a bucket. */
static yoke_status queue_training(yoke_step *step, int index) {
    const yoke_lane_events *events = &step->lanes[index].events;
    bool whole = step->exchange->slots > 0;
    for (int segment = 0; segment < step->flat->bucket_count; segment++) {
        TRY(yoke_run_bar(step, &yoke_bar_backward, index, segment));
        if (!whole) TRY(yoke_device_event_record(events->buckets[segment], YOKE_STREAM_COMPUTE));
    }
    return whole ? yoke_exchange_record(step->exchange) : YOKE_OK;
}

static yoke_status queue_shard(void *context) {
    const record_job *job = context;
    yoke_step *step = job->step;
    const yoke_lane *lane = &step->lanes[job->lane];
    yoke_unpacking unpacking;
    yoke_unpacking_of(step, job->lane, &unpacking);
    if (job->training && job->lane == 0) TRY(yoke_guard_keep(step));
    TRY(yoke_unpacking_run(lane, &unpacking));
    TRY(yoke_run_bar(step, &yoke_bar_forward, job->lane, YOKE_NO_BUCKET));
    TRY(yoke_run_bar(step, &yoke_bar_loss, job->lane, YOKE_NO_BUCKET));
    TRY(yoke_device_event_record(lane->events.losses, YOKE_STREAM_COMPUTE));
    return job->training ? queue_training(step, job->lane) : YOKE_OK;
}

static yoke_status add_size(const yoke_step *step, int index, bool training, recorded_size **size) {
    const yoke_lane *lane = &step->lanes[index];
    struct yoke_recordings *recordings = lane->recordings;
    size_t bytes = ((size_t)recordings->count + 1) * sizeof *recordings->sizes;
    recorded_size *sizes = yoke_realloc(recordings->sizes, bytes);
    if (sizes == NULL) return FAIL_MEMORY(bytes, "recorded steps");
    recordings->sizes = sizes;
    *size = &sizes[recordings->count++];
    **size = (recorded_size){.model = step->model,
                             .rows = lane->shard.rows,
                             .training = training,
                             .loss_only = is_loss_only(step, index)};
    yoke_unpacking_of(step, index, &(*size)->unpacking);
    return YOKE_OK;
}

static yoke_status record_shard(int index, void *context) {
    record_job job = *(const record_job *)context;
    yoke_step *step = job.step;
    const yoke_lane *lane = &step->lanes[index];
    int turn = step->watch.turn, ways = 0;
    job.lane = index;
    if (lane->shard.rows == 0) return YOKE_OK;
    recorded_size *size = find_size(step, index, job.training, &ways);
    if (size == NULL && ways == WAYS) return YOKE_OK;
    if (size == NULL) TRY(add_size(step, index, job.training, &size));
    if (size->turns[turn] != NULL) return YOKE_OK;
    return yoke_replica_record(lane->replica, lane->shard.rows, job.training,
                               step->flight.loss_only, queue_shard, &job, &size->turns[turn]);
}

static bool is_recorded(const yoke_step *step, bool training) {
    for (int k = 0; k < step->count; k++) {
        int ways = 0;
        if (step->lanes[k].shard.rows == 0) continue;
        const recorded_size *size = find_size(step, k, training, &ways);
        if (size == NULL ? ways < WAYS : size->turns[0] == NULL || size->turns[1] == NULL)
            return false;
    }
    return true;
}

bool yoke_steps_are_recorded(const yoke_step *step) {
    /* classic's loss on the root lies between forward and backward, and the sum of micro-batches
     * between segments: such steps run stage by stage. So do rounds, whose shards are not those of
     * a batch of their own. */
    bool in_pieces = yoke_steps_by_phases(step) || step->options.accumulate > 1;
    return step->lanes[0].recordings != NULL && step->shards.rounds <= 1 && !in_pieces;
}

yoke_status yoke_record_lanes(yoke_step *step, bool training) {
    record_job job = {.step = step, .training = training};
    if (step->lanes[0].recordings == NULL || step->shards.rounds > 1) return YOKE_OK;
    if (training && !yoke_steps_are_recorded(step)) return YOKE_OK;
    if (is_recorded(step, training)) return YOKE_OK;
    int turn = step->watch.turn, guard = step->guard;
    yoke_status status = YOKE_OK;
    for (int i = 0; i < 2 && status == YOKE_OK; i++) {
        step->watch.turn = step->guard = i;
        status = yoke_apply(step, step->count, "forward", record_shard, &job);
    }
    step->watch.turn = turn;
    step->guard = guard;
    return status;
}

/* Floats and labels, or targets, of the host: what most programs bring. Pixels come with a decoding
 * that nobody knows yet. */
static yoke_batch usual_batch(const yoke_step *step, const float **more_inputs, int rows) {
    const yoke_lane *root = &step->lanes[0];
    const float *floats = root->staging.rows; /* any: nobody reads there */
    for (int k = 0; k < YOKE_INPUTS_LIMIT; k++)
        more_inputs[k] = floats;
    return (yoke_batch){.rows = rows,
                        .inputs = floats,
                        .more_inputs = more_inputs,
                        .labels = step->limits.labels ? root->staging.labels : NULL,
                        .targets = floats};
}

yoke_status yoke_record_usual(yoke_step *step, int rows, bool training) {
    const float *more_inputs[YOKE_INPUTS_LIMIT];
    yoke_shard shards[YOKE_DEVICES_LIMIT];
    yoke_flight in_flight = step->flight;
    if (step->lanes[0].recordings == NULL || step->options.pixels) return YOKE_OK;
    step->flight.training = training;
    step->flight.loss_only = true;
    step->flight.locations = (yoke_locations){{NULL}, NULL, NULL, true};
    step->flight.batch = usual_batch(step, more_inputs, rows);
    for (int k = 0; k < step->count; k++) {
        shards[k] = step->lanes[k].shard;
        step->lanes[k].shard = yoke_deal_rows(step, rows, k);
    }
    yoke_status status = yoke_record_lanes(step, training);
    for (int k = 0; k < step->count; k++)
        step->lanes[k].shard = shards[k];
    step->flight = in_flight;
    return status;
}

/* Running. */

static yoke_status run_recording(yoke_step *step, int index, yoke_recording *recording) {
    yoke_lane *lane = &step->lanes[index];
    yoke_plan_step plan_step = yoke_lane_plan_step(step, index);
    TRY(yoke_replica_begin(lane->replica, lane->shard.rows, step->flight.training, &plan_step));
    TRY(yoke_recording_run(recording));
    lane->packed = false;
    lane->reader = lane->events.losses;
    if (step->flight.training && index == 0) step->guards[step->guard].holds = true;
    return YOKE_OK;
}

yoke_status yoke_lane_replay(yoke_step *step, int index, yoke_exchange *exchange, bool *replayed) {
    bool training = step->flight.training;
    int buckets = training ? step->flat->bucket_count : 0, ways;
    const recorded_size *size =
        step->lanes[index].shard.rows > 0 ? find_size(step, index, training, &ways) : NULL;
    yoke_recording *recording = size != NULL ? size->turns[step->watch.turn] : NULL;
    *replayed = recording != NULL;
    if (recording == NULL && training && index == 0 && !step->guards[step->guard].holds)
        return yoke_guard_keep(step);
    if (recording == NULL) return YOKE_OK;
    TRY(run_recording(step, index, recording));
    yoke_replay_bar(step, &yoke_bar_forward, index, YOKE_NO_BUCKET);
    yoke_replay_bar(step, &yoke_bar_loss, index, YOKE_NO_BUCKET);
    for (int bucket = 0; bucket < buckets; bucket++)
        yoke_replay_bar(step, &yoke_bar_backward, index, bucket);
    if (exchange != NULL && exchange->slots > 0) {
        exchange->replayed = true;
        exchange->kind->replayed(exchange);
    }
    for (int bucket = 0; exchange != NULL && !exchange->replayed && bucket < buckets; bucket++)
        TRY(yoke_exchange_ready(exchange, index, bucket));
    return YOKE_OK;
}
