/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes: their memory and events. */
#ifndef PARALLEL_STEP_LANES_H
#define PARALLEL_STEP_LANES_H

#include "parallel/step/parts.h"

/* Called on the lane's worker once its replica exists: memory and events. */
yoke_status yoke_lane_open(yoke_step *step, int lane);
void yoke_lane_close(yoke_step *step, int lane);
int yoke_lane_sums(const yoke_step *step); /* gradients in `accumulated` */
/* What helps when memory that grows with the rows is short. */
const char *yoke_rows_advice(const yoke_step *step);

/* Queues the copy of the loss to the host, unless the loss writes it there itself. */
yoke_status yoke_lane_download_scalars(const yoke_lane *lane);

/* What changes from step to step for the plans of this lane. */
yoke_plan_step yoke_lane_plan_step(const yoke_step *step, int lane);

#endif
