/* SPDX-License-Identifier: Apache-2.0 */
/* The stages by hand, and forward and backward made of them. Each refuses to run on what an earlier
 * stage has not made, or a later one has overwritten. */
#include "parallel/stages.h"

#include "parallel/engine.h"

/* The other ranks wait for this one: in batch norms that are synchronised, or in reduce. */
static yoke_status leave(yoke_data_parallel *parallel, yoke_status status) {
    return yoke_leave(parallel, yoke_ranks_report(parallel, status));
}

static yoke_status forward_job(int lane, void *context) {
    return yoke_lane_forward(context, lane);
}

static yoke_status loss_job(int lane, void *context) {
    return yoke_lane_loss(context, lane);
}

static yoke_status backward_job(int lane, void *context) {
    return yoke_lane_backward(context, lane, NULL);
}

static yoke_status forward_replicas(yoke_data_parallel *parallel, bool training) {
    TRY(yoke_engine_check_trains(parallel, training));
    TRY(yoke_flight_require(parallel, "yoke_forward_replicas", YOKE_STAGE_SCATTER,
                            YOKE_STAGE_BACKWARD));
    yoke_flight *flight = &parallel->flight;
    if (training && !flight->is_weighed)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "a forward in training mode of a batch that came for evaluation: nobody has "
                    "counted what its labels weigh; call yoke_scatter first");
    flight->training = training;
    flight->losses_known = false;
    flight->reached = YOKE_LOSS_OUTPUT; /* unless a backward has gradients of its own */
    flight->progress = YOKE_STAGE_SCATTER;
    parallel->input_gradients = false;
    if (training) yoke_count_forward(parallel);
    TRY(yoke_apply_forward(parallel, "forward", forward_job, parallel));
    flight->progress = YOKE_STAGE_FORWARD;
    return YOKE_OK;
}

yoke_status yoke_forward_replicas(yoke_data_parallel *parallel, bool training) {
    TRY(yoke_enter_settled(parallel, "yoke_forward_replicas"));
    return leave(parallel, forward_replicas(parallel, training));
}

static yoke_status loss_replicas(yoke_data_parallel *parallel) {
    TRY(yoke_flight_require(parallel, "yoke_loss_replicas", YOKE_STAGE_FORWARD, YOKE_STAGE_LOSS));
    TRY(yoke_flight_require_labels(parallel, &parallel->flight.batch));
    TRY(yoke_apply(parallel, parallel->count, "loss", loss_job, parallel));
    parallel->flight.losses_known = true;
    parallel->flight.progress = YOKE_STAGE_LOSS;
    return YOKE_OK;
}

yoke_status yoke_loss_replicas(yoke_data_parallel *parallel) {
    TRY(yoke_enter_settled(parallel, "yoke_loss_replicas"));
    return leave(parallel, loss_replicas(parallel));
}

/* Gradients of values overwrite values that no later layer reads: there is no second backward
 * without a forward. */
static yoke_status backward_replicas(yoke_data_parallel *parallel) {
    TRY(yoke_flight_require(parallel, "yoke_backward_replicas", YOKE_STAGE_LOSS, YOKE_STAGE_LOSS));
    TRY(yoke_flight_require_training(parallel, "yoke_backward_replicas"));
    parallel->gradient_on_root = false;
    parallel->flight.progress = YOKE_STAGE_SCATTER;
    yoke_reach_add(parallel);
    yoke_unsynced_begin(parallel);
    TRY(yoke_apply(parallel, parallel->count, "backward", backward_job, parallel));
    TRY(yoke_unsynced_add(parallel));
    parallel->flight.progress = YOKE_STAGE_BACKWARD;
    parallel->input_gradients = parallel->options.input_gradients;
    return YOKE_OK;
}

yoke_status yoke_backward_replicas(yoke_data_parallel *parallel) {
    TRY(yoke_enter_settled(parallel, "yoke_backward_replicas"));
    return leave(parallel, backward_replicas(parallel));
}

/* The loss gradient was divided by the weight of the whole batch at its source, so the sum over
 * replicas is plain, whatever their shards. Reducing twice must not add twice. Gradients that
 * no_sync has added up outlive their batch: another one may be in flight. */
