/* What each worker does with its own shard: forward, loss, backward segment by segment. What it
 * queues alone is what recorded.c records. */
#include "parallel/engine.h"

/* The sum of what the rows give, over all ranks, is the mean over the whole batch; or over each
 * rank's rows and then over ranks. */
yoke_plan_step yoke_step_of(const yoke_data_parallel *parallel, int replica) {
    int rows = parallel->options.mean_of_ranks ? parallel->batch_rows * parallel->world
                                               : parallel->whole_rows;
    return (yoke_plan_step){
        .seed = parallel->options.seed,
        .step = parallel->steps,
        .first_row = (uint64_t)(parallel->first_row + parallel->micro_first +
                                parallel->shards[replica].first),
        .loss_scale = 1.0f / (float)rows,
    };
}

yoke_status yoke_queue_forward(yoke_data_parallel *parallel, int replica, int rows, bool training) {
    yoke_stage_span span = {.stage = YOKE_STAGE_FORWARD, .lane = replica};
    yoke_plan_step step = yoke_step_of(parallel, replica);
    TRY(yoke_stage_begin(parallel, &span));
    TRY(yoke_replica_forward(parallel->replicas[replica], rows, training, &step));
    return yoke_stage_end(parallel, &span);
}

yoke_status yoke_queue_loss(yoke_data_parallel *parallel, int replica) {
    yoke_stage_span span = {.stage = YOKE_STAGE_LOSS, .lane = replica};
    yoke_plan_step step = yoke_step_of(parallel, replica);
    TRY(yoke_stage_begin(parallel, &span));
    TRY(yoke_replica_loss(parallel->replicas[replica], &step));
    yoke_device *device = yoke_devices_at(parallel->devices, replica);
    const yoke_replica_memory *memory = yoke_replica_memory_of(parallel->replicas[replica]);
    TRY(yoke_device_download(device, YOKE_STREAM_COMPUTE, &parallel->loss_sums[replica],
                             memory->loss_sum, sizeof(double)));
    TRY(yoke_device_download(device, YOKE_STREAM_COMPUTE, &parallel->corrects[replica],
                             memory->correct, sizeof(int32_t)));
    TRY(yoke_stage_end(parallel, &span));
    return yoke_device_event_record(parallel->events[replica].losses, YOKE_STREAM_COMPUTE);
}

yoke_status yoke_await_weights(yoke_data_parallel *parallel, int replica) {
    return yoke_device_event_wait(parallel->events[replica].published,
                                  yoke_devices_at(parallel->devices, replica), YOKE_STREAM_COMPUTE);
}

yoke_status yoke_forward_shard(yoke_data_parallel *parallel, int replica) {
    int rows = parallel->shards[replica].rows;
    if (rows == 0) return YOKE_OK;
    TRY(yoke_await_weights(parallel, replica));
    return yoke_queue_forward(parallel, replica, rows, parallel->training);
}

yoke_status yoke_loss_shard(yoke_data_parallel *parallel, int replica) {
    return parallel->shards[replica].rows > 0 ? yoke_queue_loss(parallel, replica) : YOKE_OK;
}

/* Whether an earlier micro-batch left a gradient of this replica in `accumulated`. All but the last
 * are cut as the first is; the last, being smaller, may keep more replicas busy than they did: 5
 * rows on 4 devices are 2, 2, 1 and 4 rows are 1, 1, 1, 1. */
static bool has_accumulated(const yoke_data_parallel *parallel, int replica) {
    int rows = yoke_shard_rows(parallel->batch_rows, parallel->parts, 0);
    return parallel->micro > 0 && yoke_shard_rows(rows, parallel->count, replica) > 0;
}

/* Gradients of earlier micro-batches wait in `accumulated`: the first is copied there, later ones
 * are added, and the last one's gradient takes the sum bucket by bucket. */
static yoke_status accumulate_bucket(yoke_data_parallel *parallel, int replica,
                                     yoke_bucket bucket) {
    float *sum = parallel->accumulated[replica] + bucket.offset;
    const yoke_replica_memory *memory = yoke_replica_memory_of(parallel->replicas[replica]);
    float *gradient = memory->gradients + bucket.offset;
    yoke_device *device = yoke_devices_at(parallel->devices, replica);
    bool last = parallel->micro == parallel->micros - 1;
    const float *both[] = {sum, gradient};
    if (has_accumulated(parallel, replica))
        return yoke_device_sum(device, YOKE_STREAM_COMPUTE, last ? gradient : sum, both, 2,
                               bucket.elements);
    if (last) return YOKE_OK;
    return yoke_device_copy(device, YOKE_STREAM_COMPUTE, sum, device, gradient,
                            bucket.elements * sizeof *sum);
}

