/* SPDX-License-Identifier: Apache-2.0 */
/* Which parameters the losses reach: bits of outputs, from the model to the optimizer. */
#include "parallel/step/reach.h"

#include <stdlib.h>

yoke_status yoke_reach_create(yoke_step *step) {
    size_t tensors = (size_t)yoke_model_tensor_count(step->model);
    if (yoke_model_output_count(step->model) < 2) return YOKE_OK;
    unsigned *outputs = step->reach.outputs = yoke_calloc(tensors, sizeof *outputs);
    if (outputs == NULL) return FAIL_MEMORY(tensors * sizeof *outputs, "what a loss reaches");
    return yoke_model_reach(step->model, outputs);
}

void yoke_reach_destroy(yoke_reach *reach) {
    yoke_free(reach->text);
    yoke_free(reach->outputs);
}

unsigned yoke_reach_of(const yoke_reach *reach, int tensor) {
    return reach->outputs != NULL ? reach->outputs[tensor] : 0;
}

void yoke_reach_add(yoke_step *step) {
    const yoke_flight *flight = &step->flight;
    bool begins = flight->micro == 0 && !step->gradient.unsynced.holds;
    step->reach.gradient = (begins ? 0 : step->reach.gradient) | flight->reached;
}

yoke_status yoke_reach_agree(yoke_step *step) {
    const yoke_ranks *ranks = &step->ranks;
    int64_t own = step->reach.gradient, all[YOKE_AGREE_RANKS];
    if (ranks->world == 1 || step->reach.outputs == NULL) return YOKE_OK;
    TRY(yoke_process_group_all_gather(ranks->process_group, all, &own, 1, YOKE_ELEMENT_INT64));
    for (int rank = 0; rank < ranks->world; rank++)
        step->reach.gradient |= (unsigned)all[rank];
    return YOKE_OK;
}

bool yoke_is_zero(const float *values, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (values[i] != 0) return false;
    return true;
}

void yoke_reach_written(yoke_reach *reach, int tensor, const float *values, size_t count) {
    unsigned outputs = yoke_reach_of(reach, tensor);
    if ((outputs & reach->gradient) == 0 && !yoke_is_zero(values, count))
        reach->gradient |= outputs;
}

unsigned yoke_reach_use(yoke_reach *reach) {
    reach->so_far |= reach->gradient;
    return ~reach->gradient;
}
