/* SPDX-License-Identifier: Apache-2.0 */
/* The state of an engine on the host: weights, running statistics, the optimizer's state, counters.
 * An engine of any number of devices and any schedule takes it and gives it: owners' slices are
 * gathered into one flat buffer and scattered from it. Random numbers are keyed by seed, step and
 * row, so that the step is their whole state. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "parallel/engine/average.h"
#include "parallel/engine/entry.h"
#include "parallel/stages/stages.h"

/* The parts of a state. */

static yoke_status add_model_tensors(yoke_state *state, const yoke_model *model) {
    for (int i = 0; i < yoke_model_tensor_count(model); i++) {
        yoke_tensor_info info = {.struct_size = sizeof info};
        TRY(yoke_model_tensor(model, i, &info));
        state->tensors[state->count++] = (yoke_state_tensor){
            .info = info, .tensor = i, .part = YOKE_STATE_MODEL, .parameter = -1};
    }
    return YOKE_OK;
}

/* Another value of a model's tensor: "optimizer.NAME.SUFFIX". */
static yoke_status add_value(yoke_state *state, const yoke_data_parallel *parallel, int tensor,
                             const char *suffix, yoke_state_part part) {
    yoke_state_tensor *added = &state->tensors[state->count];
    yoke_tensor_info info = {.struct_size = sizeof info};
    TRY(yoke_model_tensor(parallel->step.model, tensor, &info));
    added->own_name = yoke_format("optimizer.%s.%s", info.name, suffix);
    if (added->own_name == NULL)
        return FAIL_MEMORY(strlen(info.name), "a name of the optimizer's state");
    info.name = added->own_name;
    info.trainable = false;
    added->info = info;
    added->part = part;
    added->tensor = -1;
    added->copy_of = tensor;
    added->parameter = -1;
    state->count++;
    return YOKE_OK;
}

/* Frozen parameters have no state of the optimizer. */
static yoke_status add_optimizer_tensors(yoke_state *state, const yoke_data_parallel *parallel) {
    const yoke_step *step = &parallel->step;
    int slots = state->slots + (yoke_averages(parallel) ? 1 : 0);
    for (int slot = 0; slot < slots; slot++) {
        bool average = slot == state->slots;
        yoke_state_part part = average ? YOKE_STATE_AVERAGE : YOKE_STATE_OPTIMIZER;
        const char *suffix =
            average ? "ema" : yoke_optimizer_state_name(&step->optimizer_options, slot);
        for (int i = 0; i < step->flat->parameter_count; i++) {
            const yoke_parameter *parameter = &step->flat->parameters[i];
            if (parameter->frozen) continue;
            TRY(add_value(state, parallel, parameter->tensor, suffix, part));
            state->tensors[state->count - 1].parameter = i;
            state->tensors[state->count - 1].slot = slot;
        }
    }
    return YOKE_OK;
}

/* Values of all tensors in one allocation. A rank that only passes slices on has none. */
static yoke_status allocate_values(yoke_state *state) {
    size_t elements = 1;
    for (int i = 0; i < state->count; i++)
        if (!state->tensors[i].info.integer) elements += state->tensors[i].info.count;
    state->values = yoke_malloc(elements * sizeof *state->values);
    if (state->values == NULL)
        return FAIL_MEMORY(elements * sizeof *state->values, "a copy of the engine's state");
    memset(state->values, 0, elements * sizeof *state->values); /* touches the pages now */
    float *next = state->values;
    for (int i = 0; i < state->count; i++) {
        if (state->tensors[i].info.integer) continue;
        state->tensors[i].values = next;
        next += state->tensors[i].info.count;
    }
    return YOKE_OK;
}

static yoke_status allocate_flat(yoke_state *state, size_t elements) {
    size_t bytes = elements * sizeof *state->flat;
    yoke_free(state->flat);
    state->flat = yoke_malloc(bytes);
    if (state->flat == NULL) return FAIL_MEMORY(bytes, "the optimizer's state on the host");
    memset(state->flat, 0, bytes);
    state->flat_elements = elements;
    return YOKE_OK;
}