/* A replica whose shard is empty in the last micro-batch still has what it accumulated before. */
static yoke_status idle_bucket(yoke_data_parallel *parallel, int replica, yoke_bucket bucket) {
    bool last = parallel->micro == parallel->micros - 1;
    if (!last || !has_accumulated(parallel, replica)) return YOKE_OK;
    const yoke_replica_memory *memory = yoke_replica_memory_of(parallel->replicas[replica]);
    yoke_device *device = yoke_devices_at(parallel->devices, replica);
    return yoke_device_copy(device, YOKE_STREAM_COMPUTE, memory->gradients + bucket.offset, device,
                            parallel->accumulated[replica] + bucket.offset,
                            bucket.elements * sizeof(float));
}

yoke_status yoke_queue_segment(yoke_data_parallel *parallel, int replica, int segment) {
    yoke_stage_span span = {.stage = YOKE_STAGE_BACKWARD, .lane = replica, .bucket = segment};
    yoke_plan_step step = yoke_step_of(parallel, replica);
    TRY(yoke_stage_begin(parallel, &span));
    TRY(yoke_replica_backward_segment(parallel->replicas[replica], segment, &step));
    if (parallel->micros > 1)
        TRY(accumulate_bucket(parallel, replica, parallel->flat->buckets[segment]));
    return yoke_stage_end(parallel, &span);
}

yoke_status yoke_backward_shard(yoke_data_parallel *parallel, int replica,
                                yoke_bucket_ready ready) {
    const yoke_flat *flat = parallel->flat;
    bool idle = parallel->shards[replica].rows == 0;
    for (int segment = 0; segment < flat->bucket_count; segment++) {
        TRY(idle ? idle_bucket(parallel, replica, flat->buckets[segment])
                 : yoke_queue_segment(parallel, replica, segment));
        if (ready != NULL) TRY(ready(parallel, replica, segment));
    }
    return YOKE_OK;
}

static yoke_status forward_job(int replica, void *context) {
    return yoke_forward_shard(context, replica);
}

static yoke_status loss_job(int replica, void *context) {
    return yoke_loss_shard(context, replica);
}

static yoke_status backward_job(int replica, void *context) {
    return yoke_backward_shard(context, replica, NULL);
}

yoke_status yoke_forward_replicas(yoke_data_parallel *parallel, bool training) {
    TRY(yoke_check_progress(parallel, "yoke_forward_replicas", YOKE_STAGE_SCATTER,
                            YOKE_STAGE_BACKWARD));
    parallel->training = training;
    parallel->losses_known = false;
    parallel->input_gradients = false;
    parallel->progress = YOKE_STAGE_SCATTER;
    if (training) parallel->buffers_version++; /* the root's running statistics move */
    if (training) parallel->shared_buffers = false;
    TRY(yoke_apply(parallel, YOKE_STAGE_FORWARD, forward_job));
    if (training) parallel->batches_tracked++;
    parallel->progress = YOKE_STAGE_FORWARD;
    return YOKE_OK;
}

yoke_status yoke_loss_replicas(yoke_data_parallel *parallel) {
    TRY(yoke_check_progress(parallel, "yoke_loss_replicas", YOKE_STAGE_FORWARD, YOKE_STAGE_LOSS));
    TRY(yoke_check_answers(parallel, &parallel->batch));
    TRY(yoke_apply(parallel, YOKE_STAGE_LOSS, loss_job));
    parallel->losses_known = true;
    parallel->progress = YOKE_STAGE_LOSS;
    return YOKE_OK;
}

/* Gradients of values take the place of values nobody needs any more: there is no second backward
 * without a forward. */
yoke_status yoke_backward_replicas(yoke_data_parallel *parallel) {
    TRY(yoke_check_progress(parallel, "yoke_backward_replicas", YOKE_STAGE_LOSS, YOKE_STAGE_LOSS));
    TRY(yoke_check_trained(parallel, "yoke_backward_replicas"));
    parallel->gradient_on_root = false;
    parallel->progress = YOKE_STAGE_SCATTER;
    TRY(yoke_apply(parallel, YOKE_STAGE_BACKWARD, backward_job));
    parallel->progress = YOKE_STAGE_BACKWARD;
    parallel->input_gradients = parallel->options.input_gradients;
    return YOKE_OK;
}
