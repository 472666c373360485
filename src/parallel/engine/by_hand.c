/* SPDX-License-Identifier: Apache-2.0 */
/* The stages by hand, and forward and backward made of them. Each refuses to run on what an earlier
 * stage has not made, or a later one has overwritten. */
#include "parallel/engine/average.h"
#include "parallel/engine/batch_result.h"
#include "parallel/engine/entry.h"
#include "parallel/stages/stages.h"

/* The other ranks wait for this one: in batch norms that are synchronised, or in reduce. */
static yoke_status leave(yoke_data_parallel *parallel, yoke_status status) {
    return yoke_leave(parallel, yoke_ranks_report(&parallel->step, status));
}

/* training: of the forward that follows. Without it the ranks do not count what their labels weigh:
 * no gradient follows. */
static yoke_status scatter(yoke_step *step, const yoke_batch *given, bool training) {
    yoke_batch batch;
    TRY(yoke_flight_check(step, given, false, &batch));
    if (batch.rows > step->limits.micro_rows)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "a batch of %d rows at once: this engine computes up to %d at a time",
                    batch.rows, step->limits.micro_rows);
    TRY(yoke_flight_begin(step, &batch, true, training));
    yoke_status status = yoke_run_stage(step, &yoke_stage_scatter);
    step->flight.whole = NULL;
    return status == YOKE_OK ? yoke_host_stream_follow_lanes(step) : status;
}

yoke_status yoke_data_parallel_scatter(yoke_data_parallel *parallel, const yoke_batch *given) {
    TRY(yoke_enter_settled(parallel, "yoke_data_parallel_scatter"));
    return leave(parallel, scatter(&parallel->step, given, true));
}

yoke_status yoke_data_parallel_replicate(yoke_data_parallel *parallel) {
    TRY(yoke_enter_settled(parallel, "yoke_data_parallel_replicate"));
    return yoke_leave(parallel, yoke_run_stage(&parallel->step, &yoke_stage_replicate));
}

static yoke_status forward_replicas(yoke_data_parallel *parallel, bool training) {
    yoke_step *step = &parallel->step;
    TRY(yoke_engine_check_trains(parallel, training));
    TRY(yoke_flight_require(step, "yoke_data_parallel_forward_replicas", YOKE_STAGE_SCATTER,
                            YOKE_STAGE_BACKWARD));
    if (training && !step->flight.is_weighed)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "a forward in training mode of a batch that came for evaluation: nobody has "
                    "counted what its labels weigh; call yoke_data_parallel_scatter first");
    step->flight.training = training;
    return yoke_run_stage(step, &yoke_stage_forward);
}

yoke_status yoke_data_parallel_forward_replicas(yoke_data_parallel *parallel, bool training) {
    TRY(yoke_enter_settled(parallel, "yoke_data_parallel_forward_replicas"));
    return leave(parallel, forward_replicas(parallel, training));
}

static yoke_status loss_replicas(yoke_step *step) {
    TRY(yoke_flight_require(step, "yoke_data_parallel_loss_replicas", YOKE_STAGE_FORWARD,
                            YOKE_STAGE_LOSS));
    TRY(yoke_flight_require_labels(step, &step->flight.batch));
    return yoke_run_stage(step, &yoke_stage_loss);
}

yoke_status yoke_data_parallel_loss_replicas(yoke_data_parallel *parallel) {
    TRY(yoke_enter_settled(parallel, "yoke_data_parallel_loss_replicas"));
    return leave(parallel, loss_replicas(&parallel->step));
}

/* Gradients of values overwrite values that no later layer reads: there is no second backward
 * without a forward. */
static yoke_status backward_replicas(yoke_step *step) {
    TRY(yoke_flight_require(step, "yoke_data_parallel_backward_replicas", YOKE_STAGE_LOSS,
                            YOKE_STAGE_LOSS));
    TRY(yoke_flight_require_training(step, "yoke_data_parallel_backward_replicas"));
    return yoke_run_stage(step, &yoke_stage_backward);
}

yoke_status yoke_data_parallel_backward_replicas(yoke_data_parallel *parallel) {
    TRY(yoke_enter_settled(parallel, "yoke_data_parallel_backward_replicas"));
    return leave(parallel, backward_replicas(&parallel->step));
}

static yoke_status reduce(yoke_step *step) {
    if (!yoke_unsynced_is_whole(step))
        TRY(yoke_flight_require(step, "yoke_data_parallel_reduce", YOKE_STAGE_BACKWARD,
                                YOKE_STAGE_BACKWARD));
    return yoke_run_stage(step, &yoke_stage_reduce);
}

yoke_status yoke_data_parallel_reduce(yoke_data_parallel *parallel) {
    TRY(yoke_enter_settled(parallel, "yoke_data_parallel_reduce"));
    return leave(parallel, reduce(&parallel->step));
}

static yoke_status update(yoke_data_parallel *parallel, double learning_rate) {
    yoke_step *step = &parallel->step;
    if (!step->gradient.on_root)
        return FAIL(YOKE_ERROR_ARGUMENT, "yoke_data_parallel_update: no gradient is on the root; "
                                         "call yoke_data_parallel_reduce first");
    if (step->gradient.is_used)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "yoke_data_parallel_update: this gradient is in the weights already; "
                    "run backward and yoke_data_parallel_reduce before the next update");
    TRY(yoke_average_check(parallel));
    step->flight.learning_rate = learning_rate;
    TRY(yoke_run_stage(step, &yoke_stage_update));
    return yoke_average_update(parallel);
}

