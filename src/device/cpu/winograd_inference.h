/* SPDX-License-Identifier: Apache-2.0 */
/* Winograd's 3x3 convolution of stride 1 for inference in float32 with AVX-512: filters stay
 * transformed and packed, transforms and products are Yoke's own. */
#ifndef DEVICE_CPU_WINOGRAD_INFERENCE_H
#define DEVICE_CPU_WINOGRAD_INFERENCE_H

#include "device/cpu/own_kernel.h"
#include "device/cpu/winograd_wide.h"

/* How threads share the work. By tiles each takes its own tiles through all steps and reads all
 * filters; by filters all threads transform the same tiles, and each multiplies them by its part
 * of the filters. */
typedef enum cpu_winograd_split { CPU_BY_TILES, CPU_BY_FILTERS } cpu_winograd_split;

/* DEVICE: a shape, layout, direction or processor is not supported. */
yoke_status cpu_winograd_inference_create(cpu_own_kernel **kernel, cpu_device *device,
                                          const cpu_operation *convolution,
                                          const winograd_form *form, cpu_winograd_split split);

#endif
