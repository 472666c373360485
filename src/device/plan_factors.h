/* SPDX-License-Identifier: Apache-2.0 */
/* What some plans keep in place of the gradient of a weight. */
#ifndef DEVICE_PLAN_FACTORS_H
#define DEVICE_PLAN_FACTORS_H

#include <stddef.h>

#include "base/base.h"

typedef struct yoke_device yoke_device;
typedef struct yoke_plan yoke_plan;

/* The gradient of a weight as the product of two small matrices, whose rows are those of the batch:
 * where all replicas' factors are known, each device computes its part of the summed gradient
 * (sufficient factors, Xie et al. 2016). On CPU devices linear layers with few rows have them. */
typedef struct yoke_factors {
    size_t line;  /* elements of the gradient that lie side by side in one row of the product */
    size_t bytes; /* of the two */
    double bound; /* no element is larger; infinite where a factor is not finite */
} yoke_factors;

/* Those of the gradient of parameter 0 that the latest backward has kept; borrowed, and valid until
 * the next. NULL: backward keeps none. */
const yoke_factors *yoke_plan_factors(const yoke_plan *plan);
/* to[elements] = the sum of the gradients that factors[count] stand for, from element `first` on:
 * the bits of yoke_device_sum of backward's gradients. `first` and `elements` are multiples of 16.
 */
yoke_status yoke_device_sum_factors(yoke_device *device, const yoke_factors *const *factors,
                                    int count, size_t first, size_t elements, float *to);

#endif
