/* SPDX-License-Identifier: Apache-2.0 */
/* The result of a batch, as the caller's struct holds it. */
#ifndef PARALLEL_ENGINE_BATCH_RESULT_H
#define PARALLEL_ENGINE_BATCH_RESULT_H

#include "parallel/step/step.h"

/* check: before any work, whether the caller's struct can hold a result. */
yoke_status yoke_result_check(yoke_step_result *result);
yoke_status yoke_result_store(const yoke_step *step, yoke_step_result *result);

#endif