/* Engines of other numbers of devices have other layouts. */
static yoke_status fit(yoke_state *state, const yoke_data_parallel *parallel) {
    const yoke_flat *flat = parallel->step.flat;
    for (int i = 0; i < state->count; i++) {
        yoke_state_tensor *tensor = &state->tensors[i];
        int found = tensor->parameter;
        if (found < 0 || flat->parameters[found].tensor == tensor->copy_of) continue;
        for (found = 0; flat->parameters[found].tensor != tensor->copy_of; found++)
            continue;
        tensor->parameter = found;
    }
    bool fits = state->flat == NULL || flat->elements <= state->flat_elements;
    return fits ? YOKE_OK : allocate_flat(state, flat->elements);
}

/* Rank 0; and all where others go on without it. */
static bool keeps_values(const yoke_step *step) {
    return step->ranks.rank == 0 || yoke_process_group_goes_on(step->ranks.process_group);
}

static yoke_status build(yoke_state *state, const yoke_data_parallel *parallel, bool best) {
    const yoke_step *step = &parallel->step;
    state->scale = yoke_data_parallel_scale(parallel, NULL);
    state->slots = yoke_optimizer_state_count(&step->optimizer_options);
    size_t tensors = (best ? 2 : 1) * (size_t)yoke_model_tensor_count(step->model) +
                     (size_t)((state->slots + 1) * step->flat->parameter_count);
    state->tensors = yoke_calloc(tensors + 1, sizeof *state->tensors);
    if (state->tensors == NULL)
        return FAIL_MEMORY(tensors * sizeof *state->tensors, "the table of the engine's state");
    TRY(add_model_tensors(state, step->model));
    TRY(add_optimizer_tensors(state, parallel));
    for (int i = 0; best && i < yoke_model_tensor_count(step->model); i++)
        if (!state->tensors[i].info.integer)
            TRY(add_value(state, parallel, i, "best", YOKE_STATE_BEST));
    if (keeps_values(step)) TRY(allocate_values(state));
    if (state->slots == 0 && !yoke_averages(parallel)) return YOKE_OK;
    return allocate_flat(state, step->flat->elements);
}

yoke_status yoke_state_create(yoke_state **state, const yoke_data_parallel *parallel, bool best) {
    *state = NULL;
    if (parallel->step.trains_parts)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "the training state of models that train a part of the parameters each has a "
                    "count of steps for each part, which no file holds: save the weights alone");
    yoke_state *made = yoke_calloc(1, sizeof *made);
    if (made == NULL) return FAIL_MEMORY(sizeof *made, "a copy of the engine's state");
    yoke_status status = build(made, parallel, best);
    if (status != YOKE_OK) {
        yoke_state_destroy(made);
        return status;
    }
    *state = made;
    return YOKE_OK;
}

void yoke_state_destroy(yoke_state *state) {
    if (state == NULL) return;
    for (int i = 0; state->tensors != NULL && i <= state->count; i++)
        yoke_free(state->tensors[i].own_name);
    yoke_free(state->tensors);
    yoke_free(state->values);
    yoke_free(state->flat);
    yoke_free(state);
}

/* Owners' slices. */

typedef struct slice_job {
    yoke_data_parallel *parallel;
    yoke_state *state;
    int slot;
    bool give; /* to the engine; otherwise from it */
    bool best; /* of move_weights: the values of the best part */
} slice_job;

/* On the lane's worker: the slices of every bucket that it owns. */
static yoke_status move_slices(int lane, void *context) {
    const slice_job *job = context;
    const yoke_exchange *exchange = job->parallel->step.exchange;
    yoke_device *device = job->parallel->step.lanes[lane].device;
    int owner = exchange->first + lane;
    if (owner >= exchange->owners) return YOKE_OK;
    for (int bucket = 0; bucket < job->parallel->step.flat->bucket_count; bucket++) {
        yoke_slice slice = yoke_exchange_owned(exchange, owner, bucket);
        float *host = job->state->flat + slice.offset;
        float *own = slice.optimizer ? yoke_optimizer_state(slice.optimizer, job->slot) : NULL;
        size_t bytes = slice.elements * sizeof *host;
        if (own == NULL || bytes == 0) continue;
        TRY(job->give ? yoke_device_upload(device, YOKE_STREAM_COMPUTE, own, host, bytes)
                      : yoke_device_download(device, YOKE_STREAM_COMPUTE, host, own, bytes));
    }
    return yoke_device_synchronize(device);
}

