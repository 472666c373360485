/* SPDX-License-Identifier: Apache-2.0 */
/* The gradient of a linear layer's weight for few rows: [rows, out] transposed times [rows, in]. It
 * is computed from copies of the two, here or, part by part, with those of other replicas. */
#ifndef DEVICE_CPU_FACTORS_H
#define DEVICE_CPU_FACTORS_H

#include "device/cpu/cpu.h"

/* Whether it is worth it for a linear layer: its plan's factors, for the most rows that any plan of
 * it has, must be small beside the weight. */
bool cpu_takes_factors(const yoke_plan_request *request);
/* The most rows of all plans of a linear layer in an engine, each position of sequences one. */
int cpu_most_rows(const yoke_plan_request *request);

/* weight: [out, in] in float32, plain or in panels of one side's elements. half: the factors are
 * bfloat16. *factors is NULL where the weight has another layout. */
yoke_status cpu_factors_create(yoke_factors **factors, cpu_device *device, const cpu_desc *weight,
                               size_t rows, bool half);
void cpu_factors_destroy(yoke_factors *factors, cpu_device *device); /* takes NULL */

/* Copies input [rows, in] and output_gradient [rows, out]. */
void cpu_factors_keep(yoke_factors *factors, const void *input, const void *output_gradient);
/* The gradient of the bias, [out], from the copies' source. */
void cpu_factors_sum_bias(const yoke_factors *factors, const void *output_gradient,
                          float *gradient);
/* The gradient of the whole weight, from the copies. */
void cpu_factors_multiply(const yoke_factors *factors, cpu_device *device, float *gradient);

/* The backend's entry. */
yoke_status cpu_sum_factors(yoke_device *device, const yoke_factors *const *factors, int count,
                            size_t first, size_t elements, float *to);

#endif
