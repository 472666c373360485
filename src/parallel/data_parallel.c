/* The steps as lists of stages: nn.DataParallel in its three schedules, and beside it
 * DistributedDataParallel. */
#include <math.h>

#include "parallel/engine.h"

/* One step of nn.DataParallel, in the order the data travels. */

static yoke_status classic_micro_batch(yoke_data_parallel *parallel, const yoke_batch *batch) {
    TRY(yoke_scatter_micro_batch(parallel, batch));
    TRY(yoke_replicate(parallel));
    TRY(yoke_forward_replicas(parallel, true));
    TRY(yoke_gather_to_root(parallel));
    TRY(yoke_loss_on_root(parallel));
    TRY(yoke_gather_scalars(parallel));
    TRY(yoke_check_losses(parallel));
    TRY(yoke_scatter_from_root(parallel));
    return yoke_backward_replicas(parallel);
}

static yoke_status step_classic(yoke_data_parallel *parallel, const yoke_batch *batch,
                                double learning_rate) {
    for (; parallel->micro < parallel->micros; parallel->micro++)
        TRY(classic_micro_batch(parallel, batch));
    TRY(yoke_reduce(parallel));
    return yoke_update(parallel, learning_rate);
}

/* The same arithmetic without the waits. */

static bool is_last_micro_batch(const yoke_data_parallel *parallel) {
    return parallel->micro == parallel->micros - 1;
}

/* DataParallel. Every replica: forward, loss, backward. In the last micro-batch a finished bucket
 * is announced; as soon as all replicas have it, it is reduced to the root, updated there and
 * published to the replicas. */
static yoke_status overlap_worker(int replica, void *context) {
    yoke_data_parallel *parallel = context;
    bool last = is_last_micro_batch(parallel);
    TRY(yoke_compute_shard(parallel, replica, last));
    return last ? yoke_exchange_finish(parallel, replica) : YOKE_OK;
}

/* DistributedDataParallel. Every rank, on its rows: forward, loss, backward. In the last
 * micro-batch (the others are under no_sync) a finished bucket is all-reduced between the ranks,
 * and each updates itself: there is no root and nothing to publish. On devices that queue this is
 * overlap_worker, whose exchange is then between the ranks. */
static yoke_status ddp_worker(int replica, void *context) {
    yoke_data_parallel *parallel = context;
    bool last = is_last_micro_batch(parallel);
    TRY(yoke_forward_shard(parallel, replica));
    TRY(yoke_loss_shard(parallel, replica));
    if (last) TRY(yoke_all_reduce_loss(parallel));
    TRY(yoke_backward_shard(parallel, replica, last ? yoke_all_reduce_ready : NULL));
    return last ? yoke_all_reduce_finish(parallel) : YOKE_OK;
}

/* After an exchange every replica holds the new weights: none is stale. */
static void publish_version(yoke_data_parallel *parallel) {
    parallel->weights_version++;
    for (int k = 0; k < parallel->count; k++)
        parallel->replica_weights[k] = parallel->weights_version;
    parallel->steps++;
}

static yoke_status overlap_micro_batch(yoke_data_parallel *parallel, const yoke_batch *batch,
                                       yoke_replica_job worker) {
    TRY(yoke_scatter_micro_batch(parallel, batch));
    TRY(yoke_replicate_stale(parallel, false));
    TRY(yoke_record_shards(parallel, parallel->batch.rows, true));
    TRY(yoke_apply(parallel, YOKE_STAGE_STEP, worker));
    parallel->batches_tracked++;
    parallel->buffers_version++;
    return yoke_gather_scalars(parallel);
}

static yoke_status begin_exchange(yoke_data_parallel *parallel, double learning_rate) {
    TRY(yoke_update_begin(parallel, learning_rate));
    yoke_exchange_begin(parallel);
    parallel->gradient_on_root = false;
    return YOKE_OK;
}

static yoke_status end_exchange(yoke_data_parallel *parallel) {
    TRY(parallel->queued ? yoke_queue_norm(parallel) : yoke_check_norm(parallel));
    publish_version(parallel);
    return YOKE_OK;
}

static yoke_status step_overlap(yoke_data_parallel *parallel, const yoke_batch *batch,
                                double learning_rate) {
    TRY(begin_exchange(parallel, learning_rate));
    for (; parallel->micro < parallel->micros; parallel->micro++) {
        TRY(overlap_micro_batch(parallel, batch, overlap_worker));
        TRY(yoke_check_losses(parallel));
    }
    return end_exchange(parallel);
}

static yoke_status ddp_micro_batches(yoke_data_parallel *parallel, const yoke_batch *batch) {
    yoke_replica_job worker = parallel->queued ? overlap_worker : ddp_worker;
    for (; parallel->micro < parallel->micros; parallel->micro++) {
        TRY(overlap_micro_batch(parallel, batch, worker));
        /* The last one's loss has been told to the others: all of them look at it together. */
        if (!is_last_micro_batch(parallel)) TRY(yoke_check_losses(parallel));
    }
    return YOKE_OK;
}

/* A rank without rows in this batch, or with rows that are good for nothing, goes through the
 * all-reduces all the same: the others count on it. */
