/* SPDX-License-Identifier: Apache-2.0 */
/* One update of the moving average of the weights. */
#ifndef PARALLEL_STEP_MOVING_AVERAGE_H
#define PARALLEL_STEP_MOVING_AVERAGE_H

#include "parallel/step/parts.h"

/* The update, whose gradient is the weights; and its scalars as a recording reads them. */
yoke_update_step yoke_average_towards(const yoke_step *step);
yoke_float_scalars yoke_average_scalars(const yoke_step *step);

/* On the root's stream of updates, from its weights; behind a closed gate the average stays. slot:
 * of the scalars in a recording. */
yoke_status yoke_average_queue(const yoke_step *step, const yoke_gate *gate, int slot);

/* Step `number` updates the average, if there is one; uncount: steps from this number on, which
 * failed, have not. */
void yoke_average_count(yoke_step *step, uint64_t number);
void yoke_average_uncount(yoke_step *step, uint64_t number);

#endif
