/* SPDX-License-Identifier: Apache-2.0 */
/* gather: scalars, or rows of outputs and input gradients in order, come back to the host. */
#include "parallel/engine.h"
#include "parallel/stages.h"

/* A training step waits here, and for the losses only: backward and the exchange go on while
 * the next batch is made. */
yoke_status yoke_gather_scalars(yoke_data_parallel *parallel) {
    uint64_t begin = yoke_trace_now();
    yoke_step_result *sum = &parallel->flight.result;
    double losses[YOKE_DEVICES_LIMIT];
    for (int k = 0; k < parallel->count; k++) {
        const yoke_lane *lane = &parallel->lanes[k];
        losses[k] = 0;
        if (lane->shard.rows == 0) continue;
        TRY(yoke_device_event_synchronize(lane->events.losses));
        losses[k] = lane->memory->on_host->loss_sum;
        sum->correct += (int)lane->memory->on_host->correct;
        sum->rows += lane->shard.rows;
    }
    sum->loss += yoke_tree_sum(losses, parallel->count);
    yoke_shards_add_losses(parallel, losses);
    yoke_trace_span(parallel->trace, 0, YOKE_STAGE_GATHER, parallel->steps, begin, 0);
    return yoke_timeline_turn(parallel);
}

yoke_status yoke_result_check(yoke_step_result *result) {
    yoke_step_result none = {0};
    if (result == NULL) return YOKE_OK;
    return yoke_options_store(result, &none, sizeof none, "yoke_step_result");
}

yoke_status yoke_result_store(const yoke_data_parallel *parallel, yoke_step_result *result) {
    if (result == NULL) return YOKE_OK;
    yoke_step_result own = parallel->flight.result;
    own.loss = own.weight > 0 ? own.loss / own.weight : 0;
    if (!parallel->limits.labels) own.correct = -1;
    own.gradient_norm = parallel->flight.gradient_norm;
    return yoke_options_store(result, &own, sizeof own, "yoke_step_result");
}

static yoke_status gather(yoke_data_parallel *parallel, yoke_step_result *result) {
    if (!parallel->flight.losses_known)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "yoke_gather: no loss is known; call yoke_loss_replicas first");
    parallel->flight.result = yoke_flight_no_result(parallel->flight.own);
    TRY(yoke_gather_scalars(parallel));
    return yoke_result_store(parallel, result);
}

yoke_status yoke_gather(yoke_data_parallel *parallel, yoke_step_result *result) {
    TRY(yoke_enter_settled(parallel, "yoke_gather"));
    return yoke_leave(parallel, gather(parallel, result));
}

/* The rows of one array, in their order: on the host, or on the device whose memory `to` is. */
typedef struct gathered_rows {
    float *to;
    size_t elements; /* of one row */
    yoke_device *location;
} gathered_rows;

/* `location` is another device: its copy waits for what this one has queued. */
static yoke_status gather_shard(const yoke_lane *lane, const gathered_rows *rows,
                                const float *from) {
    float *to = rows->to + (size_t)lane->shard.first * rows->elements;
    size_t bytes = (size_t)lane->shard.rows * rows->elements * sizeof *to;
    if (rows->location == NULL)
        return yoke_device_download(lane->device, YOKE_STREAM_COMPUTE, to, from, bytes);
    TRY(yoke_device_event_record(lane->events.computed, YOKE_STREAM_COMPUTE));
    TRY(yoke_device_event_wait(lane->events.computed, rows->location, YOKE_STREAM_COMPUTE));
    return yoke_device_copy(rows->location, YOKE_STREAM_COMPUTE, to, lane->device, from, bytes);
}

/* Rows on a device are complete when the call returns, as those on the host are. */
static yoke_status finish_rows(const gathered_rows *rows) {
    return rows->location != NULL ? yoke_device_synchronize(rows->location) : YOKE_OK;
}

/* Adds to *bytes what it reads and writes. */
static yoke_status gather_output(yoke_data_parallel *parallel, int output, float *values,
                                 size_t *bytes) {
    gathered_rows rows = {values, yoke_model_output_elements(parallel->model, output), NULL};
    TRY(yoke_locate(parallel, values, &rows.location));
    for (int k = 0; k < parallel->count; k++) {
        const yoke_lane *lane = &parallel->lanes[k];
        if (lane->shard.rows == 0) continue;
        TRY(gather_shard(lane, &rows, lane->memory->outputs[output]));
        *bytes += 2 * (size_t)lane->shard.rows * rows.elements * sizeof *values;
    }
    return finish_rows(&rows);
}

yoke_status yoke_gather_outputs(yoke_data_parallel *parallel, float *const *outputs) {
    uint64_t begin = yoke_trace_now();
    size_t bytes = 0;
    for (int k = 0; k < yoke_model_output_count(parallel->model); k++)
        if (outputs[k] != NULL) TRY(gather_output(parallel, k, outputs[k], &bytes));
    if (bytes > 0)
        yoke_trace_span(parallel->trace, 0, YOKE_STAGE_GATHER, parallel->steps, begin, bytes);
    return YOKE_OK;
}

static yoke_status read_gradients_of_input(yoke_data_parallel *parallel, int input,
                                           float *gradients) {
    TRY(yoke_pointer_check(gradients, "gradients"));
    yoke_value_info info = {.struct_size = sizeof info};
    TRY(yoke_model_describe_input(parallel->model, input, &info));
    if (!parallel->options.input_gradients)
        return FAIL(YOKE_ERROR_ARGUMENT, "this engine makes no gradients of its inputs: create it "
                                         "with options.input_gradients");
    if (!parallel->input_gradients)
        return FAIL(YOKE_ERROR_ARGUMENT, "there are no input gradients: they are those of the last "
                                         "batch, from its backward to the next forward");
    gathered_rows rows = {gradients, info.row_count, NULL};
    TRY(yoke_locate(parallel, gradients, &rows.location));
    for (int k = 0; k < parallel->count; k++) {
        const yoke_lane *lane = &parallel->lanes[k];
        if (lane->shard.rows == 0) continue;
        const float *from = NULL;
        TRY(yoke_replica_input_gradients(lane->replica, input, &from));
        TRY(gather_shard(lane, &rows, from));
    }
    return finish_rows(&rows);
}

yoke_status yoke_data_parallel_read_input_gradients(yoke_data_parallel *parallel,
                                                    float *gradients) {
    TRY(yoke_enter_settled(parallel, "yoke_data_parallel_read_input_gradients"));
    return yoke_leave(parallel, read_gradients_of_input(parallel, 0, gradients));
}

yoke_status yoke_data_parallel_read_gradients_of_input(yoke_data_parallel *parallel, int input,
                                                       float *gradients) {
    TRY(yoke_enter_settled(parallel, "yoke_data_parallel_read_gradients_of_input"));
    return yoke_leave(parallel, read_gradients_of_input(parallel, input, gradients));
}
