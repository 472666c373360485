/* SPDX-License-Identifier: Apache-2.0 */
/* One GPU, entered by the calling thread, for tests of the CUDA room's own files. */
#ifndef GPU_RIG_H
#define GPU_RIG_H

#include "device/cuda/cuda.h"
#include "support/devices.h"

#define CHECK(call)                                                                                \
    do {                                                                                           \
        if ((call) != YOKE_OK) fail_msg("%s: %s", #call, yoke_last_error());                       \
    } while (0)
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

typedef struct rig {
    yoke_devices *devices;
    cuda_device *device;
    yoke_device_scope scope;
} rig;

static inline int open_rig(void **state) {
    static rig opened;
    yoke_devices_options options = {.struct_size = sizeof options, .list = "cuda:0"};
    CHECK(yoke_devices_open(&opened.devices, &options));
    opened.device = cuda_of(yoke_devices_at(opened.devices, 0));
    CHECK(yoke_device_enter(&opened.device->base, false, &opened.scope));
    *state = &opened;
    return 0;
}

static inline int close_rig(void **state) {
    rig *opened = *state;
    yoke_device_leave(&opened->device->base, &opened->scope);
    yoke_devices_close(opened->devices);
    return 0;
}

#endif
