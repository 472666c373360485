/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients that add up over backward calls by hand, and the call that forgets them. */
#include "parallel/stages/no_sync.h"

static yoke_status allocate_sum(int lane, void *context) {
    yoke_step *step = context;
    float **sum = &step->gradient.unsynced.sums[lane];
    if (*sum != NULL) return YOKE_OK;
    return yoke_memory_advice(
        yoke_device_allocate(step->lanes[lane].device,
                             step->flat->trainable_elements * sizeof **sum, "gradients that add up",
                             (void **)sum),
        "they are as large as the model, whatever the rows: without no_sync there are none");
}

yoke_status yoke_unsynced_turn(yoke_step *step, bool on) {
    if (on) TRY(yoke_apply(step, step->count, "no_sync", allocate_sum, step));
    step->gradient.unsynced.on = on;
    return YOKE_OK;
}

/* What the last backward left in the replicas is forgotten, too. */
void yoke_unsynced_forget(yoke_step *step) {
    step->gradient.unsynced.holds = false;
    step->gradient.on_root = false;
    if (step->flight.progress == YOKE_STAGE_BACKWARD) step->flight.progress = YOKE_STAGE_SCATTER;
}

void yoke_unsynced_close(yoke_step *step) {
    for (int k = 0; k < step->count; k++)
        if (step->gradient.unsynced.sums[k] != NULL)
            yoke_device_free(step->lanes[k].device, step->gradient.unsynced.sums[k]);
}

void yoke_unsynced_begin(yoke_step *step) {
    step->gradient.unsynced.added = false;
}

/* to = sum + gradient, or the only one of them there is. A lane without rows has a gradient of
 * zeros, so every lane's sum is whole. */
static yoke_status combine(yoke_step *step, int lane, bool to_sum, bool both) {
    yoke_device *device = step->lanes[lane].device;
    float *sum = step->gradient.unsynced.sums[lane];
    float *gradient = step->lanes[lane].memory->gradients;
    size_t elements = step->flat->trainable_elements;
    if (both)
        return yoke_device_sum(device, YOKE_STREAM_COMPUTE, to_sum ? sum : gradient,
                               (const float *const[]){sum, gradient}, 2, elements);
    return yoke_device_copy(device, YOKE_STREAM_COMPUTE, to_sum ? sum : gradient, device,
                            to_sum ? gradient : sum, elements * sizeof *sum);
}

static yoke_status add_gradient(int lane, void *context) {
    yoke_step *step = context;
    return combine(step, lane, true, step->gradient.unsynced.holds);
}

static yoke_status take_sum(int lane, void *context) {
    yoke_step *step = context;
    return combine(step, lane, false, !step->gradient.unsynced.added);
}

static int larger(int a, int b) {
    return a > b ? a : b;
}

yoke_status yoke_unsynced_add(yoke_step *step) {
    yoke_unsynced *own = &step->gradient.unsynced;
    if (!own->on) return YOKE_OK;
    TRY(yoke_apply(step, step->count, "no_sync", add_gradient, step));
    own->contributors = larger(own->holds ? own->contributors : 0, step->flight.contributors);
    own->holds = own->added = true;
    return YOKE_OK;
}

bool yoke_unsynced_is_whole(const yoke_step *step) {
    return step->gradient.unsynced.holds && step->gradient.unsynced.added;
}

yoke_status yoke_unsynced_take(yoke_step *step) {
    yoke_unsynced *own = &step->gradient.unsynced;
    if (own->on)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "yoke_data_parallel_reduce: no_sync is on, gradients add up in the "
                    "replicas; call yoke_data_parallel_no_sync(engine, false) first");
    if (!own->holds) return YOKE_OK;
    TRY(yoke_apply(step, step->count, "no_sync", take_sum, step));
    step->flight.contributors = larger(own->contributors, step->flight.contributors);
    own->holds = false;
    return YOKE_OK;
}

yoke_status yoke_unsynced_check_step(const yoke_step *step) {
    const yoke_unsynced *own = &step->gradient.unsynced;
    if (!own->on && !own->holds) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "yoke_data_parallel_step: %s; a step has a gradient of its "
                "own",
                own->on ? "no_sync is on; turn it off"
                        : "gradients wait for yoke_data_parallel_reduce; call it, or "
                          "yoke_data_parallel_zero_grad");
}
