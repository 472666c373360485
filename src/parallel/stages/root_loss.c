/* SPDX-License-Identifier: Apache-2.0 */
/* The loss of classic on the root: one plan for each number of rows, and the copies around it. */
#include "parallel/stages/root_loss.h"

#include <stdlib.h>

static yoke_status allocate(yoke_step *step) {
    yoke_root_loss *loss = step->root_loss;
    yoke_device *root = step->lanes[0].device;
    size_t rows = (size_t)step->limits.micro_rows;
    size_t bytes = rows * step->limits.outputs * sizeof(float);
    TRY(yoke_device_allocate(root, bytes, "gathered outputs", (void **)&loss->outputs));
    TRY(yoke_device_allocate(root, bytes, "output gradients", (void **)&loss->gradients));
    TRY(yoke_device_allocate(root, bytes, "targets", (void **)&loss->targets));
    TRY(yoke_device_allocate(root, rows * sizeof *loss->mixes, "second labels",
                             (void **)&loss->mixes));
    return yoke_device_allocate(root, rows * step->limits.positions * sizeof *loss->labels,
                                "labels", (void **)&loss->labels);
}

yoke_status yoke_root_loss_create(yoke_step *step) {
    if (!yoke_steps_by_phases(step)) return YOKE_OK;
    step->root_loss = yoke_calloc(1, sizeof *step->root_loss);
    if (step->root_loss == NULL) return FAIL_MEMORY(sizeof *step->root_loss, "the root's loss");
    TRY(yoke_memory_advice(allocate(step), yoke_rows_advice(step)));
    return yoke_root_loss_prepare(step, step->limits.micro_rows);
}

void yoke_root_loss_destroy(yoke_step *step) {
    yoke_root_loss *loss = step->root_loss;
    if (loss == NULL) return;
    yoke_device *root = step->lanes[0].device;
    for (int i = loss->plan_count - 1; i >= 0; i--)
        yoke_plan_destroy(loss->plans[i].plan);
    yoke_free(loss->plans);
    yoke_device_free(root, loss->scratch);
    yoke_device_free(root, loss->labels);
    yoke_device_free(root, loss->mixes);
    yoke_device_free(root, loss->targets);
    yoke_device_free(root, loss->gradients);
    yoke_device_free(root, loss->outputs);
    yoke_free(loss);
}

static yoke_plan *find_plan(const yoke_step *step, int rows) {
    const yoke_root_loss *loss = step->root_loss;
    for (int i = 0; i < loss->plan_count; i++)
        if (loss->plans[i].model == step->model && loss->plans[i].rows == rows)
            return loss->plans[i].plan;
    return NULL;
}

static yoke_status make_plan(yoke_step *step, int rows, yoke_plan **plan) {
    yoke_operation operation;
    TRY(yoke_model_loss_operation(step->model, &operation));
    yoke_plan_request request = {.operation = &operation,
                                 .rows = rows,
                                 .training = true,
                                 .algorithm = step->options.algorithm,
                                 .input_gradient = true,
                                 .algorithms = step->algorithms};
    int64_t shape[] = {rows, (int64_t)step->limits.outputs};
    TRY(yoke_layout_plain(step->lanes[0].device, shape, 2, &request.inputs[0]));
    return yoke_plan_create(plan, step->lanes[0].device, &request);
}

