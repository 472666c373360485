/* SPDX-License-Identifier: Apache-2.0 */
/* A recording for each model, number of rows and turn of the timeline, whose events it holds; where
 * a plan of the model computes the loss, one for steps whose outputs somebody reads, too. */
#include "parallel/stages/recorded.h"

#include <stdlib.h>

#include "parallel/stages/stage_table.h"

typedef struct recorded_size {
    const yoke_model *model;
    int rows;
    bool training, loss_only;
    yoke_recording *turns[2];
} recorded_size;

struct yoke_recordings {
    recorded_size *sizes;
    int count;
};

yoke_status yoke_recordings_create(yoke_lane *lane) {
    if (!yoke_device_records(lane->device)) return YOKE_OK;
    lane->recordings = calloc(1, sizeof *lane->recordings);
    return lane->recordings != NULL ? YOKE_OK
                                    : FAIL_MEMORY(sizeof *lane->recordings, "recorded steps");
}

void yoke_recordings_destroy(yoke_lane *lane) {
    struct yoke_recordings *recordings = lane->recordings;
    if (recordings == NULL) return;
    for (int i = 0; i < recordings->count; i++)
        for (int turn = 0; turn < 2; turn++)
            yoke_recording_destroy(recordings->sizes[i].turns[turn]);
    free(recordings->sizes);
    free(recordings);
}

static bool is_loss_only(const yoke_step *step, int index) {
    return step->flight.loss_only && yoke_replica_joins_loss(step->lanes[index].replica);
}

static recorded_size *find_size(const yoke_step *step, int index, int rows, bool training) {
    struct yoke_recordings *recordings = step->lanes[index].recordings;
    for (int i = 0; recordings != NULL && i < recordings->count; i++) {
        recorded_size *size = &recordings->sizes[i];
        if (size->model == step->model && size->rows == rows && size->training == training &&
            size->loss_only == is_loss_only(step, index))
            return size;
    }
    return NULL;
}

/* Recording. */

typedef struct record_job {
    yoke_step *step;
    int rows; /* of the micro-batch; of the shard where it is queued */
    bool training;
    int lane;
} record_job;

static yoke_status queue_shard(void *context) {
    const record_job *job = context;
    yoke_step *step = job->step;
    const yoke_lane_events *events = &step->lanes[job->lane].events;
    TRY(yoke_run_bar(step, &yoke_bar_forward, job->lane, YOKE_NO_BUCKET));
    TRY(yoke_run_bar(step, &yoke_bar_loss, job->lane, YOKE_NO_BUCKET));
    TRY(yoke_device_event_record(events->losses, YOKE_STREAM_COMPUTE));
    for (int segment = 0; job->training && segment < step->flat->bucket_count; segment++) {
        TRY(yoke_run_bar(step, &yoke_bar_backward, job->lane, segment));
        TRY(yoke_device_event_record(events->buckets[segment], YOKE_STREAM_COMPUTE));
    }
    return YOKE_OK;
}

static yoke_status add_size(struct yoke_recordings *recordings, const record_job *job,
                            recorded_size **size) {
    size_t bytes = ((size_t)recordings->count + 1) * sizeof *recordings->sizes;
    recorded_size *sizes = realloc(recordings->sizes, bytes);
    if (sizes == NULL) return FAIL_MEMORY(bytes, "recorded steps");
    recordings->sizes = sizes;
    *size = &sizes[recordings->count++];
    **size = (recorded_size){.model = job->step->model,
                             .rows = job->rows,
                             .training = job->training,
                             .loss_only = is_loss_only(job->step, job->lane)};
    return YOKE_OK;
}

static yoke_status record_shard(int index, void *context) {
    record_job job = *(const record_job *)context;
    yoke_lane *lane = &job.step->lanes[index];
    int turn = job.step->watch.turn;
    job.rows = yoke_deal_rows(job.step, job.rows, index).rows;
    job.lane = index;
    if (job.rows == 0) return YOKE_OK;
    recorded_size *size = find_size(job.step, index, job.rows, job.training);
    if (size == NULL) TRY(add_size(lane->recordings, &job, &size));
    if (size->turns[turn] != NULL) return YOKE_OK;
    yoke_shard in_flight = lane->shard;
    lane->shard.rows = job.rows;
    yoke_status status =
        yoke_replica_record(lane->replica, job.rows, job.training, job.step->flight.loss_only,
                            queue_shard, &job, &size->turns[turn]);
    lane->shard = in_flight;
    return status;
}

static bool is_recorded(const yoke_step *step, int rows, bool training) {
    for (int k = 0; k < step->count; k++) {
        int shard = yoke_deal_rows(step, rows, k).rows;
        const recorded_size *size = find_size(step, k, shard, training);
        if (shard > 0 && (size == NULL || size->turns[0] == NULL || size->turns[1] == NULL))
            return false;
    }
    return true;
}

yoke_status yoke_record_lanes(yoke_step *step, int rows, bool training, bool loss_only) {
    record_job job = {.step = step, .rows = rows, .training = training};
    const yoke_data_parallel_options *options = &step->options;
    /* classic's loss on the root lies between forward and backward, and the sum of micro-batches
     * between segments: such steps run stage by stage. So do rounds, whose shards are not those of
     * a batch of their own. */
    bool in_pieces = yoke_steps_by_phases(step) || options->accumulate > 1;
    if (step->lanes[0].recordings == NULL || step->shards.rounds > 1) return YOKE_OK;
    if (training && in_pieces) return YOKE_OK;
    int turn = step->watch.turn;
    bool in_training = step->flight.training, outputs_unread = step->flight.loss_only;
    yoke_status status = YOKE_OK;
    step->flight.training = training;
    step->flight.loss_only = loss_only;
    bool recorded = is_recorded(step, rows, training);
    for (int i = 0; i < 2 && status == YOKE_OK && !recorded; i++) {
        step->watch.turn = i;
        status = yoke_apply(step, step->count, "forward", record_shard, &job);
    }
    step->watch.turn = turn;
    step->flight.training = in_training;
    step->flight.loss_only = outputs_unread;
    return status;
}

/* Running. */

yoke_status yoke_lane_replay(yoke_step *step, int index, yoke_exchange *exchange, bool *replayed) {
    const yoke_lane *lane = &step->lanes[index];
    bool training = step->flight.training;
    int buckets = training ? step->flat->bucket_count : 0;
    const recorded_size *size = find_size(step, index, lane->shard.rows, training);
    yoke_recording *recording = size != NULL ? size->turns[step->watch.turn] : NULL;
    *replayed = recording != NULL;
    if (recording == NULL) return YOKE_OK;
    yoke_plan_step plan_step = yoke_lane_plan_step(step, index);
    TRY(yoke_replica_begin(lane->replica, lane->shard.rows, training, &plan_step));
    TRY(yoke_recording_run(recording));
    yoke_replay_bar(step, &yoke_bar_forward, index, YOKE_NO_BUCKET);
    yoke_replay_bar(step, &yoke_bar_loss, index, YOKE_NO_BUCKET);
    for (int bucket = 0; bucket < buckets; bucket++)
        yoke_replay_bar(step, &yoke_bar_backward, index, bucket);
    for (int bucket = 0; exchange != NULL && bucket < buckets; bucket++)
        TRY(yoke_exchange_ready(exchange, index, bucket));
    return YOKE_OK;
}
