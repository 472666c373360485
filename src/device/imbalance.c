/* SPDX-License-Identifier: Apache-2.0 */
/* nn.DataParallel's balance warning: memory first, then processors, below three quarters. */
#include "device/imbalance.h"

#include <stdbool.h>
#include <stdio.h>

#include "base/base.h"
#include "device/device.h"

#define EQUAL_ENOUGH 0.75

typedef struct extremes {
    const yoke_device_info *least, *most;
} extremes;

static size_t memory_of(const yoke_device_info *info) {
    return info->memory_bytes;
}

static size_t multiprocessors_of(const yoke_device_info *info) {
    return (size_t)info->multiprocessors;
}

static bool differ(const yoke_device_info *infos, int count,
                   size_t (*measure)(const yoke_device_info *info), extremes *found) {
    *found = (extremes){infos, infos};
    for (int i = 1; i < count; i++) {
        if (measure(&infos[i]) < measure(found->least)) found->least = &infos[i];
        if (measure(&infos[i]) > measure(found->most)) found->most = &infos[i];
    }
    return (double)measure(found->least) < EQUAL_ENOUGH * (double)measure(found->most);
}

void yoke_imbalance_write(const yoke_device_info *infos, int count, char *text, size_t bytes) {
    extremes found;
    char least[16], most[16];
    if (bytes > 0) text[0] = '\0';
    if (differ(infos, count, memory_of, &found))
        snprintf(text, bytes,
                 "%s has %s, %s has %s: every device gets as many rows, so leave %s out, or size "
                 "the batch for it",
                 found.least->name,
                 yoke_text_bytes((double)found.least->memory_bytes, least, sizeof least),
                 found.most->name,
                 yoke_text_bytes((double)found.most->memory_bytes, most, sizeof most),
                 found.least->name);
    else if (differ(infos, count, multiprocessors_of, &found))
        snprintf(text, bytes,
                 "%s has %d multiprocessors, %s has %d: every device gets as many rows, so each "
                 "step waits for %s",
                 found.least->name, found.least->multiprocessors, found.most->name,
                 found.most->multiprocessors, found.least->name);
}

yoke_status yoke_devices_imbalance(const yoke_devices *devices, char *text, size_t bytes) {
    yoke_device_info infos[YOKE_DEVICES_LIMIT];
    TRY(yoke_pointer_check(devices, "devices"));
    TRY(yoke_pointer_check(text, "text"));
    int count = yoke_devices_count(devices);
    for (int i = 0; i < count; i++) {
        infos[i].struct_size = sizeof infos[i];
        TRY(yoke_devices_describe(devices, i, &infos[i]));
    }
    yoke_imbalance_write(infos, count, text, bytes);
    return YOKE_OK;
}
