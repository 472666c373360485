/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests of GPU memory and order: devices opened by a list, values that count
 * up. */
#ifndef GPU_MEMORY_CHECK_H
#define GPU_MEMORY_CHECK_H

#include "support/devices.h"

#include "device/cuda/cuda.h"

#define EXPECT_OK(call)                                                                            \
    do {                                                                                           \
        yoke_status expect_status_ = (call);                                                       \
        if (expect_status_ != YOKE_OK)                                                             \
            fail_msg("%s: %s: %s", #call, yoke_status_name(expect_status_), yoke_last_error());    \
    } while (0)

#define COUNT ((size_t)100000)
#define BYTES (COUNT * sizeof(float))

static inline yoke_devices *open_list(const char *list) {
    yoke_devices_options options = {.struct_size = sizeof options, .list = list};
    yoke_devices *devices = NULL;
    EXPECT_OK(yoke_devices_open(&devices, &options));
    return devices;
}

static inline void *allocate(yoke_device *device, size_t bytes) {
    void *memory = NULL;
    EXPECT_OK(yoke_device_allocate(device, bytes, "a test", &memory));
    return memory;
}

/* Values that are exact in float32: first, first + 1, ... */
static inline float *count_from(float first) {
    float *values = malloc(BYTES);
    assert_non_null(values);
    for (size_t i = 0; i < COUNT; i++)
        values[i] = first + (float)i;
    return values;
}

static inline void expect_count_from(yoke_device *device, const float *memory, float first) {
    float *values = device_values(device, memory, BYTES);
    for (size_t i = 0; i < COUNT; i++) {
        if (values[i] != first + (float)i)
            fail_msg("value %zu is %g, not %g", i, (double)values[i], (double)(first + (float)i));
    }
    free(values);
}

#endif
