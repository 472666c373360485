/* SPDX-License-Identifier: Apache-2.0 */
/* The gradient of the weights of a depthwise convolution by plain loops: oneDNN 2 has none for
 * images that are smaller than the kernel, and falls back to a product that takes a hundred times
 * as long. */
#ifndef DEVICE_CPU_DEPTHWISE_H
#define DEVICE_CPU_DEPTHWISE_H

#include "device/cpu/cpu.h"

typedef struct cpu_depthwise cpu_depthwise;

/* DEVICE: another direction, more than one channel a group, a bias, values that are not float32, or
 * weights that are neither plain nor in one block of channels. The descriptors outlive it. */
yoke_status cpu_depthwise_create(cpu_depthwise **depthwise, cpu_device *device,
                                 const cpu_operation *convolution);
void cpu_depthwise_destroy(cpu_depthwise *depthwise); /* takes NULL */
void cpu_depthwise_bind(cpu_depthwise *depthwise, const float *input, const float *output_gradient,
                        float *weight_gradient);
void cpu_depthwise_run(const cpu_depthwise *depthwise);

#endif
