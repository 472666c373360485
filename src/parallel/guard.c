/* A step that fails must spoil nothing it need not: running statistics are kept from before it.
 * After a loss that is not finite no weight is updated, and the first layer that went wrong is
 * named. */
#include <math.h>
#include <stdio.h>

#include "parallel/engine.h"

static yoke_status copy_buffers(yoke_data_parallel *parallel, float *to, const float *from) {
    if (parallel->flat->buffer_elements == 0) return YOKE_OK;
    yoke_device *root = yoke_devices_at(parallel->devices, 0);
    return yoke_device_copy(root, YOKE_STREAM_COMPUTE, to, root, from,
                            parallel->flat->buffer_elements * sizeof *to);
}

yoke_status yoke_guard_begin(yoke_data_parallel *parallel) {
    parallel->good_batches_tracked = parallel->batches_tracked;
    return copy_buffers(parallel, parallel->good_buffers,
                        yoke_replica_memory_of(parallel->replicas[0])->buffers);
}

bool yoke_losses_finite(const yoke_data_parallel *parallel) {
    for (int k = 0; k < parallel->count; k++)
        if (parallel->shards[k].rows > 0 && !isfinite(parallel->loss_sums[k])) return false;
    return true;
}

yoke_status yoke_check_losses(const yoke_data_parallel *parallel) {
    if (yoke_losses_finite(parallel)) return YOKE_OK;
    return FAIL(YOKE_ERROR_NUMERIC, "the loss is not finite");
}

/* Of all ranks: after their results were added. */
yoke_status yoke_check_loss(const yoke_data_parallel *parallel) {
    if (isfinite(parallel->result.loss)) return YOKE_OK;
    return FAIL(YOKE_ERROR_NUMERIC, "the loss is not finite");
}

/* Only clipping knows the norm before the first update; without it a gradient that is not finite is
 * noticed by the next loss, and by saving, which refuses such weights. */
yoke_status yoke_check_norm(const yoke_data_parallel *parallel) {
    if (isfinite(parallel->gradient_norm)) return YOKE_OK;
    return FAIL(YOKE_ERROR_NUMERIC, "the gradient is not finite");
}

yoke_status yoke_guard_restore(yoke_data_parallel *parallel) {
    parallel->batches_tracked = parallel->good_batches_tracked;
    parallel->buffers_version++;
    return copy_buffers(parallel, yoke_replica_memory_of(parallel->replicas[0])->buffers,
                        parallel->good_buffers);
}

static yoke_status find_bad_layer(int replica, void *context) {
    yoke_data_parallel *parallel = context;
    bool idle = parallel->shards[replica].rows == 0;
    parallel->bad_layers[replica] =
        idle ? NULL : yoke_replica_first_nonfinite(parallel->replicas[replica]);
    return YOKE_OK;
}

/* Part of the root's weights may be new: the other replicas follow it again. What was queued before
 * the failure has run when the step ends, for no later one waits for it. */
static yoke_status recover(yoke_data_parallel *parallel, yoke_status status) {
    yoke_error cause = yoke_error_take(status);
    parallel->weights_version++;
    (void)yoke_spans_read(parallel);
    (void)yoke_guard_restore(parallel);
    return yoke_error_restore(&cause);
}

/* Where values went wrong first, in words; empty when every value of forward is finite. */
static void describe_bad_layer(const yoke_data_parallel *parallel, char *text, size_t size) {
    text[0] = 0;
    for (int k = parallel->count - 1; k >= 0; k--)
        if (parallel->bad_layers[k] != NULL)
            snprintf(text, size, ", first at %s on replica %d (%s)", parallel->bad_layers[k], k,
                     yoke_device_name(yoke_devices_at(parallel->devices, k)));
}

yoke_status yoke_guard_fail(yoke_data_parallel *parallel, yoke_status status) {
    if (status != YOKE_ERROR_NUMERIC) return recover(parallel, status);
    char where[160];
    TRY(yoke_apply(parallel, YOKE_STAGE_LOSS, find_bad_layer));
    TRY(yoke_guard_restore(parallel));
    describe_bad_layer(parallel, where, sizeof where);
    return FAIL(YOKE_ERROR_NUMERIC,
                "step %llu: the %s is not finite%s. The weights are those before the step; try a "
                "lower learning rate, warm-up or gradient clipping",
                (unsigned long long)parallel->steps,
                isfinite(parallel->gradient_norm) ? "loss" : "gradient", where);
}
