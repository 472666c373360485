/* SPDX-License-Identifier: Apache-2.0 */
/* The steps as lists of stages. step_classic is nn.DataParallel phase by phase, also in the
 * schedule python, whose stages cost what Python's do (interpreter.c); step_overlap is the same
 * arithmetic without the waits, and it is DistributedDataParallel, too: only what the exchange does
 * with a finished bucket differs. */
#include "parallel/engine.h"
#include "parallel/own_loss.h"
#include "parallel/recorded.h"
#include "parallel/stages.h"

static yoke_status step_classic(yoke_data_parallel *parallel, const yoke_batch *batch,
                                double learning_rate) {
    yoke_flight *flight = &parallel->flight;
    for (; flight->micro < flight->micros; flight->micro++) {
        TRY(yoke_scatter_micro_batch(parallel, batch));
        TRY(yoke_replicate(parallel));
        TRY(yoke_forward_replicas(parallel, true));
        TRY(yoke_gather_to_root(parallel));
        TRY(yoke_loss_on_root(parallel));
        TRY(yoke_gather_scalars(parallel));
        TRY(yoke_guard_check_loss(parallel));
        TRY(yoke_scatter_from_root(parallel));
        TRY(yoke_backward_replicas(parallel));
        TRY(yoke_shards_keep_statistics(parallel));
    }
    TRY(yoke_reduce(parallel));
    return yoke_update(parallel, learning_rate);
}

/* Every lane, in DataParallel as in DDP. Only the last micro-batch has an exchange; the others
 * accumulate (DDP's no_sync). DataParallel reduces a finished bucket to the root, updates it there
 * and publishes it; DDP all-reduces it, and every rank updates itself. */
static yoke_status train_lane(int lane, void *context) {
    yoke_data_parallel *parallel = context;
    const yoke_flight *flight = &parallel->flight;
    yoke_exchange *exchange = yoke_flight_is_last(flight) ? parallel->exchange : NULL;
    yoke_recording *recording = yoke_lane_recording(parallel, lane);
    if (recording != NULL) { /* forward, loss and backward in one launch */
        TRY(yoke_lane_replay(parallel, lane, recording, exchange));
    } else {
        yoke_status status = yoke_lane_forward(parallel, lane);
        TRY(yoke_lane_note_nonfinite(parallel, lane, status));
        TRY(yoke_lane_loss(parallel, lane));
        TRY(yoke_exchange_loss(exchange, lane));
        TRY(yoke_lane_backward(parallel, lane, exchange));
    }
    return exchange != NULL ? exchange->kind->finish(exchange, lane) : YOKE_OK;
}

static yoke_status step_overlap(yoke_data_parallel *parallel, const yoke_batch *batch,
                                double learning_rate) {
    yoke_flight *flight = &parallel->flight;
    parallel->reach.gradient = YOKE_LOSS_OUTPUT;
    TRY(yoke_exchange_begin(parallel->exchange, learning_rate));
    for (; flight->micro < flight->micros; flight->micro++) {
        TRY(yoke_scatter_micro_batch(parallel, batch));
        TRY(yoke_replicate_stale(parallel, false));
        TRY(yoke_record_lanes(parallel, flight->batch.rows, true));
        yoke_count_forward(parallel);
        TRY(yoke_apply(parallel, parallel->count, "step", train_lane, parallel));
        TRY(yoke_shards_keep_statistics(parallel));
        TRY(yoke_gather_scalars(parallel));
        TRY(yoke_exchange_settle(parallel->exchange, parallel->steps));
    }
    yoke_exchange_complete(parallel->exchange);
    TRY(yoke_ranks_add_results(parallel));
    TRY(yoke_guard_check_loss(parallel));
    TRY(yoke_exchange_check(parallel->exchange));
    yoke_count_update(parallel);
    return YOKE_OK;
}

/* step_classic with the loss on the host. All ranks learn of a loss that is not finite before they
 * reduce. */
