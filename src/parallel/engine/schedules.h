/* SPDX-License-Identifier: Apache-2.0 */
/* The lists of stages that a step and an evaluation run. */
#ifndef PARALLEL_ENGINE_SCHEDULES_H
#define PARALLEL_ENGINE_SCHEDULES_H

#include "parallel/step/step.h"

/* by_host: with a loss of the host program. */
const yoke_schedule_def *yoke_training_schedule(const yoke_step *step, bool by_host);
const yoke_schedule_def *yoke_evaluation_schedule(bool by_host);

#endif
