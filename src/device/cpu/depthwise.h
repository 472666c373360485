/* SPDX-License-Identifier: Apache-2.0 */
/* A depthwise convolution and the gradient of its weights by plain loops: oneDNN 2 has none for
 * images that are smaller than the kernel, and falls back to a product that takes a hundred times
 * as long. */
#ifndef DEVICE_CPU_DEPTHWISE_H
#define DEVICE_CPU_DEPTHWISE_H

#include "device/cpu/cpu.h"

typedef struct cpu_depthwise cpu_depthwise;

/* DEVICE: backward of the data, more than one channel a group, values that are not float32, or
 * weights that are neither plain nor in one block of channels. The descriptors outlive it. */
yoke_status cpu_depthwise_create(cpu_depthwise **depthwise, cpu_device *device,
                                 const cpu_operation *convolution);
void cpu_depthwise_destroy(cpu_depthwise *depthwise); /* takes NULL */

size_t cpu_depthwise_scratch_bytes(const cpu_depthwise *depthwise);

/* In backward the gradients of output, weights and bias. No bias: NULL. */
typedef struct cpu_depthwise_addresses {
    float *input, *output, *weights, *bias;
    float *scratch;
} cpu_depthwise_addresses;
void cpu_depthwise_bind(cpu_depthwise *depthwise, const cpu_depthwise_addresses *addresses);
void cpu_depthwise_run(const cpu_depthwise *depthwise);

#endif
