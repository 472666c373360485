/* SPDX-License-Identifier: Apache-2.0 */
/* A depthwise convolution for inference in float32 with AVX-512: an output is summed in a register,
 * and small images are left to one thread. */
#ifndef DEVICE_CPU_DEPTHWISE_WIDE_H
#define DEVICE_CPU_DEPTHWISE_WIDE_H

#include "device/cpu/own_kernel.h"

/* DEVICE: a shape, layout, direction or processor is not supported. */
yoke_status cpu_depthwise_wide_create(cpu_own_kernel **kernel, cpu_device *device,
                                      const cpu_operation *convolution);

#endif
