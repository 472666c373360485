/* nn.DataParallel: the steps of the three schedules as lists of stages. */
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

/* Forward, loss in the replica, backward; in the last micro-batch each finished bucket is
 * announced, and reduced, updated and published as soon as all replicas have it. */
static yoke_status overlap_worker(int replica, void *context) {
    yoke_data_parallel *parallel = context;
    bool last = parallel->micro == parallel->micros - 1;
    TRY(yoke_forward_shard(parallel, replica));
    TRY(yoke_loss_shard(parallel, replica));
    TRY(yoke_backward_shard(parallel, replica, last));
    return last ? yoke_exchange_finish(parallel, replica) : YOKE_OK;
}

/* After an exchange every replica holds the new weights: none is stale. */
static void publish_version(yoke_data_parallel *parallel) {
    parallel->weights_version++;
    for (int k = 0; k < parallel->count; k++)
        parallel->replica_weights[k] = parallel->weights_version;
    parallel->steps++;
}

static yoke_status step_overlap(yoke_data_parallel *parallel, const yoke_batch *batch,
                                double learning_rate) {
    TRY(yoke_update_begin(parallel, learning_rate));
    yoke_exchange_begin(parallel);
    parallel->gradient_on_root = false;
    for (; parallel->micro < parallel->micros; parallel->micro++) {
        TRY(yoke_scatter_micro_batch(parallel, batch));
        TRY(yoke_replicate_stale(parallel, false));
        TRY(yoke_apply(parallel, YOKE_STAGE_STEP, overlap_worker));
        parallel->batches_tracked++;
        parallel->buffers_version++;
        TRY(yoke_gather_scalars(parallel));
        TRY(yoke_check_losses(parallel));
    }
    TRY(parallel->queued ? yoke_queue_norm(parallel) : yoke_check_norm(parallel));
    publish_version(parallel);
    return YOKE_OK;
}

yoke_status yoke_data_parallel_step(yoke_data_parallel *parallel, const yoke_batch *batch,
                                    double learning_rate, yoke_step_result *result) {
    TRY(yoke_check_batch(parallel, batch, true));
    TRY(yoke_check_result(result));
    uint64_t begin = yoke_trace_now(), step = parallel->steps;
    yoke_begin_batch(parallel, batch->rows, parallel->options.accumulate, true);
    TRY(yoke_guard_begin(parallel));
    bool classic = parallel->options.schedule == YOKE_SCHEDULE_CLASSIC;
    yoke_status status = classic ? step_classic(parallel, batch, learning_rate)
                                 : step_overlap(parallel, batch, learning_rate);
    parallel->progress = YOKE_STAGE_LOAD;
    if (status != YOKE_OK) return yoke_guard_fail(parallel, status);
    yoke_trace_span(parallel->trace, 0, YOKE_STAGE_STEP, step, begin, 0);
    return yoke_finish_result(parallel, result);
}

/* Without learning, and by pieces. */

static yoke_status evaluate_worker(int replica, void *context) {
    TRY(yoke_forward_shard(context, replica));
    return yoke_loss_shard(context, replica);
}

static yoke_status evaluate(yoke_data_parallel *parallel, const yoke_batch *batch) {
    yoke_begin_batch(parallel, batch->rows, parallel->options.accumulate, false);
    for (; parallel->micro < parallel->micros; parallel->micro++) {
        TRY(yoke_scatter_micro_batch(parallel, batch));
        TRY(yoke_replicate(parallel));
        TRY(yoke_apply(parallel, YOKE_STAGE_EVALUATE, evaluate_worker));
        TRY(yoke_gather_scalars(parallel));
    }
    return YOKE_OK;
}

yoke_status yoke_data_parallel_evaluate(yoke_data_parallel *parallel, const yoke_batch *batch,
                                        yoke_step_result *result) {
    TRY(yoke_check_batch(parallel, batch, true));
    TRY(yoke_check_result(result));
    uint64_t begin = yoke_trace_now();
    yoke_status status = evaluate(parallel, batch);
    parallel->progress = YOKE_STAGE_LOAD;
    TRY(status);
    yoke_trace_span(parallel->trace, 0, YOKE_STAGE_EVALUATE, parallel->steps, begin, 0);
    return yoke_finish_result(parallel, result);
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
