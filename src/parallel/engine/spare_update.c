/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/engine/spare_update.h"

yoke_status yoke_spare_update_open(yoke_spare_update *update, const yoke_step *step,
                                   size_t elements) {
    yoke_device *device = step->lanes[0].device;
    size_t bytes = elements * sizeof(float), shadow_bytes = elements * sizeof *update->shadow;
    *update = (yoke_spare_update){
        .device = device, .elements = elements, .precision = step->options.precision};
    TRY(yoke_device_allocate(device, bytes, "weights to time", (void **)&update->weights));
    TRY(yoke_device_allocate(device, bytes, "gradients to time", (void **)&update->gradients));
    TRY(yoke_device_allocate(device, shadow_bytes, "a shadow to time", (void **)&update->shadow));
    return yoke_optimizer_create(&update->optimizer, &step->optimizer_options,
                                 yoke_groups_ranges(&step->groups), device, 0, elements);
}

void yoke_spare_update_close(yoke_spare_update *update) {
    if (update->device == NULL) return;
    yoke_optimizer_destroy(update->optimizer);
    yoke_device_free(update->device, update->shadow);
    yoke_device_free(update->device, update->gradients);
    yoke_device_free(update->device, update->weights);
}

yoke_status yoke_spare_update_run(const yoke_spare_update *update, bool writes_shadow) {
    const yoke_optimizer_step step = {.step = 1,
                                      .learning_rate = 1e-3,
                                      .gradient_scale = 1,
                                      .stream = YOKE_STREAM_COMPUTE,
                                      .shadow = writes_shadow ? update->shadow : NULL,
                                      .shadow_precision = update->precision};
    return yoke_optimizer_update(update->optimizer, &step, update->device, 0, update->elements,
                                 update->weights, update->gradients);
}
