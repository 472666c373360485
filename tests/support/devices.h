/* SPDX-License-Identifier: Apache-2.0 */
/* The devices a test runs on. YOKE_TEST_BACKEND of the environment names their backend: "cpu",
 * the default, or "cuda" for GPUs, real or simulated. Tests reach memory of a device through
 * device_put and device_take only. */
#ifndef TESTS_DEVICES_H
#define TESTS_DEVICES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/device.h"

#define DEVICES_SKIPPED 77 /* what ctest takes for skipped */

static inline const char *devices_backend(void) {
    const char *named = getenv("YOKE_TEST_BACKEND");
    return named != NULL ? named : "cpu";
}

static inline bool devices_are_cpus(void) {
    return strcmp(devices_backend(), "cpu") == 0;
}

/* How many GPUs can be opened here. */
static inline int devices_gpus(void) {
    static int count = -1;
    if (count >= 0) return count;
    yoke_devices *devices = NULL;
    yoke_devices_options options = {.struct_size = sizeof options, .list = "auto"};
    yoke_device_info info = {.struct_size = sizeof info};
    count = 0;
    if (yoke_devices_open(&devices, &options) != YOKE_OK) return count;
    if (yoke_devices_describe(devices, 0, &info) == YOKE_OK && strncmp(info.name, "cuda", 4) == 0)
        count = yoke_devices_count(devices);
    yoke_devices_close(devices);
    return count;
}

/* "3xcpu", "3xcuda", or "3xcuda:0" where there are fewer GPUs; lives until eight calls later. */
static inline const char *devices_of(int count) {
    static char lists[8][24];
    static unsigned next;
    char *list = lists[next++ % 8];
    bool shared = !devices_are_cpus() && count > devices_gpus();
    snprintf(list, sizeof lists[0], "%dx%s%s", count, devices_backend(), shared ? ":0" : "");
    return list;
}

/* Whether `text` holds before followed by the name of device `index` of devices_of(count). */
static inline bool devices_named(const char *text, const char *before, int count, int index) {
    char words[64];
    bool shared = !devices_are_cpus() && count > devices_gpus();
    snprintf(words, sizeof words, "%s%s:%s%d", before, devices_backend(), shared ? "0#" : "",
             index);
    return strstr(text, words) != NULL;
}

static inline bool devices_missing(void) {
    if (devices_are_cpus() || devices_gpus() > 0) return false;
    print_message("skipped: no usable GPU\n");
    return true;
}

/* For main: runs the tests, or answers that there are no such devices here. */
#define RUN_ON_DEVICES(tests, set_up, tear_down)                                                   \
    (devices_missing() ? DEVICES_SKIPPED : cmocka_run_group_tests(tests, set_up, tear_down))

/* Both have copied when they return. */
static inline void device_put(yoke_device *device, void *to, const void *from, size_t bytes) {
    if (yoke_device_upload(device, YOKE_STREAM_COMPUTE, to, from, bytes) != YOKE_OK)
        fail_msg("upload: %s", yoke_last_error());
}

static inline void device_take(yoke_device *device, void *to, const void *from, size_t bytes) {
    if (yoke_device_download(device, YOKE_STREAM_COMPUTE, to, from, bytes) != YOKE_OK)
        fail_msg("download: %s", yoke_last_error());
}

/* Memory of the device that holds a copy of `values`; yoke_device_free's to free. */
static inline void *device_copy_of(yoke_device *device, const void *values, size_t bytes) {
    void *memory = NULL;
    if (yoke_device_allocate(device, bytes, "a test", &memory) != YOKE_OK)
        fail_msg("%s", yoke_last_error());
    device_put(device, memory, values, bytes);
    return memory;
}

/* A copy on the host of the device's memory, freed by the caller. */
static inline void *device_values(yoke_device *device, const void *memory, size_t bytes) {
    void *values = malloc(bytes > 0 ? bytes : 1);
    assert_non_null(values);
    device_take(device, values, memory, bytes);
    return values;
}

#endif