static yoke_status step_own(yoke_data_parallel *parallel, const yoke_batch *batch,
                            double learning_rate, yoke_host_loss *host) {
    yoke_flight *flight = &parallel->flight;
    for (; flight->micro < flight->micros; flight->micro++) {
        TRY(yoke_scatter_micro_batch(parallel, batch));
        TRY(yoke_replicate(parallel));
        TRY(yoke_forward_replicas(parallel, true));
        TRY(yoke_own_loss_compute(parallel, host));
        TRY(yoke_own_loss_scatter(parallel, host->rows));
        TRY(yoke_backward_replicas(parallel));
    }
    TRY(yoke_ranks_add_results(parallel));
    TRY(yoke_guard_check_loss(parallel));
    TRY(yoke_reduce(parallel));
    return yoke_update(parallel, learning_rate);
}

/* Checks, the step in its schedule, the result. */

static yoke_status begin(yoke_data_parallel *parallel, const yoke_batch *given, bool training,
                         yoke_batch *batch, yoke_step_result *result, yoke_host_loss *host) {
    bool own = host->loss != NULL;
    TRY(yoke_engine_check_trains(parallel, training));
    if (training) TRY(yoke_average_check(parallel));
    if (training) TRY(yoke_unsynced_check_step(parallel));
    if (own) TRY(yoke_own_loss_take(host, &given));
    TRY(yoke_flight_check(parallel, given, !own, batch));
    TRY(yoke_result_check(result));
    TRY(yoke_flight_begin(parallel, batch, false, training));
    if (own) yoke_own_loss_begin(parallel);
    return YOKE_OK;
}

static yoke_status store(yoke_data_parallel *parallel, yoke_step_result *result,
                         yoke_host_loss *host) {
    if (host->loss != NULL) parallel->flight.result.correct = -1;
    return yoke_result_store(parallel, result);
}

static yoke_status step(yoke_data_parallel *parallel, const yoke_batch *given, double learning_rate,
                        yoke_step_result *result, yoke_host_loss *host) {
    yoke_batch batch;
    uint64_t begin_ns = yoke_trace_now();
    yoke_status status = begin(parallel, given, true, &batch, result, host);
    if (status == YOKE_OK) status = yoke_guard_begin(parallel);
    if (status != YOKE_OK) return yoke_ranks_report(parallel, status);
    uint64_t number = parallel->steps;
    yoke_waits_begin(parallel);
    status = host->loss != NULL               ? step_own(parallel, &batch, learning_rate, host)
             : yoke_steps_by_phases(parallel) ? step_classic(parallel, &batch, learning_rate)
                                              : step_overlap(parallel, &batch, learning_rate);
    yoke_waits_end(parallel, number);
    parallel->flight.progress = YOKE_STAGE_LOAD;
    if (parallel->steps < number) return status; /* an earlier step failed: both are undone */
    if (status != YOKE_OK) return yoke_ranks_report(parallel, yoke_guard_fail(parallel, status));
    bool updated = host->loss != NULL || yoke_steps_by_phases(parallel); /* by yoke_update */
    if (!updated) status = yoke_average_update(parallel);
    if (status != YOKE_OK) return yoke_ranks_report(parallel, status);
    parallel->input_gradients = parallel->options.input_gradients;
    yoke_trace_span(parallel->trace, 0, YOKE_STAGE_STEP, number, begin_ns, 0);
    return yoke_ranks_report(parallel, store(parallel, result, host));
}

yoke_status yoke_data_parallel_step(yoke_data_parallel *parallel, const yoke_batch *batch,
                                    double learning_rate, yoke_step_result *result) {
    TRY(yoke_enter(parallel, "yoke_data_parallel_step"));
    return yoke_leave(parallel, step(parallel, batch, learning_rate, result, &(yoke_host_loss){0}));
}

