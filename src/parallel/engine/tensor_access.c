/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of the root by name, and the hash over all of them. */
#include <stdlib.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "parallel/engine/average.h"
#include "parallel/engine/entry.h"
#include "parallel/stages/stages.h"

/* Finds the tensor, or its gradient, and waits until all that was queued has run. */
static yoke_status find_and_wait(yoke_data_parallel *parallel, const char *name, bool gradient,
                                 const float *values, size_t count, int *tensor) {
    yoke_step *step = &parallel->step;
    const char *near = NULL;
    yoke_tensor_info info = {.struct_size = sizeof info};
    TRY(yoke_pointer_check(name, "name"));
    *tensor = yoke_model_find_tensor(step->model, name, &near);
    if (*tensor < 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s has no tensor \"%s\"%s%s%s",
                    yoke_model_name(step->model), name, near ? "; did you mean \"" : "",
                    near ? near : "", near ? "\"?" : "");
    TRY(yoke_model_tensor(step->model, *tensor, &info));
    if (info.integer)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s is an integer counter, kept by the engine", name);
    if (info.count != count)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s has %zu elements, not %zu", name, info.count, count);
    if (gradient && !info.trainable)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s is a running statistic: it has no gradient", name);
    if (gradient && yoke_groups_freeze(&step->groups, *tensor))
        return FAIL(YOKE_ERROR_ARGUMENT, "%s is frozen: it has no gradient", name);
    if (gradient && !step->gradient.on_root)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "no reduced gradient is on the root: call yoke_data_parallel_backward or "
                    "yoke_data_parallel_reduce first");
    TRY(yoke_pointer_check(values, "values"));
    return yoke_lanes_synchronize(step);
}

static yoke_status read(yoke_data_parallel *parallel, const char *name, bool gradient,
                        float *values, size_t count) {
    int tensor = -1;
    TRY(find_and_wait(parallel, name, gradient, values, count, &tensor));
    TRY(yoke_replica_read(parallel->step.lanes[0].replica, tensor, gradient, values));
    return gradient ? yoke_gradient_unscale(&parallel->step, NULL, values, count) : YOKE_OK;
}

/* The caller's is without the scale of the loss. */
static yoke_status scale_gradient(const yoke_step *step, int tensor) {
    const yoke_lane *root = &step->lanes[0];
    const yoke_parameter *parameter = step->flat->parameters;
    while (parameter->tensor != tensor)
        parameter++;
    return yoke_gradient_scale(step, root->device, root->memory->gradients + parameter->offset,
                               parameter->layout.bytes / sizeof(float));
}

static yoke_status write(yoke_data_parallel *parallel, const char *name, bool gradient,
                         const float *values, size_t count) {
    yoke_step *step = &parallel->step;
    int tensor = -1;
    TRY(find_and_wait(parallel, name, gradient, values, count, &tensor));
    TRY(yoke_replica_write(step->lanes[0].replica, tensor, gradient, values));
    if (gradient) {
        TRY(scale_gradient(step, tensor));
        yoke_reach_written(&step->reach, tensor, values, count);
        return YOKE_OK;
    }
    step->versions.weights++;
    if (yoke_groups_freeze(&step->groups, tensor)) step->versions.frozen = step->versions.weights;
    step->versions.buffers++;
    return YOKE_OK;
}

yoke_status yoke_data_parallel_read(yoke_data_parallel *parallel, const char *name, float *values,
                                    size_t count) {
    TRY(yoke_enter_settled(parallel, "yoke_data_parallel_read"));
    return yoke_leave(parallel, read(parallel, name, false, values, count));
}

yoke_status yoke_data_parallel_write(yoke_data_parallel *parallel, const char *name,
                                     const float *values, size_t count) {
    TRY(yoke_enter_settled(parallel, "yoke_data_parallel_write"));
    return yoke_leave(parallel, write(parallel, name, false, values, count));
}

yoke_status yoke_data_parallel_read_gradient(yoke_data_parallel *parallel, const char *name,
                                             float *values, size_t count) {
    TRY(yoke_enter_settled(parallel, "yoke_data_parallel_read_gradient"));
    return yoke_leave(parallel, read(parallel, name, true, values, count));
}

