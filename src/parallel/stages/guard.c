/* SPDX-License-Identifier: Apache-2.0 */
/* What a failed step must not spoil: running statistics return to those before it, and no weight is
 * updated from a loss or gradient that is not finite. */
#include "parallel/stages/stage_table.h"

int yoke_guard_count(const yoke_step *step) {
    if (step->options.inference) return 0;
    return step->queued ? YOKE_GUARDS : 1;
}

yoke_status yoke_guard_create(yoke_step *step) {
    size_t bytes = step->flat->buffer_elements * sizeof(float);
    for (int i = 0; i < yoke_guard_count(step) && bytes > 0; i++)
        TRY(yoke_memory_advice(yoke_device_allocate(step->lanes[0].device, bytes,
                                                    "running statistics",
                                                    (void **)&step->guards[i].buffers),
                               YOKE_ADVICE_MODEL));
    return YOKE_OK;
}

void yoke_guard_destroy(yoke_step *step) {
    for (int i = 0; i < YOKE_GUARDS; i++)
        if (step->guards[i].buffers != NULL)
            yoke_device_free(step->lanes[0].device, step->guards[i].buffers);
}

static yoke_guard *guard_of(yoke_step *step) {
    return &step->guards[step->guard];
}

static yoke_status copy_buffers(yoke_step *step, float *to, const float *from) {
    yoke_device *root = step->lanes[0].device;
    if (step->flat->buffer_elements == 0) return YOKE_OK;
    return yoke_device_copy(root, YOKE_STREAM_COMPUTE, to, root, from,
                            step->flat->buffer_elements * sizeof *to);
}

/* A recording holds the copy into the guard of its turn. */
yoke_status yoke_guard_begin(yoke_step *step, bool recorded) {
    step->guard = recorded ? step->watch.turn : yoke_guard_count(step) - 1 - step->guard;
    guard_of(step)->batches_tracked = step->batches_tracked;
    guard_of(step)->holds = false;
    yoke_exchange_forget(step->exchange);
    atomic_store(&step->exchange->change, YOKE_CHANGED_NOTHING);
    return recorded ? YOKE_OK : yoke_guard_keep(step);
}

yoke_status yoke_guard_keep(yoke_step *step) {
    if (!yoke_device_is_recording(step->lanes[0].device)) guard_of(step)->holds = true;
    return copy_buffers(step, guard_of(step)->buffers, step->lanes[0].memory->buffers);
}

yoke_status yoke_guard_give_statistics(yoke_step *step) {
    return copy_buffers(step, step->lanes[0].memory->buffers, guard_of(step)->buffers);
}

yoke_status yoke_guard_restore(yoke_step *step) {
    step->batches_tracked = guard_of(step)->batches_tracked;
    step->versions.buffers++;
    yoke_average_uncount(step, step->steps);
    yoke_replica_renew_shadow(step->lanes[0].replica); /* an undo restores owners' weights alone */
    if (step->exchange->publishes_shadow) step->versions.weights++;
    if (!guard_of(step)->holds) return YOKE_OK;
    return copy_buffers(step, step->lanes[0].memory->buffers, guard_of(step)->buffers);
}

/* By hand nothing has kept the running statistics: they stay, as in PyTorch. */
yoke_status yoke_guard_end(yoke_step *step, yoke_status status, bool published) {
    step->flight.left_out = status == YOKE_ERROR_NUMERIC && step->scaler.is_dynamic &&
                            yoke_exchange_first_bad(step->exchange) != YOKE_ALL_FINITE;
    if (!step->flight.left_out) {
        TRY(status);
        yoke_count_update(step, published);
        return YOKE_OK;
    }
    yoke_error_forget();
    if (step->flight.host != NULL) TRY(yoke_guard_restore(step));
    return yoke_loss_scaler_skip(step);
}

static yoke_status check_loss(yoke_step *step) {
    if (yoke_flight_is_finite_so_far(&step->flight)) return YOKE_OK;
    return FAIL(YOKE_ERROR_NUMERIC, "the loss is not finite");
}

const yoke_stage_def yoke_stage_check_loss = {
    .stage = YOKE_NO_STAGE, .place = YOKE_ON_HOST, .work = check_loss};

yoke_status yoke_settle(yoke_step *step, uint64_t before) {
    uint64_t bad_step = UINT64_MAX;
    TRY(yoke_exchange_settle(step->exchange, before, &bad_step));
    if (bad_step == UINT64_MAX) return YOKE_OK;
    uint64_t bad = yoke_exchange_first_bad(step->exchange);
    yoke_models_uncount(step, bad_step);
    step->steps = bad_step;
    TRY(yoke_guard_restore(step));
    if (step->scaler.is_dynamic) {
        step->flight.left_out = true;
        yoke_loss_scaler_uncount(step);
        return yoke_loss_scaler_skip(step);
    }
    return FAIL(YOKE_ERROR_NUMERIC,
                "step %llu: the gradient of %s is not finite, as the devices found after the step "
                "had answered. The weights are those before that step; try a lower learning rate, "
                "warm-up or gradient clipping",
                (unsigned long long)bad_step,
                bad != YOKE_ALL_FINITE ? yoke_exchange_parameter_at(step->exchange, bad)
                                       : "another rank");
}

const yoke_stage_def yoke_stage_keep_statistics = {
    .stage = YOKE_NO_STAGE, .place = YOKE_ON_HOST, .work = yoke_shards_keep_statistics};
