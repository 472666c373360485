/* SPDX-License-Identifier: Apache-2.0 */
/* Which parameters the losses reach. */
#ifndef PARALLEL_STEP_REACH_H
#define PARALLEL_STEP_REACH_H

#include "parallel/step/parts.h"

#define YOKE_OUTPUT_0 1u /* what the model's own loss reads: output 0, as a bit */

yoke_status yoke_reach_create(yoke_step *step);
void yoke_reach_destroy(yoke_reach *reach);
/* The outputs that the tensor changes, as bits; 0: all there is. */
unsigned yoke_reach_of(const yoke_reach *reach, int tensor);

/* A backward of the batch in flight is about to run: it begins a gradient, or adds to one. */
void yoke_reach_add(yoke_step *step);
/* Ranks reduce their gradients: what one reaches, all do. */
yoke_status yoke_reach_agree(yoke_step *step);
/* The host has written the gradient of a tensor, values[count]. */
void yoke_reach_written(yoke_reach *reach, int tensor, const float *values, size_t count);
/* An update begins; the outputs that its gradient does not come from, as bits. */
unsigned yoke_reach_use(yoke_reach *reach);

bool yoke_is_zero(const float *values, size_t count);

#endif
