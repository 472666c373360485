/* Recorded steps: what a shard's forward, loss and backward queue becomes one launch, with the
 * events of its stages, its loss and its buckets inside. There is one recording for each number of
 * rows and each half of the clocks, whose events lie in it. */
#include <stdlib.h>

#include "parallel/engine.h"

typedef struct recorded_size {
    int rows;
    bool training;
    yoke_recording *turns[2];
} recorded_size;

/* Of one replica. */
struct yoke_recorded {
    recorded_size *sizes;
    int count, capacity;
};

yoke_status yoke_recorded_create(yoke_data_parallel *parallel) {
    size_t count = (size_t)parallel->count;
    if (!yoke_device_records(yoke_devices_at(parallel->devices, 0))) return YOKE_OK;
    parallel->recorded = calloc(count, sizeof *parallel->recorded);
    if (parallel->recorded == NULL)
        return FAIL_MEMORY(count * sizeof *parallel->recorded, "recorded steps");
    return YOKE_OK;
}

void yoke_recorded_destroy(yoke_data_parallel *parallel) {
    for (int k = 0; parallel->recorded != NULL && k < parallel->count; k++) {
        for (int i = 0; i < parallel->recorded[k].count; i++)
            for (int turn = 0; turn < 2; turn++)
                yoke_recording_destroy(parallel->recorded[k].sizes[i].turns[turn]);
        free(parallel->recorded[k].sizes);
    }
    free(parallel->recorded);
}

static recorded_size *find_size(const yoke_data_parallel *parallel, int replica, int rows,
                                bool training) {
    if (parallel->recorded == NULL) return NULL;
    for (int i = 0; i < parallel->recorded[replica].count; i++) {
        recorded_size *size = &parallel->recorded[replica].sizes[i];
        if (size->rows == rows && size->training == training) return size;
    }
    return NULL;
}

/* Recording. */

typedef struct record_job {
    yoke_data_parallel *parallel;
    int rows; /* of the micro-batch; of the shard where it is queued */
    bool training;
    int replica;
} record_job;

static yoke_status queue_shard(void *context) {
    const record_job *job = context;
    yoke_data_parallel *parallel = job->parallel;
    TRY(yoke_queue_forward(parallel, job->replica, job->rows, job->training));
    TRY(yoke_queue_loss(parallel, job->replica));
    for (int segment = 0; job->training && segment < parallel->flat->bucket_count; segment++) {
        TRY(yoke_queue_segment(parallel, job->replica, segment));
        TRY(yoke_exchange_mark(parallel, job->replica, segment));
    }
    return YOKE_OK;
}

static yoke_status add_size(struct yoke_recorded *recorded, const record_job *job,
                            recorded_size **size) {
    if (recorded->count == recorded->capacity) {
        int capacity = 2 * recorded->capacity + 2;
        void *grown = realloc(recorded->sizes, (size_t)capacity * sizeof *recorded->sizes);
        if (grown == NULL) return FAIL_MEMORY((size_t)capacity * sizeof **size, "recorded steps");
        recorded->sizes = grown;
        recorded->capacity = capacity;
    }
    *size = &recorded->sizes[recorded->count++];
    **size = (recorded_size){.rows = job->rows, .training = job->training};
    return YOKE_OK;
}

static yoke_status record_shard(int replica, void *context) {
    record_job job = *(const record_job *)context;
    yoke_data_parallel *parallel = job.parallel;
    job.rows = yoke_shard_rows(job.rows, parallel->count, replica);
    job.replica = replica;
    if (job.rows == 0) return YOKE_OK;
    recorded_size *size = find_size(parallel, replica, job.rows, job.training);
    if (size == NULL) TRY(add_size(&parallel->recorded[replica], &job, &size));
    if (size->turns[parallel->turn] != NULL) return YOKE_OK;
    return yoke_replica_record(parallel->replicas[replica], job.rows, job.training, queue_shard,
                               &job, &size->turns[parallel->turn]);
}

static bool is_recorded(const yoke_data_parallel *parallel, int rows, bool training) {
    for (int k = 0; k < parallel->count; k++) {
        int shard = yoke_shard_rows(rows, parallel->count, k);
        const recorded_size *size = find_size(parallel, k, shard, training);
        if (shard > 0 && (size == NULL || size->turns[0] == NULL || size->turns[1] == NULL))
            return false;
    }
    return true;
}

/* Between classic's forward and its backward lies the root's loss, and between the segments of
 * micro-batches their sum. */
static bool runs_in_pieces(const yoke_data_parallel *parallel, bool training) {
    const yoke_data_parallel_options *options = &parallel->options;
    bool pieces = options->schedule == YOKE_SCHEDULE_CLASSIC || options->accumulate > 1;
    return parallel->recorded == NULL || (training && pieces);
}

yoke_status yoke_record_shards(yoke_data_parallel *parallel, int rows, bool training) {
    record_job job = {.parallel = parallel, .rows = rows, .training = training};
    if (runs_in_pieces(parallel, training) || is_recorded(parallel, rows, training)) return YOKE_OK;
    int turn = parallel->turn;
    yoke_status status = YOKE_OK;
    for (int i = 0; i < 2 && status == YOKE_OK; i++) {
        parallel->turn = i;
        status = yoke_apply_with(parallel, YOKE_STAGE_FORWARD, record_shard, &job);
    }
    parallel->turn = turn;
    return status;
}

/* Running. */

static void note_stages(yoke_data_parallel *parallel, int replica) {
    yoke_stage_span span = {.stage = YOKE_STAGE_FORWARD, .lane = replica};
    yoke_stage_queued(parallel, &span);
    span.stage = YOKE_STAGE_LOSS;
    yoke_stage_queued(parallel, &span);
    span.stage = YOKE_STAGE_BACKWARD;
    for (; parallel->training && span.bucket < parallel->flat->bucket_count; span.bucket++)
        yoke_stage_queued(parallel, &span);
}

static yoke_status run_recorded(yoke_data_parallel *parallel, int replica,
                                yoke_recording *recording, bool announce) {
    yoke_plan_step step = yoke_step_of(parallel, replica);
    int rows = parallel->shards[replica].rows;
    TRY(yoke_await_weights(parallel, replica));
    TRY(yoke_replica_begin(parallel->replicas[replica], rows, parallel->training, &step));
    TRY(yoke_recording_run(recording));
    note_stages(parallel, replica);
    for (int bucket = 0; announce && bucket < parallel->flat->bucket_count; bucket++)
        TRY(yoke_exchange_release(parallel, replica, bucket));
    return YOKE_OK;
}

yoke_status yoke_compute_shard(yoke_data_parallel *parallel, int replica, bool announce) {
    int rows = parallel->shards[replica].rows;
    const recorded_size *size = find_size(parallel, replica, rows, parallel->training);
    if (size != NULL) return run_recorded(parallel, replica, size->turns[parallel->turn], announce);
    TRY(yoke_forward_shard(parallel, replica));
    TRY(yoke_loss_shard(parallel, replica));
    if (!parallel->training) return YOKE_OK;
    return yoke_backward_shard(parallel, replica, announce ? yoke_exchange_announce : NULL);
}
