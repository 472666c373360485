/* SPDX-License-Identifier: Apache-2.0 */
/* The cores near a GPU: on the memory node that its PCI slot belongs to. The worker that queues a
 * GPU's work runs there, and pinned memory lies there. */
#ifndef DEVICE_CUDA_NEAR_H
#define DEVICE_CUDA_NEAR_H

#include <sched.h>

#include "device/cuda/cuda.h"

#define CUDA_PCI_ROOT "/sys/bus/pci/devices"

/* Those of `allowed` that the system calls local to the slot ("0000:3B:00.0"). None: it does not
 * say so, all are, or no allowed one is; a thread then stays where it is. */
void cuda_near_read(cpu_set_t *near, const char *root, const char *slot, const cpu_set_t *allowed);
/* `cores`: of the host program, which the device's workers must not leave: all of them where it
 * names none that are near. NULL: no such set. */
yoke_status cuda_near_find(cuda_device *device, const cpu_set_t *cores);

/* Binds the calling thread to the cores near the device. `before` gets those it had, or none where
 * it stays. */
void cuda_near_go(const cuda_device *device, cpu_set_t *before);
void cuda_near_return(const cpu_set_t *before);

#endif