static yoke_status bind_plan(yoke_step *step, yoke_plan *plan) {
    yoke_root_loss *loss = step->root_loss;
    const yoke_plan_needs *needs = yoke_plan_describe(plan);
    size_t scratch = needs->scratch_bytes + needs->saved_bytes;
    if (scratch > loss->scratch_bytes && loss->scratch != NULL)
        return FAIL(YOKE_ERROR_INTERNAL, "the loss of a short batch needs more scratch memory");
    if (scratch > 0 && loss->scratch == NULL) {
        TRY(yoke_device_allocate(step->lanes[0].device, scratch, "loss", &loss->scratch));
        loss->scratch_bytes = scratch;
    }
    const yoke_replica_memory *memory = step->lanes[0].memory;
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

yoke_status yoke_root_loss_prepare(yoke_step *step, int rows) {
    yoke_root_loss *loss = step->root_loss;
    if (loss == NULL || find_plan(step, rows) != NULL) return YOKE_OK;
    size_t bytes = ((size_t)loss->plan_count + 1) * sizeof *loss->plans;
    void *plans = yoke_realloc(loss->plans, bytes);
    if (plans == NULL) return FAIL_MEMORY(bytes, "loss plans");
    loss->plans = plans;
    yoke_plan *plan = NULL;
    TRY(make_plan(step, rows, &plan));
    yoke_status status = bind_plan(step, plan);
    if (status != YOKE_OK) {
        yoke_plan_destroy(plan);
        return status;
    }
    loss->plans[loss->plan_count++] = (struct yoke_root_loss_plan){step->model, rows, plan};
    return YOKE_OK;
}

/* gather: the outputs of the shards, and what the loss compares them with. */
static yoke_status gather_to_root(yoke_step *step, int index, yoke_span *span) {
    const yoke_batch *micro = &step->flight.batch;
    yoke_root_loss *loss = step->root_loss;
    yoke_device *root = step->lanes[index].device;
    size_t width = step->limits.outputs;
    bool labels = step->limits.labels;
    size_t row_bytes =
        labels ? step->limits.positions * sizeof *loss->labels : width * sizeof(float);
    char *expected = labels ? (char *)loss->labels : (char *)loss->targets;
    const char *given = labels ? (const char *)micro->labels : (const char *)micro->targets;
    span->bytes = 2 * (size_t)micro->rows * width * sizeof(float);
    for (int k = 0; k < step->count; k++) {
        const yoke_lane *lane = &step->lanes[k];
        size_t position = (size_t)lane->position, rows = (size_t)lane->shard.rows;
        size_t first = (size_t)lane->shard.first;
        if (rows == 0) continue;
        TRY(yoke_device_copy(root, YOKE_STREAM_COMPUTE, loss->outputs + position * width,
                             lane->device, lane->memory->outputs[0], rows * width * sizeof(float)));
        if (given != NULL) /* a loss that the model computes has neither */
            TRY(yoke_device_receive(root, YOKE_STREAM_COMPUTE, expected + position * row_bytes,
                                    step->flight.locations.targets, given + first * row_bytes,
                                    rows * row_bytes));
        if (micro->mixes != NULL)
            TRY(yoke_device_receive(root, YOKE_STREAM_COMPUTE, loss->mixes + position, NULL,
                                    micro->mixes + first, rows * sizeof *micro->mixes));
    }
    return YOKE_OK;
}

/* The outputs of a lane, or their gradients. */
static size_t output_bytes(const yoke_step *step, int lane) {
    return (size_t)step->lanes[lane].shard.rows * step->limits.outputs * sizeof(float);
}

static const yoke_bar gather_bar = {.stage = YOKE_STAGE_GATHER, .work = gather_to_root};

const yoke_stage_def yoke_stage_gather_to_root = {.stage = YOKE_STAGE_GATHER,
                                                  .place = YOKE_ON_HOST,
                                                  .bar = &gather_bar,
                                                  .bytes = output_bytes,
                                                  .to_root = true};

/* loss: over the whole batch. */
static yoke_status compute_loss(yoke_step *step, int root, yoke_span *span) {
    yoke_plan *plan = find_plan(step, step->flight.batch.rows);
    yoke_plan_step plan_step = yoke_lane_plan_step(step, root);
    (void)span;
    TRY(yoke_plan_forward(plan, &plan_step));
    TRY(yoke_plan_backward(plan, &plan_step));
    return yoke_lane_download_scalars(&step->lanes[root]);
}

static const yoke_bar loss_bar = {.stage = YOKE_STAGE_LOSS, .work = compute_loss};

static yoke_status clear_losses(yoke_step *step) {
    step->flight.loss_on_root = true;
    for (int k = 0; k < step->count; k++)
        *step->lanes[k].memory->on_host = (yoke_loss_scalars){0};
    if (step->flight.batch.rows == 0) return YOKE_OK; /* a round of shards without rows */
    return yoke_root_loss_prepare(step, step->flight.batch.rows);
}

static yoke_status loss_on_root(int root, void *context) {
    yoke_step *step = context;
    if (step->flight.batch.rows == 0) return YOKE_OK;
    return yoke_run_bar(step, &loss_bar, root, YOKE_NO_BUCKET);
}

const yoke_stage_def yoke_stage_loss_on_root = {
    .stage = YOKE_STAGE_LOSS, .place = YOKE_ON_ROOT, .begin = clear_losses, .lane = loss_on_root};

/* scatter: the loss's gradient goes back to the shards. */
static yoke_status scatter_back(yoke_step *step, int root, yoke_span *span) {
    size_t width = step->limits.outputs;
    for (int k = 0; k < step->count; k++) {
        const yoke_lane *lane = &step->lanes[k];
        if (lane->shard.rows == 0) continue;
        TRY(yoke_replica_clear_more_gradients(lane->replica));
        TRY(yoke_device_copy(lane->device, YOKE_STREAM_COMPUTE, lane->memory->output_gradients[0],
                             step->lanes[root].device,
                             step->root_loss->gradients + (size_t)lane->position * width,
                             output_bytes(step, k)));
        span->bytes += 2 * output_bytes(step, k);
    }
    return YOKE_OK;
}

static const yoke_bar scatter_bar = {.stage = YOKE_STAGE_SCATTER, .work = scatter_back};

const yoke_stage_def yoke_stage_scatter_back = {.stage = YOKE_STAGE_SCATTER,
                                                .place = YOKE_ON_HOST,
                                                .bar = &scatter_bar,
                                                .progress = YOKE_STAGE_LOSS,
                                                .bytes = output_bytes};