static bool other_ranks_own_slices(const yoke_data_parallel *parallel) {
    const yoke_step *step = &parallel->step;
    return step->ranks.world > 1 && step->exchange->owners > 1;
}

/* Every element has one owner and is 0 elsewhere: as integers the sum keeps every bit. */
static yoke_status gather_slices(slice_job *job) {
    yoke_data_parallel *parallel = job->parallel;
    size_t elements = parallel->step.flat->elements;
    memset(job->state->flat, 0, elements * sizeof *job->state->flat);
    TRY(yoke_apply(&parallel->step, parallel->step.count, "read", move_slices, job));
    if (!other_ranks_own_slices(parallel)) return YOKE_OK;
    _Static_assert(2 * sizeof(float) == sizeof(int64_t), "a flat buffer is whole cache lines");
    yoke_process_group *ranks = parallel->step.ranks.process_group;
    if (yoke_process_group_goes_on(ranks))
        return yoke_process_group_all_reduce(ranks, job->state->flat, elements / 2,
                                             YOKE_ELEMENT_INT64, YOKE_SUM);
    return yoke_process_group_reduce(ranks, job->state->flat, elements / 2, YOKE_ELEMENT_INT64,
                                     YOKE_SUM, 0);
}

/* Between the root, or the flat buffer, and plain values; on the root's worker. */

static yoke_status move_tensor(const slice_job *job, yoke_replica *replica, int own,
                               yoke_state_tensor *tensor) {
    if (job->state->keeps_layouts && !job->give)
        return yoke_replica_copy(replica, own, tensor->values, &tensor->layout);
    return job->give ? yoke_replica_put(replica, own, tensor->values, &tensor->layout)
                     : yoke_replica_read(replica, own, false, tensor->values);
}

static yoke_status move_weights(int lane, void *context) {
    const slice_job *job = context;
    yoke_replica *replica = job->parallel->step.lanes[lane].replica;
    for (int i = 0; i < job->state->count; i++) {
        yoke_state_tensor *tensor = &job->state->tensors[i];
        int own = job->best ? tensor->copy_of : tensor->tensor;
        if (tensor->part != (job->best ? YOKE_STATE_BEST : YOKE_STATE_MODEL)) continue;
        if (tensor->info.integer) continue;
        TRY(move_tensor(job, replica, own, tensor));
    }
    return YOKE_OK;
}

/* Values of a slot, at `flat` in the engine's layout. */
static yoke_status convert(const slice_job *job, yoke_device *device, yoke_state_tensor *tensor,
                           float *flat) {
    const yoke_parameter *parameter = &job->parallel->step.flat->parameters[tensor->parameter];
    const yoke_layout *own = tensor->layout.bytes > 0 ? &tensor->layout : &parameter->plain;
    if (job->give)
        return yoke_layout_convert(device, &parameter->layout, flat, own, tensor->values);
    if (!job->state->keeps_layouts || parameter->layout.bytes != parameter->plain.bytes)
        return yoke_layout_convert(device, &parameter->plain, tensor->values, &parameter->layout,
                                   flat);
    tensor->layout = parameter->layout;
    memcpy(tensor->values, flat, parameter->layout.bytes);
    return YOKE_OK;
}

static yoke_status convert_slot(int lane, void *context) {
    const slice_job *job = context;
    yoke_device *device = job->parallel->step.lanes[lane].device;
    for (int i = 0; i < job->state->count; i++) {
        yoke_state_tensor *tensor = &job->state->tensors[i];
        if (tensor->parameter < 0 || tensor->slot != job->slot) continue;
        size_t offset = job->parallel->step.flat->parameters[tensor->parameter].offset;
        TRY(convert(job, device, tensor, job->state->flat + offset));
    }
    return YOKE_OK;
}

