/* SPDX-License-Identifier: Apache-2.0 */
/* A convolution, or a product, whose output has few pixels: in inference, in float32 with AVX-512.
 * It takes as long as reading the weights, or its multiplications, and little beside. */
#ifndef DEVICE_CPU_FEW_PIXELS_H
#define DEVICE_CPU_FEW_PIXELS_H

#include "device/cpu/own_kernel.h"

/* DEVICE: a shape, layout, direction or processor is not supported. */
yoke_status cpu_few_pixels_create(cpu_own_kernel **kernel, cpu_device *device,
                                  const cpu_operation *operation);

#endif
