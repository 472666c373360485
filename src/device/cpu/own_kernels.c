/* SPDX-License-Identifier: Apache-2.0 */
/* A pass by each of Yoke's own kernels. */
#include <stdlib.h>

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

/* Winograd of every direction. */

typedef struct winograd_kernel {
    cpu_own_kernel base;
    cpu_winograd *winograd;
} winograd_kernel;

static cpu_winograd *winograd_of(const cpu_own_kernel *kernel) {
    return ((const winograd_kernel *)kernel)->winograd;
}

static size_t winograd_scratch_bytes(const cpu_own_kernel *kernel) {
    return cpu_winograd_scratch_bytes(winograd_of(kernel));
}

static size_t winograd_kept_bytes(const cpu_own_kernel *kernel) {
    return cpu_winograd_kept_bytes(winograd_of(kernel));
}

static void winograd_prepare(const cpu_own_kernel *kernel) {
    cpu_winograd_prepare(winograd_of(kernel));
}

static yoke_status winograd_bind(cpu_own_kernel *kernel, const cpu_own_addresses *addresses) {
    return cpu_winograd_bind(winograd_of(kernel), addresses);
}

static yoke_status winograd_run(const cpu_own_kernel *kernel) {
    return cpu_winograd_run(winograd_of(kernel));
}

static void winograd_destroy(cpu_own_kernel *kernel) {
    cpu_winograd_destroy(winograd_of(kernel));
    free(kernel);
}

yoke_status cpu_pass_create_winograd(cpu_pass *pass, cpu_device *device,
                                     const cpu_operation *operation) {
    static const cpu_own_calls calls = {
        "winograd",    winograd_scratch_bytes, winograd_kept_bytes, winograd_prepare,
        winograd_bind, winograd_run,           winograd_destroy};
    cpu_winograd *winograd = NULL;
    TRY(cpu_winograd_create(&winograd, device, operation));
    winograd_kernel *kernel = malloc(sizeof *kernel);
    if (kernel == NULL) {
        cpu_winograd_destroy(winograd);
        return FAIL_MEMORY(sizeof *kernel, "a convolution");
    }
    *kernel = (winograd_kernel){{&calls}, winograd};
    pass->own = &kernel->base;
    return take(pass, YOKE_OK);
}

/* Others. */

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