/* Take and give. */

static yoke_status take(yoke_state *state, yoke_data_parallel *parallel) {
    yoke_step *step = &parallel->step;
    bool keeps = state->values != NULL;
    slice_job job = {.parallel = parallel, .state = state};
    TRY(yoke_average_check(parallel));
    TRY(fit(state, parallel));
    if (yoke_process_group_goes_on(step->ranks.process_group)) TRY(yoke_ranks_share_buffers(step));
    if (!keeps && !other_ranks_own_slices(parallel)) return YOKE_OK;
    TRY(yoke_lanes_synchronize(step));
    if (keeps) TRY(yoke_apply(step, 1, "read", move_weights, &job));
    for (job.slot = 0; job.slot < state->slots; job.slot++) {
        TRY(gather_slices(&job));
        if (keeps) TRY(yoke_apply(step, 1, "read", convert_slot, &job));
    }
    if (!yoke_averages(parallel) || !keeps) return YOKE_OK;
    TRY(yoke_average_read(parallel, state->flat)); /* every rank has the whole average */
    return yoke_apply(step, 1, "read", convert_slot, &job);
}

yoke_status yoke_state_take(yoke_state *state, yoke_data_parallel *parallel) {
    yoke_step *step = &parallel->step;
    TRY(yoke_enter_settled(parallel, "yoke_state_take"));
    state->steps = step->steps;
    state->batches_tracked = step->batches_tracked;
    state->scale = yoke_data_parallel_scale(parallel, NULL);
    return yoke_leave(parallel, yoke_ranks_report(step, take(state, parallel)));
}

static yoke_status share_steps(yoke_data_parallel *parallel) {
    yoke_step *step = &parallel->step;
    int64_t steps = (int64_t)step->steps;
    if (step->ranks.world > 1)
        TRY(yoke_process_group_broadcast(step->ranks.process_group, &steps, 1, YOKE_ELEMENT_INT64,
                                         0));
    step->steps = (uint64_t)steps;
    return yoke_loss_scaler_share(step);
}

/* One slot's values, in the engine's layout and on every rank. */
static yoke_status share_slot(slice_job *job) {
    const yoke_step *step = &job->parallel->step;
    float *flat = job->state->flat;
    memset(flat, 0, step->flat->elements * sizeof *flat);
    if (job->state->values != NULL)
        TRY(yoke_apply(&job->parallel->step, 1, "write", convert_slot, job));
    if (step->ranks.world == 1) return YOKE_OK;
    return yoke_process_group_broadcast(step->ranks.process_group, flat, step->flat->elements,
                                        YOKE_ELEMENT_FLOAT32, 0);
}

static yoke_status give(yoke_data_parallel *parallel, yoke_state *state) {
    yoke_step *step = &parallel->step;
    bool keeps = state->values != NULL;
    slice_job job = {.parallel = parallel, .state = state, .give = true};
    TRY(yoke_average_check(parallel));
    TRY(fit(state, parallel));
    TRY(yoke_lanes_synchronize(step));
    if (keeps) {
        TRY(yoke_apply(step, 1, "write", move_weights, &job));
        step->steps = state->steps;
        step->batches_tracked = state->batches_tracked;
        yoke_loss_scaler_set(step, &state->scale);
        step->versions.weights++;
        step->versions.buffers++;
    }
    TRY(yoke_data_parallel_broadcast(parallel));
    TRY(share_steps(parallel));
    step->versions.frozen = step->versions.weights; /* frozen weights are new, too */
    for (job.slot = 0; job.slot < state->slots; job.slot++) {
        TRY(share_slot(&job));
        TRY(yoke_apply(step, step->count, "write", move_slices, &job));
    }
    if (yoke_averages(parallel)) {
        TRY(share_slot(&job));
        TRY(yoke_average_write(parallel, state->flat));
    }
    return yoke_run_stage(step, &yoke_stage_replicate);
}

