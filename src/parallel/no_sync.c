/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients that add up over backward calls by hand, and the call that forgets them. */
#include "parallel/no_sync.h"

#include "parallel/engine.h"

static yoke_status allocate_sum(int lane, void *context) {
    yoke_data_parallel *parallel = context;
    float **sum = &parallel->unsynced.sums[lane];
    if (*sum != NULL) return YOKE_OK;
    return yoke_memory_advice(
        yoke_device_allocate(parallel->lanes[lane].device,
                             parallel->flat->trainable_elements * sizeof **sum,
                             "gradients that add up", (void **)sum),
        "they are as large as the model, whatever the rows: without no_sync there are none");
}

static yoke_status no_sync(yoke_data_parallel *parallel, bool on) {
    if (on) TRY(yoke_apply(parallel, parallel->count, "no_sync", allocate_sum, parallel));
    parallel->unsynced.on = on;
    return YOKE_OK;
}

yoke_status yoke_no_sync(yoke_data_parallel *parallel, bool on) {
    TRY(yoke_enter_settled(parallel, "yoke_no_sync"));
    return yoke_leave(parallel, no_sync(parallel, on));
}

/* What the last backward left in the replicas is forgotten, too: no reduce may take it. */
yoke_status yoke_zero_grad(yoke_data_parallel *parallel) {
    TRY(yoke_enter_settled(parallel, "yoke_zero_grad"));
    parallel->unsynced.holds = false;
    parallel->gradient_on_root = false;
    if (parallel->flight.progress == YOKE_STAGE_BACKWARD)
        parallel->flight.progress = YOKE_STAGE_SCATTER;
    return yoke_leave(parallel, YOKE_OK);
}

void yoke_unsynced_close(yoke_data_parallel *parallel) {
    for (int k = 0; k < parallel->count; k++)
        if (parallel->unsynced.sums[k] != NULL)
            yoke_device_free(parallel->lanes[k].device, parallel->unsynced.sums[k]);
}

void yoke_unsynced_begin(yoke_data_parallel *parallel) {
    parallel->unsynced.added = false;
}

/* to = sum + gradient, or the only one of them there is. A lane without rows has a gradient of
 * zeros, so every lane's sum is whole. */
static yoke_status combine(yoke_data_parallel *parallel, int lane, bool to_sum, bool both) {
    yoke_device *device = parallel->lanes[lane].device;
    float *sum = parallel->unsynced.sums[lane];
    float *gradient = parallel->lanes[lane].memory->gradients;
    size_t elements = parallel->flat->trainable_elements;
    if (both)
        return yoke_device_sum(device, YOKE_STREAM_COMPUTE, to_sum ? sum : gradient,
                               (const float *const[]){sum, gradient}, 2, elements);
    return yoke_device_copy(device, YOKE_STREAM_COMPUTE, to_sum ? sum : gradient, device,
                            to_sum ? gradient : sum, elements * sizeof *sum);
}

static yoke_status add_gradient(int lane, void *context) {
    yoke_data_parallel *parallel = context;
    return combine(parallel, lane, true, parallel->unsynced.holds);
}

static yoke_status take_sum(int lane, void *context) {
    yoke_data_parallel *parallel = context;
    return combine(parallel, lane, false, !parallel->unsynced.added);
}

static int larger(int a, int b) {
    return a > b ? a : b;
}

yoke_status yoke_unsynced_add(yoke_data_parallel *parallel) {
    yoke_unsynced *own = &parallel->unsynced;
    if (!own->on) return YOKE_OK;
    TRY(yoke_apply(parallel, parallel->count, "no_sync", add_gradient, parallel));
    own->contributors = larger(own->holds ? own->contributors : 0, parallel->flight.contributors);
    own->holds = own->added = true;
    return YOKE_OK;
}

bool yoke_unsynced_is_whole(const yoke_data_parallel *parallel) {
    return parallel->unsynced.holds && parallel->unsynced.added;
}

yoke_status yoke_unsynced_take(yoke_data_parallel *parallel) {
    yoke_unsynced *own = &parallel->unsynced;
    if (own->on)
        return FAIL(YOKE_ERROR_ARGUMENT, "yoke_reduce: no_sync is on, gradients add up in the "
                                         "replicas; call yoke_no_sync(engine, false) first");
    if (!own->holds) return YOKE_OK;
    TRY(yoke_apply(parallel, parallel->count, "no_sync", take_sum, parallel));
    parallel->flight.contributors = larger(own->contributors, parallel->flight.contributors);
    own->holds = false;
    return YOKE_OK;
}

yoke_status yoke_unsynced_check_step(const yoke_data_parallel *parallel) {
    const yoke_unsynced *own = &parallel->unsynced;
    if (!own->on && !own->holds) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "yoke_data_parallel_step: %s; a step has a gradient of its "
                "own",
                own->on ? "no_sync is on; turn it off"
                        : "gradients wait for yoke_reduce; call it, or yoke_zero_grad");
}