yoke_status yoke_data_parallel_update(yoke_data_parallel *parallel, double learning_rate) {
    TRY(yoke_enter_settled(parallel, "yoke_data_parallel_update"));
    return yoke_leave(parallel, update(parallel, learning_rate));
}

static yoke_status gather(yoke_step *step, yoke_step_result *result) {
    if (!step->flight.losses_known)
        return FAIL(YOKE_ERROR_ARGUMENT, "yoke_data_parallel_gather: no loss is known; call "
                                         "yoke_data_parallel_loss_replicas first");
    step->flight.result = yoke_flight_no_result(step->flight.own);
    TRY(yoke_run_stage(step, &yoke_stage_gather));
    return yoke_result_store(step, result);
}

yoke_status yoke_data_parallel_gather(yoke_data_parallel *parallel, yoke_step_result *result) {
    TRY(yoke_enter_settled(parallel, "yoke_data_parallel_gather"));
    return yoke_leave(parallel, gather(&parallel->step, result));
}

yoke_status yoke_data_parallel_read_input_gradients(yoke_data_parallel *parallel,
                                                    float *gradients) {
    TRY(yoke_enter_settled(parallel, "yoke_data_parallel_read_input_gradients"));
    return yoke_leave(parallel, yoke_gather_input_gradients(&parallel->step, 0, gradients));
}

yoke_status yoke_data_parallel_read_input_gradients_of(yoke_data_parallel *parallel, int input,
                                                       float *gradients) {
    TRY(yoke_enter_settled(parallel, "yoke_data_parallel_read_input_gradients_of"));
    return yoke_leave(parallel, yoke_gather_input_gradients(&parallel->step, input, gradients));
}

/* no_sync. */

yoke_status yoke_data_parallel_no_sync(yoke_data_parallel *parallel, bool on) {
    TRY(yoke_enter_settled(parallel, "yoke_data_parallel_no_sync"));
    return yoke_leave(parallel, yoke_unsynced_turn(&parallel->step, on));
}

yoke_status yoke_data_parallel_zero_grad(yoke_data_parallel *parallel) {
    TRY(yoke_enter_settled(parallel, "yoke_data_parallel_zero_grad"));
    yoke_unsynced_forget(&parallel->step);
    return yoke_leave(parallel, YOKE_OK);
}

/* forward and backward. */

static yoke_status forward(yoke_data_parallel *parallel, const yoke_batch *batch, bool training,
                           float *const *outputs) {
    yoke_step *step = &parallel->step;
    TRY(scatter(step, batch, training));
    TRY(yoke_run_stage(step, &yoke_stage_replicate));
    TRY(forward_replicas(parallel, training));
    return yoke_gather_outputs(step, outputs);
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
static yoke_status backward(yoke_step *step, const float *const *gradients) {
    TRY(yoke_flight_require(step, "backward", YOKE_STAGE_FORWARD, YOKE_STAGE_LOSS));
    TRY(yoke_flight_require_training(step, "backward"));
    TRY(gradients != NULL ? yoke_scatter_output_gradients(step, gradients) : loss_replicas(step));
    TRY(backward_replicas(step));
    return step->gradient.unsynced.on ? YOKE_OK : reduce(step);
}

yoke_status yoke_data_parallel_backward(yoke_data_parallel *parallel,
                                        const float *output_gradients) {
    const float *const first[YOKE_OUTPUTS_LIMIT] = {output_gradients};
    TRY(yoke_enter_settled(parallel, "yoke_data_parallel_backward"));
    return leave(parallel, backward(&parallel->step, output_gradients != NULL ? first : NULL));
}

yoke_status yoke_data_parallel_backward_outputs(yoke_data_parallel *parallel,
                                                const float *const *output_gradients) {
    TRY(yoke_pointer_check(output_gradients, "output_gradients"));
    TRY(yoke_enter_settled(parallel, "yoke_data_parallel_backward_outputs"));
    return leave(parallel, backward(&parallel->step, output_gradients));
}

/* A job of the host program on every replica. */

typedef struct host_job {
    yoke_replica_job job;
    void *context;
} host_job;

/* The host program's job cannot set an error text: an older text of this thread must not pass for
 * its own. */
static yoke_status run_host_job(int lane, void *context) {
    const host_job *host = context;
    unsigned before = yoke_error_serial();
    yoke_status status = host->job(lane, host->context);
    if (status == YOKE_OK || yoke_error_serial() != before) return status;
    return FAIL(status, "the job answered %s", yoke_status_name(status));
}

yoke_status yoke_parallel_apply(yoke_data_parallel *parallel, yoke_replica_job job, void *context) {
    host_job host = {.job = job, .context = context};
    if (job == NULL) return FAIL(YOKE_ERROR_ARGUMENT, "yoke_parallel_apply: the job is NULL");
    TRY(yoke_enter_settled(parallel, "yoke_parallel_apply"));
    yoke_step *step = &parallel->step;
    return yoke_leave(parallel,
                      yoke_apply(step, step->count, "parallel_apply", run_host_job, &host));
}