yoke_status yoke_data_parallel_write_gradient(yoke_data_parallel *parallel, const char *name,
                                              const float *values, size_t count) {
    TRY(yoke_enter_settled(parallel, "yoke_data_parallel_write_gradient"));
    return yoke_leave(parallel, write(parallel, name, true, values, count));
}

/* Copies of weights. Between the two engines the values lie on the host, so that no thread ever
 * holds both. */

static yoke_status count_values(const yoke_model *model, size_t *count) {
    *count = 0;
    for (int i = 0; i < yoke_model_tensor_count(model); i++) {
        yoke_tensor_info info = {.struct_size = sizeof info};
        TRY(yoke_model_tensor(model, i, &info));
        if (!info.integer) *count += info.count;
    }
    return YOKE_OK;
}

/* All tensors of the model, by name, from or to an engine that has them. */
static yoke_status move_tensors(yoke_data_parallel *parallel, const yoke_model *model, bool give,
                                float *values) {
    for (int i = 0; i < yoke_model_tensor_count(model); i++) {
        yoke_tensor_info info = {.struct_size = sizeof info};
        TRY(yoke_model_tensor(model, i, &info));
        if (info.integer) continue;
        TRY(give ? write(parallel, info.name, false, values, info.count)
                 : read(parallel, info.name, false, values, info.count));
        values += info.count;
    }
    return YOKE_OK;
}

static yoke_status copy_weights(yoke_data_parallel *parallel, yoke_data_parallel *from,
                                float *values) {
    yoke_step *step = &parallel->step;
    TRY(yoke_enter_settled(from, "yoke_data_parallel_copy_weights"));
    uint64_t batches = from->step.batches_tracked;
    TRY(yoke_leave(from, move_tensors(from, step->model, false, values)));
    TRY(yoke_enter_settled(parallel, "yoke_data_parallel_copy_weights"));
    step->batches_tracked = batches;
    return yoke_leave(parallel, move_tensors(parallel, step->model, true, values));
}

yoke_status yoke_data_parallel_copy_weights(yoke_data_parallel *parallel,
                                            yoke_data_parallel *from) {
    size_t count;
    TRY(yoke_pointer_check(parallel, "parallel"));
    TRY(yoke_pointer_check(from, "from"));
    TRY(count_values(parallel->step.model, &count));
    float *values = yoke_malloc(count * sizeof *values);
    if (values == NULL) return FAIL_MEMORY(count * sizeof *values, "weights on their way");
    yoke_status status = copy_weights(parallel, from, values);
    yoke_free(values);
    return status;
}

static yoke_status hash_tensors(yoke_data_parallel *parallel, XXH3_state_t *state) {
    yoke_step *step = &parallel->step;
    float *values = NULL;
    yoke_status status = YOKE_OK;
    for (int i = 0; i < yoke_model_tensor_count(step->model) && status == YOKE_OK; i++) {
        yoke_tensor_info info = {.struct_size = sizeof info};
        TRY(yoke_model_tensor(step->model, i, &info));
        if (info.integer) continue;
        size_t bytes = info.count * sizeof *values;
        values = yoke_malloc(bytes);
        if (values == NULL) return FAIL_MEMORY(bytes, info.name);
        status = yoke_replica_read(step->lanes[0].replica, i, false, values);
        if (status == YOKE_OK) XXH3_64bits_update(state, values, bytes);
        yoke_free(values);
    }
    return status;
}

static yoke_status hash_root(yoke_data_parallel *parallel, uint64_t *hash) {
    TRY(yoke_pointer_check(hash, "hash"));
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    yoke_status status = yoke_lanes_synchronize(&parallel->step);
    if (status == YOKE_OK) status = hash_tensors(parallel, &state);
    if (status == YOKE_OK) *hash = XXH3_64bits_digest(&state);
    return status;
}

yoke_status yoke_data_parallel_hash(yoke_data_parallel *parallel, uint64_t *hash) {
    TRY(yoke_enter_settled(parallel, "yoke_data_parallel_hash"));
    return yoke_leave(parallel, hash_root(parallel, hash));
}
