/* SPDX-License-Identifier: Apache-2.0 */
/* A depthwise convolution and the gradient of its weights by plain loops: oneDNN 2 has none for
 * images that are smaller than the kernel, and falls back to a product that takes a hundred times
 * as long. */
#ifndef DEVICE_CPU_DEPTHWISE_H
#define DEVICE_CPU_DEPTHWISE_H

#include "device/cpu/own_kernel.h"

/* DEVICE: backward of the data, more than one channel a group, values that are not float32, or
 * weights that are neither plain nor in one block of channels. The descriptors outlive it. */
yoke_status cpu_depthwise_create(cpu_own_kernel **kernel, cpu_device *device,
                                 const cpu_operation *convolution);

#endif
