/* SPDX-License-Identifier: Apache-2.0 */
/* What a failed step must not spoil, and how its error names the cause. */
#include "parallel/guard.h"

#include <math.h>
#include <stdio.h>

#include "parallel/engine.h"

int yoke_guard_count(const yoke_data_parallel *parallel) {
    if (parallel->options.inference) return 0;
    return parallel->queued ? YOKE_GUARDS : 1;
}

yoke_status yoke_guard_create(yoke_data_parallel *parallel) {
    size_t bytes = parallel->flat->buffer_elements * sizeof(float);
    for (int i = 0; i < yoke_guard_count(parallel) && bytes > 0; i++)
        TRY(yoke_memory_advice(yoke_device_allocate(parallel->lanes[0].device, bytes,
                                                    "running statistics",
                                                    (void **)&parallel->guards[i].buffers),
                               YOKE_ADVICE_MODEL));
    return YOKE_OK;
}

void yoke_guard_destroy(yoke_data_parallel *parallel) {
    for (int i = 0; i < YOKE_GUARDS; i++)
        if (parallel->guards[i].buffers != NULL)
            yoke_device_free(parallel->lanes[0].device, parallel->guards[i].buffers);
}

static yoke_guard *guard_of(yoke_data_parallel *parallel) {
    return &parallel->guards[parallel->steps % (uint64_t)yoke_guard_count(parallel)];
}

static yoke_status copy_buffers(yoke_data_parallel *parallel, float *to, const float *from) {
    yoke_device *root = parallel->lanes[0].device;
    if (parallel->flat->buffer_elements == 0) return YOKE_OK;
    return yoke_device_copy(root, YOKE_STREAM_COMPUTE, to, root, from,
                            parallel->flat->buffer_elements * sizeof *to);
}

yoke_status yoke_guard_begin(yoke_data_parallel *parallel) {
    guard_of(parallel)->batches_tracked = parallel->batches_tracked;
    yoke_exchange_forget(parallel->exchange);
    atomic_store(&parallel->exchange->change, YOKE_CHANGED_NOTHING);
    parallel->is_torn = false;
    return copy_buffers(parallel, guard_of(parallel)->buffers, parallel->lanes[0].memory->buffers);
}

yoke_status yoke_guard_restore(yoke_data_parallel *parallel) {
    parallel->batches_tracked = guard_of(parallel)->batches_tracked;
    parallel->buffers_version++;
    yoke_replica_renew_shadow(parallel->lanes[0].replica); /* an undo restores the weights alone */
    return copy_buffers(parallel, parallel->lanes[0].memory->buffers, guard_of(parallel)->buffers);
}

yoke_status yoke_guard_check_loss(const yoke_data_parallel *parallel) {
    if (yoke_flight_is_finite_so_far(&parallel->flight)) return YOKE_OK;
    return FAIL(YOKE_ERROR_NUMERIC, "the loss is not finite");
}

/* The parameter that holds a flat element. */
static const char *parameter_at(const yoke_data_parallel *parallel, uint64_t element) {
    const yoke_flat *flat = parallel->flat;
    yoke_tensor_info info = {.struct_size = sizeof info};
    int at = 0;
    while (at < flat->parameter_count - 1 && flat->parameters[at + 1].offset <= element)
        at++;
    if (yoke_model_tensor(parallel->model, flat->parameters[at].tensor, &info) != YOKE_OK)
        return "a parameter";
    return info.name;
}

yoke_status yoke_guard_check_gradient(const yoke_data_parallel *parallel) {
    uint64_t bad = yoke_exchange_first_bad(parallel->exchange);
    if (bad == YOKE_ALL_FINITE) return YOKE_OK;
    return FAIL(YOKE_ERROR_NUMERIC,
                "the gradient of %s is not finite; the weights are those before the update",
                parameter_at(parallel, bad));
}

yoke_status yoke_guard_undo(yoke_data_parallel *parallel, uint64_t step) {
    uint64_t bad = yoke_exchange_first_bad(parallel->exchange);
    parallel->steps = step;
    TRY(yoke_guard_restore(parallel));
    return FAIL(YOKE_ERROR_NUMERIC,
                "step %llu: the gradient of %s is not finite, as the devices found after the step "
                "had answered. The weights are those before that step; try a lower learning rate, "
                "warm-up or gradient clipping",
                (unsigned long long)step,
                bad != YOKE_ALL_FINITE ? parameter_at(parallel, bad) : "another rank");
}

typedef struct bad_layers {
    const yoke_data_parallel *parallel;
    const char *layers[YOKE_DEVICES_LIMIT]; /* NULL: every value of the last forward is finite */
} bad_layers;

static yoke_status find_bad_layer(int lane, void *context) {
    bad_layers *found = context;
    const yoke_data_parallel *parallel = found->parallel;
    bool idle = yoke_flight_is_idle(parallel, lane);
    found->layers[lane] = idle ? NULL : yoke_replica_first_nonfinite(parallel->lanes[lane].replica);
    return YOKE_OK;
}

/* What a step does behind its update. Running statistics that are kept already stay as they are. */
static yoke_status finish_step(yoke_data_parallel *parallel) {
    TRY(yoke_shards_keep_statistics(parallel));
    yoke_count_update(parallel);
    return yoke_average_update(parallel);
}

/* A step that failed after its update has been taken, though without a result; of any other one
 * the weights may be left. Part of the root's weights may be new: the other replicas follow it
 * again. No later step waits for what was queued before the failure, so this one does. */
static yoke_status recover(yoke_data_parallel *parallel, yoke_status status) {
    /* The other ranks learn of it first: rank 0 may wait until they write no more weights. */
    yoke_error cause = yoke_error_take(yoke_ranks_report(parallel, status));
    yoke_change change = yoke_exchange_recover(parallel->exchange);
    (void)yoke_timeline_read(parallel);
    if (change != YOKE_CHANGED_ALL) {
        parallel->weights_version++;
        (void)yoke_guard_restore(parallel);
    } else if (finish_step(parallel) != YOKE_OK) {
        change = YOKE_CHANGED_PART;
    }
    parallel->is_torn = change == YOKE_CHANGED_PART;
    return yoke_error_restore(&cause);
}

yoke_status yoke_guard_fail(yoke_data_parallel *parallel, yoke_status status) {
    char what[192] = "loss", where[160] = "";
    bad_layers found = {.parallel = parallel};
    if (parallel->exchange->kind->drop != NULL) parallel->exchange->kind->drop(parallel->exchange);
    if (status != YOKE_ERROR_NUMERIC) return recover(parallel, status);
    uint64_t bad = yoke_exchange_first_bad(parallel->exchange);
    if (bad != YOKE_ALL_FINITE)
        snprintf(what, sizeof what, "gradient of %s", parameter_at(parallel, bad));
    TRY(yoke_apply(parallel, parallel->count, "loss", find_bad_layer, &found));
    TRY(yoke_guard_restore(parallel));
    for (int k = parallel->count - 1; k >= 0; k--)
        if (found.layers[k] != NULL)
            snprintf(where, sizeof where, ", first at %s on replica %d (%s)", found.layers[k], k,
                     yoke_device_name(parallel->lanes[k].device));
    return FAIL(YOKE_ERROR_NUMERIC,
                "step %llu: the %s is not finite%s. The weights are those before the step; try a "
                "lower learning rate, warm-up or gradient clipping",
                (unsigned long long)parallel->steps, what, where);
}
