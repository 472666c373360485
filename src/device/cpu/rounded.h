/* SPDX-License-Identifier: Apache-2.0 */
/* The precision float16 on processors: for correctness, not for speed. */
#ifndef DEVICE_CPU_ROUNDED_H
#define DEVICE_CPU_ROUNDED_H

#include "device/cpu/cpu.h"

/* Values of float16 lie in memory as float32: their layout has a mark. */
bool cpu_is_float16(const yoke_layout *layout);
/* values[i] = the nearest float16. */
void cpu_float16_round(const yoke_device *device, float *values, size_t elements);

/* A plan of float32 by `planner`, whose output and gradients of inputs are rounded to float16. What
 * products and convolutions read is rounded, too, their weights among it. */
yoke_status cpu_plan_float16(yoke_plan **plan, cpu_device *device, const yoke_plan_request *request,
                             cpu_planner *planner);

#endif
