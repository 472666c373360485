/* SPDX-License-Identifier: Apache-2.0 */
/* The schedules: each is a list of stages. classic is nn.DataParallel phase by phase, also in the
 * schedule python, whose stages cost what Python's do (interpreter.c); overlap is the same
 * arithmetic without the waits, and it is DistributedDataParallel, too: only what the exchange does
 * with a finished bucket differs. */
#include "parallel/engine/average.h"
#include "parallel/engine/entry.h"
#include "parallel/engine/failure.h"
#include "parallel/engine/result.h"
#include "parallel/stages/stages.h"

#define STAGES (const yoke_stage_def *const[])

static const yoke_schedule_def classic = {
    .begin = STAGES{NULL},
    .micro_batch = STAGES{&yoke_stage_scatter, &yoke_stage_replicate, &yoke_stage_forward,
                          &yoke_stage_gather_to_root, &yoke_stage_loss_on_root, &yoke_stage_gather,
                          &yoke_stage_check_loss, &yoke_stage_scatter_back, &yoke_stage_backward,
                          &yoke_stage_keep_statistics, NULL},
    .end = STAGES{&yoke_stage_reduce, &yoke_stage_update, NULL},
};

/* overlap, sharded and DDP. */

static yoke_status begin_exchange(yoke_step *step) {
    step->reach.gradient = YOKE_LOSS_OUTPUT;
    return yoke_exchange_begin(step->exchange, step->flight.learning_rate);
}

static yoke_status begin_lanes(yoke_step *step) {
    TRY(yoke_record_lanes(step, step->flight.batch.rows, true));
    yoke_count_forward(step);
    return YOKE_OK;
}

/* Every lane, in DataParallel as in DDP. Only the last micro-batch has an exchange; the others
 * accumulate (DDP's no_sync). DataParallel reduces a finished bucket to the root, updates it there
 * and publishes it; DDP all-reduces it, and every rank updates itself. */
static yoke_status train_lane(yoke_step *step, int lane) {
    yoke_exchange *exchange = yoke_flight_is_last(&step->flight) ? step->exchange : NULL;
    yoke_recording *recording = yoke_lane_recording(step, lane);
    if (recording != NULL) { /* forward, loss and backward in one launch */
        TRY(yoke_lane_replay(step, lane, recording, exchange));
    } else {
        TRY(yoke_lane_forward_or_nan(step, lane));
        TRY(yoke_lane_loss(step, lane));
        TRY(yoke_exchange_loss(exchange, lane));
        TRY(yoke_lane_backward(step, lane, exchange));
    }
    return exchange != NULL ? exchange->kind->finish(exchange, lane) : YOKE_OK;
}

static yoke_status settle(yoke_step *step) {
    return yoke_settle(step, step->steps);
}

static yoke_status end_exchange(yoke_step *step) {
    yoke_exchange_complete(step->exchange);
    return yoke_ranks_add_results(step);
}

static yoke_status check_gradient(yoke_step *step) {
    TRY(yoke_exchange_check(step->exchange));
    yoke_count_update(step);
    return YOKE_OK;
}

static const yoke_stage_def begins = {.stage = YOKE_STAGE_EXCHANGE, .work = begin_exchange};
static const yoke_stage_def train = {.stage = YOKE_STAGE_BACKWARD,
                                     .what = "step",
                                     .place = YOKE_ON_LANES,
                                     .begin = begin_lanes,
                                     .lane = train_lane};
static const yoke_stage_def settles = {.stage = YOKE_STAGE_EXCHANGE, .work = settle};
static const yoke_stage_def ends = {.stage = YOKE_STAGE_EXCHANGE, .work = end_exchange};
static const yoke_stage_def checks = {.stage = YOKE_STAGE_EXCHANGE, .work = check_gradient};

static const yoke_schedule_def overlap = {
    .begin = STAGES{&begins, NULL},
    .micro_batch = STAGES{&yoke_stage_scatter, &yoke_stage_replicate_weights, &train,
                          &yoke_stage_keep_statistics, &yoke_stage_gather, &settles, NULL},
    .end = STAGES{&ends, &yoke_stage_check_loss, &checks, NULL},
};

/* classic with the loss on the host. All ranks learn of a loss that is not finite before they
 * reduce. */
static const yoke_stage_def adds_results = {.stage = YOKE_STAGE_GATHER,
                                            .work = yoke_ranks_add_results};

static const yoke_schedule_def own_loss = {
    .begin = STAGES{NULL},
    .micro_batch =
        STAGES{&yoke_stage_scatter, &yoke_stage_replicate, &yoke_stage_forward,
               &yoke_stage_own_loss, &yoke_stage_scatter_own, &yoke_stage_backward, NULL},
    .end =
        STAGES{&adds_results, &yoke_stage_check_loss, &yoke_stage_reduce, &yoke_stage_update, NULL},
};