yoke_status yoke_state_give(yoke_data_parallel *parallel, yoke_state *state) {
    TRY(yoke_enter_settled(parallel, "yoke_state_give"));
    return yoke_leave(parallel, yoke_ranks_report(&parallel->step, give(parallel, state)));
}

static const yoke_parameter *parameter_of(const yoke_flat *flat, int tensor) {
    for (int i = 0; i < flat->parameter_count; i++)
        if (flat->parameters[i].tensor == tensor) return &flat->parameters[i];
    return NULL; /* running statistics, which are plain */
}

static yoke_status make_plain(yoke_state_tensor *tensor, yoke_data_parallel *parallel) {
    const yoke_step *step = &parallel->step;
    int own = tensor->tensor >= 0 ? tensor->tensor : tensor->copy_of;
    size_t bytes = tensor->layout.bytes;
    float *as_it_lies = yoke_malloc(bytes);
    if (as_it_lies == NULL) return FAIL_MEMORY(bytes, "a tensor of the kept state");
    memcpy(as_it_lies, tensor->values, bytes);
    yoke_status status =
        yoke_layout_convert(step->lanes[0].device, &parameter_of(step->flat, own)->plain,
                            tensor->values, &tensor->layout, as_it_lies);
    yoke_free(as_it_lies);
    tensor->layout.bytes = 0;
    return status;
}

yoke_status yoke_state_make_plain(yoke_state *state, yoke_data_parallel *parallel) {
    for (int i = 0; i < state->count; i++)
        if (state->tensors[i].layout.bytes > 0) TRY(make_plain(&state->tensors[i], parallel));
    return YOKE_OK;
}

uint64_t yoke_state_digest(const yoke_state *state) {
    size_t elements = 0;
    for (int i = 0; i < state->count; i++)
        if (!state->tensors[i].info.integer) elements += state->tensors[i].info.count;
    return XXH3_64bits_withSeed(state->values, elements * sizeof *state->values, state->steps);
}

/* The best model: rank 0 keeps it, or every rank that keeps values. */

static yoke_status move_best(yoke_data_parallel *parallel, yoke_state *state, bool give) {
    yoke_step *step = &parallel->step;
    slice_job job = {.parallel = parallel, .state = state, .give = give, .best = true};
    if (!give && state->values == NULL) return YOKE_OK;
    TRY(yoke_lanes_synchronize(step));
    if (state->values != NULL)
        TRY(yoke_apply(step, 1, give ? "write" : "read", move_weights, &job));
    if (!give) return YOKE_OK;
    step->versions.weights++;
    step->versions.buffers++;
    TRY(yoke_data_parallel_broadcast(parallel));
    return yoke_run_stage(step, &yoke_stage_replicate);
}

yoke_status yoke_state_keep_best(yoke_state *state, yoke_data_parallel *parallel) {
    TRY(yoke_enter_settled(parallel, "yoke_state_keep_best"));
    yoke_status status = move_best(parallel, state, false);
    return yoke_leave(parallel, yoke_ranks_report(&parallel->step, status));
}

yoke_status yoke_state_give_best(yoke_data_parallel *parallel, yoke_state *state) {
    TRY(yoke_enter_settled(parallel, "yoke_state_give_best"));
    yoke_status status = move_best(parallel, state, true);
    return yoke_leave(parallel, yoke_ranks_report(&parallel->step, status));
}

yoke_status yoke_state_share_best(yoke_state *state, yoke_data_parallel *parallel) {
    for (int i = 0; i < state->count; i++) {
        const yoke_state_tensor *tensor = &state->tensors[i];
        if (tensor->part != YOKE_STATE_BEST || tensor->info.integer) continue;
        TRY(yoke_process_group_broadcast(parallel->step.ranks.process_group, tensor->values,
                                         tensor->info.count, YOKE_ELEMENT_FLOAT32, 0));
    }
    return YOKE_OK;
}
