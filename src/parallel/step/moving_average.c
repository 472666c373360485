/* SPDX-License-Identifier: Apache-2.0 */
/* One update of the moving average of the weights. */
#include "parallel/step/moving_average.h"

yoke_update_step yoke_average_towards(const yoke_step *step) {
    return (yoke_update_step){
        .rule = YOKE_UPDATE_AVERAGE,
        .scalars = {.rate = 1 - step->options.ema_decay, .first = !step->average.begun},
        .gradient_scale = 1};
}

yoke_float_scalars yoke_average_scalars(const yoke_step *step) {
    yoke_update_step towards = yoke_average_towards(step);
    return yoke_update_round(&towards.scalars);
}

/* Clipping scales gradients, not weights: `applies`. */
yoke_status yoke_average_queue(const yoke_step *step, const yoke_gate *gate, int slot) {
    const yoke_lane *root = &step->lanes[0];
    float *const none[YOKE_UPDATE_STATES] = {NULL};
    if (step->average.values == NULL) return YOKE_OK;
    yoke_update_step update = yoke_average_towards(step);
    update.gate = gate;
    update.applies = true;
    update.slot = slot;
    return yoke_device_update(root->device, step->exchange_stream, &update, step->average.values,
                              root->memory->parameters, none, step->flat->trainable_elements);
}

void yoke_average_count(yoke_step *step, uint64_t number) {
    if (step->average.values == NULL || step->average.begun) return;
    step->average.begun = true;
    step->average.first_step = number;
}

void yoke_average_uncount(yoke_step *step, uint64_t number) {
    if (step->average.begun && step->average.first_step >= number) step->average.begun = false;
}
