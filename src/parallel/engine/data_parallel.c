/* SPDX-License-Identifier: Apache-2.0 */
/* A whole batch: checks, its schedule (schedules.c), the result. */
#include "parallel/engine/average.h"
#include "parallel/engine/batch_result.h"
#include "parallel/engine/entry.h"
#include "parallel/engine/failure.h"
#include "parallel/engine/schedules.h"
#include "parallel/stages/stages.h"

/* The loss of the host program, which may call the engine. */
static yoke_status call_host(yoke_step *step, const yoke_outputs *outputs, double *mean) {
    yoke_data_parallel *parallel = (yoke_data_parallel *)step;
    const yoke_custom_loss *loss = step->flight.host->loss;
    yoke_outside outside = yoke_step_out(parallel);
    yoke_error_forget();
    yoke_status status =
        yoke_error_of_host(loss->compute(loss->payload, outputs, mean), "custom_loss");
    return yoke_step_in(parallel, &outside, status);
}

/* A call that trains or evaluates. */
typedef struct whole_batch {
    bool training;
    double learning_rate;
    yoke_batch batch;
    yoke_host_loss host;
    yoke_step_result *result;
} whole_batch;

static yoke_status begin(yoke_data_parallel *parallel, const yoke_batch *given, whole_batch *call) {
    yoke_step *step = &parallel->step;
    bool own = call->host.loss != NULL;
    TRY(yoke_engine_check_trains(parallel, call->training));
    if (call->training) TRY(yoke_average_check(parallel));
    if (call->training) TRY(yoke_unsynced_check_step(step));
    if (own) TRY(yoke_custom_loss_take(&call->host, &given));
    TRY(yoke_flight_check(step, given, !own, &call->batch));
    TRY(yoke_result_check(call->result));
    TRY(yoke_flight_begin(step, &call->batch, false, call->training));
    call->host.call = call_host;
    step->flight.host = &call->host;
    step->flight.learning_rate = call->learning_rate;
    if (own) yoke_custom_loss_begin(step);
    return YOKE_OK;
}

/* The batch is the caller's again. */
static void end(yoke_step *step) {
    step->flight.progress = YOKE_STAGE_LOAD;
    step->flight.host = NULL;
}

static yoke_status store(yoke_step *step, const whole_batch *call) {
    if (call->host.loss != NULL) step->flight.result.correct = -1;
    return yoke_result_store(step, call->result);
}

static yoke_status train_batch(yoke_data_parallel *parallel, const yoke_batch *given,
                               whole_batch *call) {
    yoke_step *step = &parallel->step;
    yoke_span span = yoke_span_begin(YOKE_STAGE_STEP);
    yoke_status status = begin(parallel, given, call);
    bool recorded = call->host.loss == NULL && yoke_steps_are_recorded(step);
    if (status == YOKE_OK) status = yoke_guard_begin(step, recorded);
    if (status != YOKE_OK) {
        step->flight.host = NULL;
        return yoke_ranks_report(step, status);
    }
    parallel->is_torn = false;
    uint64_t number = span.step = step->steps;
    yoke_step_begins(step);
    status = yoke_run_schedule(step, yoke_training_schedule(step, call->host.loss != NULL));
    yoke_step_ended(step, number);
    end(step);
    if (step->steps < number) return status; /* an earlier step failed: both are undone */
    if (status != YOKE_OK) return yoke_ranks_report(step, yoke_step_failed(parallel, status));
    status = yoke_average_update(parallel);
    if (status != YOKE_OK) return yoke_ranks_report(step, status);
    step->gradient.of_inputs = step->options.input_gradients;
    yoke_span_end(step, 0, &span);
    return yoke_ranks_report(step, store(step, call));
}

yoke_status yoke_data_parallel_step(yoke_data_parallel *parallel, const yoke_batch *batch,
                                    double learning_rate, yoke_step_result *result) {
    whole_batch call = {.training = true, .learning_rate = learning_rate, .result = result};
    TRY(yoke_enter(parallel, "yoke_data_parallel_step"));
    return yoke_leave(parallel, train_batch(parallel, batch, &call));
}

yoke_status yoke_data_parallel_step_own(yoke_data_parallel *parallel, const yoke_batch *batch,
                                        double learning_rate, const yoke_custom_loss *loss,
                                        const yoke_output_rows *rows, yoke_step_result *result) {
    whole_batch call = {.training = true,
                        .learning_rate = learning_rate,
                        .host = {.loss = loss, .rows = rows},
                        .result = result};
    TRY(yoke_enter(parallel, "yoke_data_parallel_step"));
    return yoke_leave(parallel, train_batch(parallel, batch, &call));
}

/* Without learning. */

static yoke_status evaluate_batch(yoke_data_parallel *parallel, const yoke_batch *given,
                                  whole_batch *call) {
    yoke_step *step = &parallel->step;
    yoke_span span = yoke_span_begin(YOKE_STAGE_EVALUATE);
    TRY(begin(parallel, given, call));
    yoke_status status = yoke_run_schedule(step, yoke_evaluation_schedule(call->host.loss != NULL));
    end(step);
    TRY(status);
    yoke_span_end(step, 0, &span);
    return store(step, call);
}

yoke_status yoke_data_parallel_evaluate_outputs(yoke_data_parallel *parallel,
                                                const yoke_batch *batch, yoke_step_result *result,
                                                const yoke_output_rows *rows,
                                                const yoke_custom_loss *loss) {
    whole_batch call = {.host = {.loss = loss, .rows = rows}, .result = result};
    TRY(yoke_enter_settled(parallel, "yoke_data_parallel_evaluate"));
    yoke_status status = evaluate_batch(parallel, batch, &call);
    return yoke_leave(parallel, yoke_ranks_report(&parallel->step, status));
}

yoke_status yoke_data_parallel_evaluate(yoke_data_parallel *parallel, const yoke_batch *batch,
                                        yoke_step_result *result) {
    return yoke_data_parallel_evaluate_outputs(parallel, batch, result, NULL, NULL);
}