static yoke_status reduce(yoke_data_parallel *parallel) {
    yoke_flight *flight = &parallel->flight;
    if (!yoke_unsynced_is_whole(parallel))
        TRY(yoke_flight_require(parallel, "yoke_reduce", YOKE_STAGE_BACKWARD, YOKE_STAGE_BACKWARD));
    if (parallel->gradient_on_root) return YOKE_OK;
    TRY(yoke_unsynced_take(parallel));
    yoke_stage progress = flight->progress;
    if (progress == YOKE_STAGE_BACKWARD) flight->progress = YOKE_STAGE_SCATTER;
    TRY(yoke_reach_agree(parallel));
    TRY(parallel->exchange->kind->reduce(parallel->exchange));
    flight->progress = progress;
    parallel->gradient_on_root = true;
    parallel->gradient_is_used = false;
    return YOKE_OK;
}

yoke_status yoke_reduce(yoke_data_parallel *parallel) {
    TRY(yoke_enter_settled(parallel, "yoke_reduce"));
    return leave(parallel, reduce(parallel));
}

static yoke_status update(yoke_data_parallel *parallel, double learning_rate) {
    if (!parallel->gradient_on_root)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "yoke_update: no gradient is on the root; call yoke_reduce first");
    if (parallel->gradient_is_used)
        return FAIL(YOKE_ERROR_ARGUMENT, "yoke_update: this gradient is in the weights already; "
                                         "run backward and yoke_reduce before the next update");
    TRY(yoke_average_check(parallel));
    TRY(yoke_exchange_set_rate(parallel->exchange, learning_rate));
    TRY(parallel->exchange->kind->update(parallel->exchange));
    parallel->gradient_is_used = true;
    parallel->weights_version++;
    parallel->steps++;
    return yoke_average_update(parallel);
}

yoke_status yoke_update(yoke_data_parallel *parallel, double learning_rate) {
    TRY(yoke_enter_settled(parallel, "yoke_update"));
    return yoke_leave(parallel, update(parallel, learning_rate));
}

static yoke_status forward(yoke_data_parallel *parallel, const yoke_batch *batch, bool training,
                           float *const *outputs) {
    TRY(yoke_scatter_for(parallel, batch, training));
    TRY(yoke_replicate(parallel));
    TRY(yoke_forward_replicas(parallel, training));
    return yoke_gather_outputs(parallel, outputs);
}

yoke_status yoke_data_parallel_forward(yoke_data_parallel *parallel, const yoke_batch *batch,
                                       bool training, float *outputs) {
    float *const first[YOKE_OUTPUTS_LIMIT] = {outputs};
    TRY(yoke_enter_settled(parallel, "yoke_data_parallel_forward"));
    return leave(parallel, forward(parallel, batch, training, first));
}

yoke_status yoke_data_parallel_forward_outputs(yoke_data_parallel *parallel,
                                               const yoke_batch *batch, bool training,
                                               float *const *outputs) {
    TRY(yoke_pointer_check(outputs, "outputs"));
    TRY(yoke_enter_settled(parallel, "yoke_data_parallel_forward_outputs"));
    return leave(parallel, forward(parallel, batch, training, outputs));
}

/* With gradients of outputs, or with those of the model's loss where `gradients` is NULL. */
static yoke_status backward(yoke_data_parallel *parallel, const float *const *gradients) {
    TRY(yoke_flight_require(parallel, "backward", YOKE_STAGE_FORWARD, YOKE_STAGE_LOSS));
    TRY(yoke_flight_require_training(parallel, "backward"));
    if (gradients != NULL)
        TRY(yoke_scatter_output_gradients(parallel, gradients));
    else
        TRY(yoke_loss_replicas(parallel));
    TRY(yoke_backward_replicas(parallel));
    return parallel->unsynced.on ? YOKE_OK : yoke_reduce(parallel);
}

yoke_status yoke_data_parallel_backward(yoke_data_parallel *parallel,
                                        const float *output_gradients) {
    const float *const first[YOKE_OUTPUTS_LIMIT] = {output_gradients};
    TRY(yoke_enter_settled(parallel, "yoke_data_parallel_backward"));
    return leave(parallel, backward(parallel, output_gradients != NULL ? first : NULL));
}

yoke_status yoke_data_parallel_backward_outputs(yoke_data_parallel *parallel,
                                                const float *const *output_gradients) {
    TRY(yoke_pointer_check(output_gradients, "output_gradients"));
    TRY(yoke_enter_settled(parallel, "yoke_data_parallel_backward_outputs"));
    return leave(parallel, backward(parallel, output_gradients));
}
