/* SPDX-License-Identifier: Apache-2.0 */
/* The flat memory of an engine of one CPU device, for those who keep several engines alike. */
#include "parallel/engine/entry.h"
#include "parallel/stages/stages.h"

yoke_status yoke_data_parallel_flat(yoke_data_parallel *parallel, yoke_flat_view *view) {
    const yoke_step *step = &parallel->step;
    const yoke_replica_memory *memory = step->lanes[0].memory;
    if (step->queued || step->count > 1)
        return FAIL(YOKE_ERROR_ARGUMENT, "asynchronous and local SGD are for CPU devices");
    *view = (yoke_flat_view){.parameters = memory->parameters,
                             .gradients = memory->gradients,
                             .buffers = memory->buffers,
                             .elements = step->flat->elements,
                             .trainable = step->flat->trainable_elements,
                             .buffer_elements = step->flat->buffer_elements};
    return YOKE_OK;
}

yoke_status yoke_data_parallel_wrote_weights(yoke_data_parallel *parallel) {
    yoke_step *step = &parallel->step;
    TRY(yoke_enter_settled(parallel, "yoke_data_parallel_wrote_weights"));
    step->versions.weights++;
    step->versions.buffers++;
    step->versions.frozen = step->versions.weights;
    yoke_replica_renew_shadow(step->lanes[0].replica);
    return yoke_leave(parallel, yoke_run_stage(step, &yoke_stage_replicate));
}

void yoke_data_parallel_wrote_gradient(yoke_data_parallel *parallel) {
    yoke_step *step = &parallel->step;
    step->gradient.on_root = true;
    step->gradient.is_used = false;
    step->reach.gradient = ~0u;
}

void yoke_data_parallel_count_steps(yoke_data_parallel *parallel, uint64_t steps) {
    parallel->step.steps = steps;
}
