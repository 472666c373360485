/* SPDX-License-Identifier: Apache-2.0 */
/* A failed step spoils no more than it must: running statistics return to those before it, no
 * weight is updated from a loss or gradient that is not finite, and the error names the first bad
 * layer or parameter. */
#ifndef PARALLEL_GUARD_H
#define PARALLEL_GUARD_H

#include "parallel/parallel.h"

/* What a step may have to put back. Two, because the next step begins before GPUs have checked this
 * one's gradient: step s has guard s % 2. */
typedef struct yoke_guard {
    float *buffers; /* the root's running statistics before the step; NULL: the model has none */
    uint64_t batches_tracked;
} yoke_guard;
#define YOKE_GUARDS 2
/* On CPUs the first alone; none to predict. */
int yoke_guard_count(const yoke_step *step);

yoke_status yoke_guard_create(yoke_step *step);
void yoke_guard_destroy(yoke_step *step);

/* Keeps the running statistics; restore puts them back. */
yoke_status yoke_guard_begin(yoke_step *step);
yoke_status yoke_guard_restore(yoke_step *step);

/* NUMERIC: the summed loss is not finite; the summed gradient is not, and the text names the first
 * parameter in backward's order. */
yoke_status yoke_guard_check_loss(const yoke_step *step);
yoke_status yoke_guard_check_gradient(const yoke_step *step);

/* Undoes step number `step`, whose gradient devices found to be not finite after it had answered
 * OK, and all that came after it: none of it changed a weight. Answers NUMERIC. */
yoke_status yoke_guard_undo(yoke_step *step, uint64_t step);

/* Ends a failed step. After NUMERIC the text names the first layer whose output is not finite, or
 * the parameter. */
yoke_status yoke_guard_fail(yoke_step *step, yoke_status status);

#endif
