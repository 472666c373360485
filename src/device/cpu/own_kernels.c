/* SPDX-License-Identifier: Apache-2.0 */
/* A pass by each of Yoke's own kernels. */
#include "device/cpu/depthwise.h"
#include "device/cpu/depthwise_wide.h"
#include "device/cpu/few_pixels.h"
#include "device/cpu/pass.h"
#include "device/cpu/winograd.h"
#include "device/cpu/winograd_inference.h"

static yoke_status take(cpu_pass *pass, yoke_status created) {
    TRY(created);
    const cpu_own_calls *calls = pass->own->calls;
    pass->scratch_bytes = calls->scratch_bytes(pass->own);
    pass->kept_bytes = calls->kept_bytes != NULL ? calls->kept_bytes(pass->own) : 0;
    return YOKE_OK;
}

yoke_status cpu_pass_create_winograd(cpu_pass *pass, cpu_device *device,
                                     const cpu_operation *operation) {
    return take(pass, cpu_winograd_create(&pass->own, device, operation));
}

yoke_status cpu_pass_create_depthwise(cpu_pass *pass, cpu_device *device,
                                      const cpu_operation *operation) {
    return take(pass, cpu_depthwise_create(&pass->own, device, operation));
}

yoke_status cpu_pass_create_few_pixels(cpu_pass *pass, cpu_device *device,
                                       const cpu_operation *operation) {
    return take(pass, cpu_few_pixels_create(&pass->own, device, operation));
}

yoke_status cpu_pass_create_depthwise_wide(cpu_pass *pass, cpu_device *device,
                                           const cpu_operation *operation) {
    return take(pass, cpu_depthwise_wide_create(&pass->own, device, operation));
}

#define WINOGRAD(edge, form, name, split)                                                          \
    yoke_status cpu_pass_create_winograd_##edge##_##name(cpu_pass *pass, cpu_device *device,       \
                                                         const cpu_operation *operation) {         \
        return take(pass,                                                                          \
                    cpu_winograd_inference_create(&pass->own, device, operation, &form, split));   \
    }

WINOGRAD(4, winograd_large, tiles, CPU_BY_TILES)
WINOGRAD(4, winograd_large, filters, CPU_BY_FILTERS)
WINOGRAD(2, winograd_small, tiles, CPU_BY_TILES)
WINOGRAD(2, winograd_small, filters, CPU_BY_FILTERS)