yoke_status yoke_data_parallel_step_own(yoke_data_parallel *parallel, const yoke_batch *batch,
                                        double learning_rate, const yoke_own_loss *loss,
                                        const yoke_output_rows *rows, yoke_step_result *result) {
    TRY(yoke_enter(parallel, "yoke_data_parallel_step"));
    return yoke_leave(parallel, step(parallel, batch, learning_rate, result,
                                     &(yoke_host_loss){.loss = loss, .rows = rows}));
}

/* Without learning. */

static yoke_status evaluate_lane(int lane, void *context) {
    yoke_data_parallel *parallel = context;
    yoke_recording *recording = yoke_lane_recording(parallel, lane);
    if (recording != NULL) return yoke_lane_replay(parallel, lane, recording, NULL);
    TRY(yoke_lane_forward(parallel, lane));
    return yoke_lane_loss(parallel, lane);
}

/* Of this process's rows, those that are wanted. A micro-batch has the rows from micro_first on. */
static yoke_status gather_wanted(yoke_data_parallel *parallel, const yoke_output_rows *rows) {
    float *outputs[YOKE_OUTPUTS_LIMIT] = {NULL};
    size_t first = (size_t)parallel->flight.micro_first;
    if (rows == NULL) return YOKE_OK;
    for (int k = 0; k < yoke_model_output_count(parallel->model); k++)
        if (rows->outputs[k] != NULL)
            outputs[k] = rows->outputs[k] + first * yoke_model_output_elements(parallel->model, k);
    return yoke_gather_outputs(parallel, outputs);
}

static yoke_status evaluate_micro_batch(yoke_data_parallel *parallel, yoke_host_loss *host) {
    if (host->loss != NULL) {
        TRY(yoke_forward_replicas(parallel, false));
        return yoke_own_loss_compute(parallel, host);
    }
    TRY(yoke_record_lanes(parallel, parallel->flight.batch.rows, false));
    TRY(yoke_apply_forward(parallel, "evaluate", evaluate_lane, parallel));
    TRY(yoke_gather_scalars(parallel));
    return gather_wanted(parallel, host->rows);
}

static yoke_status evaluate_batch(yoke_data_parallel *parallel, const yoke_batch *batch,
                                  yoke_host_loss *host) {
    yoke_flight *flight = &parallel->flight;
    TRY(yoke_ranks_share_buffers(parallel));
    for (; flight->micro < flight->micros; flight->micro++) {
        TRY(yoke_scatter_micro_batch(parallel, batch));
        TRY(yoke_replicate(parallel));
        TRY(evaluate_micro_batch(parallel, host));
    }
    return yoke_ranks_add_results(parallel);
}

static yoke_status evaluate(yoke_data_parallel *parallel, const yoke_batch *given,
                            yoke_step_result *result, yoke_host_loss *host) {
    yoke_batch batch;
    uint64_t begin_ns = yoke_trace_now();
    TRY(begin(parallel, given, false, &batch, result, host));
    yoke_status status = evaluate_batch(parallel, &batch, host);
    parallel->flight.progress = YOKE_STAGE_LOAD;
    TRY(status);
    yoke_trace_span(parallel->trace, 0, YOKE_STAGE_EVALUATE, parallel->steps, begin_ns, 0);
    return store(parallel, result, host);
}

yoke_status yoke_data_parallel_evaluate_outputs(yoke_data_parallel *parallel,
                                                const yoke_batch *batch, yoke_step_result *result,
                                                const yoke_output_rows *rows,
                                                const yoke_own_loss *loss) {
    TRY(yoke_enter_settled(parallel, "yoke_data_parallel_evaluate"));
    yoke_status status =
        evaluate(parallel, batch, result, &(yoke_host_loss){.loss = loss, .rows = rows});
    return yoke_leave(parallel, yoke_ranks_report(parallel, status));
}

yoke_status yoke_data_parallel_evaluate(yoke_data_parallel *parallel, const yoke_batch *batch,
                                        yoke_step_result *result) {
    return yoke_data_parallel_evaluate_outputs(parallel, batch, result, NULL, NULL);
}