static yoke_status step_ddp(yoke_data_parallel *parallel, const yoke_batch *batch,
                            double learning_rate) {
    TRY(begin_exchange(parallel, learning_rate));
    if (parallel->boards != NULL) yoke_shared_update_begin(parallel);
    parallel->shared_buffers = false; /* on all ranks, with rows or without */
    yoke_status status = ddp_micro_batches(parallel, batch);
    if (status == YOKE_ERROR_NUMERIC) parallel->result.loss = NAN;
    if (status != YOKE_OK && status != YOKE_ERROR_NUMERIC) return status;
    if (status != YOKE_OK || batch->rows == 0) TRY(yoke_all_reduce_idle(parallel));
    TRY(yoke_ranks_add_results(parallel));
    TRY(yoke_check_loss(parallel));
    return end_exchange(parallel);
}

static yoke_status step(yoke_data_parallel *parallel, const yoke_batch *batch,
                        double learning_rate) {
    if (parallel->ranks != NULL) return step_ddp(parallel, batch, learning_rate);
    return parallel->options.schedule == YOKE_SCHEDULE_CLASSIC
               ? step_classic(parallel, batch, learning_rate)
               : step_overlap(parallel, batch, learning_rate);
}

static yoke_status take_step(yoke_data_parallel *parallel, const yoke_batch *given,
                             double learning_rate, yoke_step_result *result) {
    yoke_batch batch;
    TRY(yoke_take_batch(parallel, given, true, &batch));
    TRY(yoke_check_result(result));
    uint64_t begin = yoke_trace_now(), number = parallel->steps;
    TRY(yoke_begin_batch(parallel, &batch, parallel->options.accumulate, true));
    TRY(yoke_guard_begin(parallel));
    yoke_status status = step(parallel, &batch, learning_rate);
    parallel->progress = YOKE_STAGE_LOAD;
    if (status != YOKE_OK) return yoke_guard_fail(parallel, status);
    parallel->input_gradients = parallel->options.input_gradients;
    yoke_trace_span(parallel->trace, 0, YOKE_STAGE_STEP, number, begin, 0);
    return yoke_finish_result(parallel, result);
}

yoke_status yoke_data_parallel_step(yoke_data_parallel *parallel, const yoke_batch *batch,
                                    double learning_rate, yoke_step_result *result) {
    return yoke_ranks_tell(parallel, take_step(parallel, batch, learning_rate, result));
}

/* Without learning, and by pieces. */

static yoke_status evaluate_worker(int replica, void *context) {
    return yoke_compute_shard(context, replica, false);
}

static yoke_status evaluate(yoke_data_parallel *parallel, const yoke_batch *batch) {
    TRY(yoke_begin_batch(parallel, batch, parallel->options.accumulate, false));
    TRY(yoke_ranks_share_buffers(parallel));
    for (; parallel->micro < parallel->micros; parallel->micro++) {
        TRY(yoke_scatter_micro_batch(parallel, batch));
        TRY(yoke_replicate(parallel));
        TRY(yoke_record_shards(parallel, parallel->batch.rows, false));
        TRY(yoke_apply(parallel, YOKE_STAGE_EVALUATE, evaluate_worker));
        TRY(yoke_gather_scalars(parallel));
    }
    return yoke_ranks_add_results(parallel);
}

static yoke_status evaluate_batch(yoke_data_parallel *parallel, const yoke_batch *given,
                                  yoke_step_result *result) {
    yoke_batch batch;
    TRY(yoke_take_batch(parallel, given, true, &batch));
    TRY(yoke_check_result(result));
    uint64_t begin = yoke_trace_now();
    yoke_status status = evaluate(parallel, &batch);
    parallel->progress = YOKE_STAGE_LOAD;
    TRY(status);
    yoke_trace_span(parallel->trace, 0, YOKE_STAGE_EVALUATE, parallel->steps, begin, 0);
    return yoke_finish_result(parallel, result);
}

yoke_status yoke_data_parallel_evaluate(yoke_data_parallel *parallel, const yoke_batch *batch,
                                        yoke_step_result *result) {
    return yoke_ranks_tell(parallel, evaluate_batch(parallel, batch, result));
}

yoke_status yoke_data_parallel_forward(yoke_data_parallel *parallel, const yoke_batch *batch,
                                       bool training, float *outputs) {
    TRY(yoke_scatter(parallel, batch));
    TRY(yoke_replicate(parallel));
    TRY(yoke_forward_replicas(parallel, training));
    return outputs != NULL ? yoke_gather_outputs(parallel, outputs) : YOKE_OK;
}

yoke_status yoke_data_parallel_backward(yoke_data_parallel *parallel,
                                        const float *output_gradients) {
    TRY(yoke_check_progress(parallel, "backward", YOKE_STAGE_FORWARD, YOKE_STAGE_LOSS));
    TRY(yoke_check_trained(parallel, "backward"));
    if (output_gradients != NULL)
        TRY(yoke_scatter_output_gradients(parallel, output_gradients));
    else
        TRY(yoke_loss_replicas(parallel));
    TRY(yoke_backward_replicas(parallel));
    return yoke_reduce(parallel);
}
