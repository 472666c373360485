/* SPDX-License-Identifier: Apache-2.0 */
/* Winograd's F(4x4, 3x3) (Lavin and Gray 2016): a 3x3 convolution of stride 1 as 36 matrix products
 * between transforms of tiles. It computes in float32 and reads and writes values in float32 or
 * bfloat16. oneDNN 3 has no Winograd for x86-64. */
#ifndef DEVICE_CPU_WINOGRAD_H
#define DEVICE_CPU_WINOGRAD_H

#include "device/cpu/own_kernel.h"

/* The convolution's descriptors hold the final layouts; a gradient has its value's. In inference
 * the transformed filters are kept. DEVICE: a shape or layout is not supported: padding must be 0
 * to 2, and channels come in contiguous groups of 8. */
yoke_status cpu_winograd_create(cpu_own_kernel **kernel, cpu_device *device,
                                const cpu_operation *convolution);

#endif
