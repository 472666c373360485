/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/near.h"

#include <ctype.h>
#include <stdio.h>

#define SLOT_BYTES 32

void cuda_near_read(cpu_set_t *near, const char *root, const char *slot, const cpu_set_t *allowed) {
    char path[256], name[SLOT_BYTES];
    size_t length = 0;
    for (; slot[length] != '\0' && length + 1 < sizeof name; length++)
        name[length] = (char)tolower((unsigned char)slot[length]);
    name[length] = '\0';
    snprintf(path, sizeof path, "%s/%s/local_cpulist", root, name);
    if (!yoke_core_list_read(path, near)) CPU_ZERO(near);
    CPU_AND(near, near, allowed);
    if (CPU_EQUAL(near, allowed)) CPU_ZERO(near);
}

yoke_status cuda_near_find(cuda_device *device, const cpu_set_t *cores) {
    char slot[SLOT_BYTES];
    cpu_set_t allowed;
    CPU_ZERO(&device->near);
    device->limited = cores != NULL;
    TRY_CUDA(device, cudaDeviceGetPCIBusId(slot, sizeof slot, device->ordinal));
    if (device->limited)
        allowed = *cores;
    else if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return YOKE_OK;
    cuda_near_read(&device->near, CUDA_PCI_ROOT, slot, &allowed);
    if (device->limited && CPU_COUNT(&device->near) == 0) device->near = allowed;
    return YOKE_OK;
}

/* Where the system refuses, the thread works as well, only farther away. */
void cuda_near_go(const cuda_device *device, cpu_set_t *before) {
    CPU_ZERO(before);
    if (CPU_COUNT(&device->near) == 0) return;
    if (sched_getaffinity(0, sizeof *before, before) != 0 ||
        sched_setaffinity(0, sizeof device->near, &device->near) != 0)
        CPU_ZERO(before);
}

void cuda_near_return(const cpu_set_t *before) {
    if (CPU_COUNT(before) > 0) (void)sched_setaffinity(0, sizeof *before, before);
}