static const yoke_schedule_def *schedule_for(const yoke_step *step, bool own) {
    return own ? &own_loss : yoke_steps_by_phases(step) ? &classic : &overlap;
}

/* Checks, the step in its schedule, the result. */

/* The loss of the host program, which may call the engine. */
static yoke_status call_host(yoke_step *step, const yoke_outputs *outputs, double *mean) {
    yoke_data_parallel *parallel = (yoke_data_parallel *)step;
    const yoke_own_loss *loss = step->flight.host->loss;
    yoke_outside outside = yoke_step_out(parallel);
    yoke_error_forget();
    yoke_status status =
        yoke_error_of_host(loss->compute(loss->payload, outputs, mean), "own_loss");
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
    if (own) TRY(yoke_own_loss_take(&call->host, &given));
    TRY(yoke_flight_check(step, given, !own, &call->batch));
    TRY(yoke_result_check(call->result));
    TRY(yoke_flight_begin(step, &call->batch, false, call->training));
    call->host.call = call_host;
    step->flight.host = &call->host;
    step->flight.learning_rate = call->learning_rate;
    if (own) yoke_own_loss_begin(step);
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
    if (status == YOKE_OK) status = yoke_guard_begin(step);
    if (status != YOKE_OK) {
        step->flight.host = NULL;
        return yoke_ranks_report(step, status);
    }
    parallel->is_torn = false;
    uint64_t number = span.step = step->steps;
    yoke_step_begins(step);
    status = yoke_run_schedule(step, schedule_for(step, call->host.loss != NULL));
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
                                        double learning_rate, const yoke_own_loss *loss,
                                        const yoke_output_rows *rows, yoke_step_result *result) {
    whole_batch call = {.training = true,
                        .learning_rate = learning_rate,
                        .host = {.loss = loss, .rows = rows},
                        .result = result};
    TRY(yoke_enter(parallel, "yoke_data_parallel_step"));
    return yoke_leave(parallel, train_batch(parallel, batch, &call));
}

/* Without learning. */

static yoke_status prepare_lanes(yoke_step *step) {
    return yoke_record_lanes(step, step->flight.batch.rows, false);
}

static yoke_status evaluate_lane(yoke_step *step, int lane) {
    yoke_recording *recording = yoke_lane_recording(step, lane);
    if (recording != NULL) return yoke_lane_replay(step, lane, recording, NULL);
    TRY(yoke_lane_forward(step, lane));
    return yoke_lane_loss(step, lane);
}

static const yoke_stage_def shares_buffers = {.stage = YOKE_STAGE_EVALUATE,
                                              .work = yoke_ranks_share_buffers};
static const yoke_stage_def evaluates = {.stage = YOKE_STAGE_EVALUATE,
                                         .place = YOKE_ON_REPLICAS,
                                         .begin = prepare_lanes,
                                         .lane = evaluate_lane};

static const yoke_schedule_def evaluation = {
    .begin = STAGES{&shares_buffers, NULL},
    .micro_batch = STAGES{&yoke_stage_scatter, &yoke_stage_replicate, &evaluates,
                          &yoke_stage_gather, &yoke_stage_gather_wanted, NULL},
    .end = STAGES{&adds_results, NULL},
};

static const yoke_schedule_def evaluation_by_host = {
    .begin = STAGES{&shares_buffers, NULL},
    .micro_batch = STAGES{&yoke_stage_scatter, &yoke_stage_replicate, &yoke_stage_forward,
                          &yoke_stage_own_loss, NULL},
    .end = STAGES{&adds_results, NULL},
};

static yoke_status evaluate(yoke_data_parallel *parallel, const yoke_batch *given,
                            whole_batch *call) {
    yoke_step *step = &parallel->step;
    yoke_span span = yoke_span_begin(YOKE_STAGE_EVALUATE);
    TRY(begin(parallel, given, call));
    yoke_status status =
        yoke_run_schedule(step, call->host.loss != NULL ? &evaluation_by_host : &evaluation);
    end(step);
    TRY(status);
    yoke_span_end(step, 0, &span);
    return store(step, call);
}

yoke_status yoke_data_parallel_evaluate_outputs(yoke_data_parallel *parallel,
                                                const yoke_batch *batch, yoke_step_result *result,
                                                const yoke_output_rows *rows,
                                                const yoke_own_loss *loss) {
    whole_batch call = {.host = {.loss = loss, .rows = rows}, .result = result};
    TRY(yoke_enter_settled(parallel, "yoke_data_parallel_evaluate"));
    yoke_status status = evaluate(parallel, batch, &call);
    return yoke_leave(parallel, yoke_ranks_report(&parallel->step, status));
}

yoke_status yoke_data_parallel_evaluate(yoke_data_parallel *parallel, const yoke_batch *batch,
                                        yoke_step_result *result) {
    return yoke_data_parallel_evaluate_outputs(parallel, batch, result, NULL, NULL);
}
