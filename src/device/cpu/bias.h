/* SPDX-License-Identifier: Apache-2.0 */
/* The bias of the channels of images, where no primitive adds it. */
#ifndef DEVICE_CPU_BIAS_H
#define DEVICE_CPU_BIAS_H

#include "device/cpu/cpu.h"
#include "device/cpu/geometry.h"

/* values[row, channel, ...] += bias[channel]. half: values are bfloat16. */
void cpu_add_bias(const cpu_device *device, const cpu_geometry *images, size_t rows, void *values,
                  bool half, const float *bias);

#endif
