/* SPDX-License-Identifier: Apache-2.0 */
/* The loss of classic on the root: one plan for each number of rows, and the copies around it. */
#include "parallel/root_loss.h"

#include <stdlib.h>

#include "parallel/engine.h"
#include "parallel/exchange_links.h"

static yoke_status allocate(yoke_data_parallel *parallel) {
    yoke_root_loss *loss = &parallel->root_loss;
    yoke_device *root = parallel->lanes[0].device;
    size_t rows = (size_t)parallel->limits.micro_rows;
    size_t bytes = rows * parallel->limits.outputs * sizeof(float);
    TRY(yoke_device_allocate(root, bytes, "gathered outputs", (void **)&loss->outputs));
    TRY(yoke_device_allocate(root, bytes, "output gradients", (void **)&loss->gradients));
    TRY(yoke_device_allocate(root, bytes, "targets", (void **)&loss->targets));
    TRY(yoke_device_allocate(root, rows * sizeof *loss->mixes, "second labels",
                             (void **)&loss->mixes));
    return yoke_device_allocate(root, rows * parallel->limits.positions * sizeof *loss->labels,
                                "labels", (void **)&loss->labels);
}

yoke_status yoke_root_loss_create(yoke_data_parallel *parallel) {
    if (!yoke_steps_by_phases(parallel)) return YOKE_OK;
    TRY(yoke_memory_advice(allocate(parallel), yoke_rows_advice(parallel)));
    return yoke_root_loss_prepare(parallel, parallel->limits.micro_rows);
}

void yoke_root_loss_destroy(yoke_data_parallel *parallel) {
    yoke_root_loss *loss = &parallel->root_loss;
    for (int i = loss->plan_count - 1; i >= 0; i--)
        yoke_plan_destroy(loss->plans[i].plan);
    free(loss->plans);
    if (loss->outputs == NULL) return;
    yoke_device *root = parallel->lanes[0].device;
    yoke_device_free(root, loss->scratch);
    yoke_device_free(root, loss->labels);
    yoke_device_free(root, loss->mixes);
    yoke_device_free(root, loss->targets);
    yoke_device_free(root, loss->gradients);
    yoke_device_free(root, loss->outputs);
}

static yoke_plan *find_plan(const yoke_root_loss *loss, int rows) {
    for (int i = 0; i < loss->plan_count; i++)
        if (loss->plans[i].rows == rows) return loss->plans[i].plan;
    return NULL;
}

static yoke_status make_plan(yoke_data_parallel *parallel, int rows, yoke_plan **plan) {
    yoke_operation operation;
    TRY(yoke_model_loss_operation(parallel->model, &operation));
    yoke_plan_request request = {.operation = &operation,
                                 .rows = rows,
                                 .training = true,
                                 .algorithm = parallel->options.algorithm,
                                 .input_gradient = true,
                                 .choices = parallel->choices};
    int64_t shape[] = {rows, (int64_t)parallel->limits.outputs};
    TRY(yoke_layout_plain(parallel->lanes[0].device, shape, 2, &request.inputs[0]));
    return yoke_plan_create(plan, parallel->lanes[0].device, &request);
}

static yoke_status bind_plan(yoke_data_parallel *parallel, yoke_plan *plan) {
    yoke_root_loss *loss = &parallel->root_loss;
    const yoke_plan_needs *needs = yoke_plan_describe(plan);
    size_t scratch = needs->scratch_bytes + needs->saved_bytes;
    if (scratch > loss->scratch_bytes && loss->scratch != NULL)
        return FAIL(YOKE_ERROR_INTERNAL, "the loss of a short batch needs more scratch memory");
    if (scratch > 0 && loss->scratch == NULL) {
        TRY(yoke_device_allocate(parallel->lanes[0].device, scratch, "loss", &loss->scratch));
        loss->scratch_bytes = scratch;
    }
    const yoke_replica_memory *memory = parallel->lanes[0].memory;
    yoke_plan_binding binding = {.inputs = {loss->outputs},
                                 .input_gradients = {loss->gradients},
                                 .saved = loss->scratch,
                                 .scratch = (char *)loss->scratch + needs->saved_bytes,
                                 .labels = loss->labels,
                                 .mixes = loss->mixes,
                                 .targets = loss->targets,
                                 .scalars = memory->scalars,
                                 .on_host = memory->on_host};
    return yoke_plan_bind(plan, &binding);
}

yoke_status yoke_root_loss_prepare(yoke_data_parallel *parallel, int rows) {
    yoke_root_loss *loss = &parallel->root_loss;
    if (loss->outputs == NULL || find_plan(loss, rows) != NULL) return YOKE_OK;
    size_t bytes = ((size_t)loss->plan_count + 1) * sizeof *loss->plans;
    void *plans = realloc(loss->plans, bytes);
    if (plans == NULL) return FAIL_MEMORY(bytes, "loss plans");
    loss->plans = plans;
    yoke_plan *plan = NULL;
    TRY(make_plan(parallel, rows, &plan));
    yoke_status status = bind_plan(parallel, plan);
    if (status != YOKE_OK) {
        yoke_plan_destroy(plan);
        return status;
    }
    loss->plans[loss->plan_count].rows = rows;
    loss->plans[loss->plan_count++].plan = plan;
    return YOKE_OK;
}

