/* SPDX-License-Identifier: Apache-2.0 */
/* gather: scalars, or rows of outputs and input gradients in order, come back to the host. */
#include "parallel/stages/stage_table.h"

/* A training step waits here, and for the losses only: backward and the exchange go on while
 * the next batch is made. */
static yoke_status await_losses(yoke_step *step, int root, yoke_span *span) {
    yoke_step_result *sum = &step->flight.result;
    double losses[YOKE_DEVICES_LIMIT];
    (void)root;
    (void)span;
    for (int k = 0; k < step->count; k++) {
        const yoke_lane *lane = &step->lanes[k];
        bool has_loss = lane->shard.rows > 0 || (k == 0 && step->flight.loss_on_root);
        losses[k] = 0;
        if (!has_loss) continue;
        TRY(yoke_device_event_synchronize(lane->events.losses));
        step->lanes[k].reader = NULL; /* the loss comes behind it */
        if (k == 0) step->losses_seen++;
        losses[k] = lane->memory->on_host->loss_sum;
        sum->correct += (int)lane->memory->on_host->correct;
        sum->rows += lane->shard.rows;
    }
    sum->loss += yoke_tree_sum(losses, step->count);
    yoke_shards_add_losses(step, losses);
    return YOKE_OK;
}

static const yoke_bar losses_bar = {.stage = YOKE_STAGE_GATHER, .work = await_losses};

const yoke_stage_def yoke_stage_gather = {
    .stage = YOKE_STAGE_GATHER, .place = YOKE_ON_HOST, .bar = &losses_bar, .ends_batch = true};

static yoke_status add_lanes(yoke_step *step, int root, yoke_span *span) {
    (void)root, (void)span;
    yoke_shards_add_lanes(step);
    return YOKE_OK;
}

static const yoke_bar rounds_bar = {.stage = YOKE_STAGE_GATHER, .work = add_lanes};

/* Adds up what each lane has counted in its rounds. */
const yoke_stage_def yoke_stage_gather_rounds = {
    .stage = YOKE_STAGE_GATHER, .place = YOKE_ON_HOST, .bar = &rounds_bar, .ends_batch = true};

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
    if (rows->location == NULL) {
        TRY(yoke_device_download(lane->device, YOKE_STREAM_COMPUTE, to, from, bytes));
        TRY(yoke_device_event_record(lane->events.computed, YOKE_STREAM_COMPUTE));
        return yoke_device_event_synchronize(lane->events.computed); /* it may be pinned */
    }
    TRY(yoke_device_event_record(lane->events.computed, YOKE_STREAM_COMPUTE));
    TRY(yoke_device_event_wait(lane->events.computed, rows->location, YOKE_STREAM_COMPUTE));
    return yoke_device_copy(rows->location, YOKE_STREAM_COMPUTE, to, lane->device, from, bytes);
}

/* Rows on a device are complete when the call returns, as those on the host are; or the stream of
 * the batch waits for them. */
static yoke_status finish_rows(yoke_step *step, const gathered_rows *rows) {
    if (rows->location == NULL) return YOKE_OK;
    return yoke_host_stream_is_given(step) ? yoke_host_stream_follow(step, rows->location)
                                           : yoke_device_synchronize(rows->location);
}

static yoke_status gather_outputs(yoke_step *step, int root, yoke_span *span) {
    (void)root;
    for (int output = 0; output < yoke_model_output_count(step->model); output++) {
        float *values = step->flight.outputs[output];
        gathered_rows rows = {values, yoke_model_output_elements(step->model, output), NULL};
        if (values == NULL) continue;
        TRY(yoke_locate(step, values, &rows.location));
        for (int k = 0; k < step->count; k++) {
            const yoke_lane *lane = &step->lanes[k];
            if (lane->shard.rows == 0) continue;
            TRY(gather_shard(lane, &rows, lane->memory->outputs[output]));
            span->bytes += 2 * (size_t)lane->shard.rows * rows.elements * sizeof *values;
        }
        TRY(finish_rows(step, &rows));
    }
    return YOKE_OK;
}

static const yoke_bar outputs_bar = {.stage = YOKE_STAGE_GATHER, .work = gather_outputs};

yoke_status yoke_gather_outputs(yoke_step *step, float *const *outputs) {
    bool wanted = false;
    for (int k = 0; k < yoke_model_output_count(step->model); k++) {
        step->flight.outputs[k] = outputs[k];
        wanted |= outputs[k] != NULL;
    }
    bool has_rows = step->flight.batch.rows > 0;
    return wanted && has_rows ? yoke_run_bar(step, &outputs_bar, 0, YOKE_NO_BUCKET) : YOKE_OK;
}

/* Brings back the rows that the caller wants. A micro-batch has this process's rows from
 * micro_first on. */
static yoke_status gather_wanted(yoke_step *step) {
    const yoke_output_rows *rows = step->flight.host != NULL ? step->flight.host->rows : NULL;
    float *outputs[YOKE_OUTPUTS_LIMIT] = {NULL};
    size_t first = (size_t)step->flight.micro_first;
    if (rows == NULL) return YOKE_OK;
    for (int k = 0; k < yoke_model_output_count(step->model); k++)
        if (rows->outputs[k] != NULL)
            outputs[k] = rows->outputs[k] + first * yoke_model_output_elements(step->model, k);
    return yoke_gather_outputs(step, outputs);
}

const yoke_stage_def yoke_stage_gather_wanted = {
    .stage = YOKE_STAGE_GATHER, .place = YOKE_ON_HOST, .work = gather_wanted};

static yoke_status unscale_rows(yoke_step *step, const gathered_rows *rows) {
    size_t elements = (size_t)step->flight.batch.rows * rows->elements;
    TRY(yoke_gradient_unscale(step, rows->location, rows->to, elements));
    return finish_rows(step, rows);
}

yoke_status yoke_gather_input_gradients(yoke_step *step, int input, float *gradients) {
    TRY(yoke_pointer_check(gradients, "gradients"));
    yoke_value_info info = {.struct_size = sizeof info};
    TRY(yoke_model_describe_input(step->model, input, &info));
    if (!step->options.input_gradients)
        return FAIL(YOKE_ERROR_ARGUMENT, "this engine makes no gradients of its inputs: create it "
                                         "with options.input_gradients");
    if (!step->gradient.of_inputs)
        return FAIL(YOKE_ERROR_ARGUMENT, "there are no input gradients: they are those of the last "
                                         "batch, from its backward to the next forward");
    gathered_rows rows = {gradients, info.row_count, NULL};
    TRY(yoke_locate(step, gradients, &rows.location));
    TRY(yoke_host_stream_arrive_again(step)); /* it may still read what lies there */
    for (int k = 0; k < step->count; k++) {
        const yoke_lane *lane = &step->lanes[k];
        if (lane->shard.rows == 0) continue;
        const float *from = NULL;
        TRY(yoke_replica_input_gradients(lane->replica, input, &from));
        TRY(gather_shard(lane, &rows, from));
    }
    return unscale_rows(step, &rows);
}
