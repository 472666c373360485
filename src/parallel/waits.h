/* SPDX-License-Identifier: Apache-2.0 */
/* Where a lane on the CPU waits in a step: for another lane, for another rank, or for the root's
 * worker, which gives out the jobs. On GPUs, streams wait for each other and record nothing. */
#ifndef PARALLEL_WAITS_H
#define PARALLEL_WAITS_H

#include "parallel/parallel.h"

typedef struct yoke_wait {
    uint64_t begin_ns;
    yoke_stage awaits; /* as yoke_span's */
    int bucket;
} yoke_wait;

/* The wait ends now. Called on the lane's worker. */
void yoke_wait_end(const yoke_data_parallel *parallel, int lane, const yoke_wait *wait);

/* Of a step: every lane but the root's has no job. end: of step `step`. */
void yoke_waits_begin(yoke_data_parallel *parallel);
void yoke_waits_end(yoke_data_parallel *parallel, uint64_t step);

/* Whether jobs run in a step, so that the time between two jobs of a lane is a wait. */
bool yoke_idle_counts(const yoke_data_parallel *parallel);
/* The lane has no job from now on, or no longer. Called on its worker, or while no job runs. */
void yoke_idle_begin(yoke_data_parallel *parallel, int lane);
void yoke_idle_end(yoke_data_parallel *parallel, int lane);

#endif