yoke_status yoke_gather_to_root(yoke_data_parallel *parallel) {
    const yoke_batch *micro = &parallel->flight.batch;
    uint64_t begin = yoke_trace_now();
    yoke_root_stage stage = {.stage = YOKE_STAGE_GATHER, .to_root = true, .begin_ns = begin};
    yoke_root_loss *loss = &parallel->root_loss;
    yoke_device *root = parallel->lanes[0].device;
    size_t width = parallel->limits.outputs, rows = (size_t)micro->rows;
    bool labels = parallel->limits.labels;
    size_t row_bytes =
        labels ? parallel->limits.positions * sizeof *loss->labels : width * sizeof(float);
    char *expected = labels ? (char *)loss->labels : (char *)loss->targets;
    const char *given = labels ? (const char *)micro->labels : (const char *)micro->targets;
    for (int k = 0; k < parallel->count; k++) {
        const yoke_lane *lane = &parallel->lanes[k];
        if (lane->shard.rows == 0) continue;
        TRY(yoke_device_copy(
            root, YOKE_STREAM_COMPUTE, loss->outputs + (size_t)lane->position * width, lane->device,
            lane->memory->outputs[0], (size_t)lane->shard.rows * width * sizeof(float)));
        TRY(yoke_device_receive(
            root, YOKE_STREAM_COMPUTE, expected + (size_t)lane->position * row_bytes,
            parallel->flight.locations.targets, given + (size_t)lane->shard.first * row_bytes,
            (size_t)lane->shard.rows * row_bytes));
        if (micro->mixes != NULL)
            TRY(yoke_device_receive(root, YOKE_STREAM_COMPUTE, loss->mixes + lane->position, NULL,
                                    micro->mixes + lane->shard.first,
                                    (size_t)lane->shard.rows * sizeof *micro->mixes));
        if (k > 0) stage.bytes[k] = (size_t)lane->shard.rows * width * sizeof(float);
    }
    yoke_links_run(parallel, &stage);
    if (yoke_links_carry(parallel)) return YOKE_OK;
    yoke_trace_span(parallel->trace, 0, YOKE_STAGE_GATHER, parallel->steps, begin,
                    2 * rows * width * sizeof(float));
    return YOKE_OK;
}

static yoke_status loss_job(int worker, void *context) {
    yoke_data_parallel *parallel = context;
    const yoke_lane *root = &parallel->lanes[worker];
    uint64_t begin = yoke_trace_now();
    yoke_plan *plan = find_plan(&parallel->root_loss, parallel->flight.batch.rows);
    yoke_plan_step step = yoke_lane_plan_step(parallel, worker);
    TRY(yoke_plan_forward(plan, &step));
    TRY(yoke_plan_backward(plan, &step));
    TRY(yoke_lane_download_scalars(root));
    yoke_trace_span(parallel->trace, 0, YOKE_STAGE_LOSS, parallel->steps, begin, 0);
    return YOKE_OK;
}

yoke_status yoke_loss_on_root(yoke_data_parallel *parallel) {
    for (int k = 0; k < parallel->count; k++)
        *parallel->lanes[k].memory->on_host = (yoke_loss_scalars){0};
    if (parallel->flight.batch.rows == 0) return YOKE_OK; /* a round of shards without rows */
    TRY(yoke_root_loss_prepare(parallel, parallel->flight.batch.rows));
    return yoke_apply(parallel, 1, "loss", loss_job, parallel);
}

yoke_status yoke_scatter_from_root(yoke_data_parallel *parallel) {
    uint64_t begin = yoke_trace_now();
    yoke_root_stage stage = {.stage = YOKE_STAGE_SCATTER, .begin_ns = begin};
    size_t width = parallel->limits.outputs, bytes = 0;
    for (int k = 0; k < parallel->count; k++) {
        const yoke_lane *lane = &parallel->lanes[k];
        if (lane->shard.rows == 0) continue;
        size_t part = (size_t)lane->shard.rows * width * sizeof(float);
        TRY(yoke_replica_clear_more_gradients(lane->replica));
        TRY(yoke_device_copy(lane->device, YOKE_STREAM_COMPUTE, lane->memory->output_gradients[0],
                             parallel->lanes[0].device,
                             parallel->root_loss.gradients + (size_t)lane->position * width, part));
        bytes += 2 * part;
        if (k > 0) stage.bytes[k] = part;
    }
    parallel->flight.progress = YOKE_STAGE_LOSS;
    yoke_links_run(parallel, &stage);
    if (yoke_links_carry(parallel)) return YOKE_OK;
    yoke_trace_span(parallel->trace, 0, YOKE_STAGE_SCATTER, parallel->steps, begin, bytes);
    return YOKE_OK;
}
