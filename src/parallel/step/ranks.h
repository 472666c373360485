/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of DDP in a step. Without a process group there is one, and nothing is sent. */
#ifndef PARALLEL_STEP_RANKS_H
#define PARALLEL_STEP_RANKS_H

#include "parallel/step/parts.h"

/* values[count] of rank 0 become every rank's. */
yoke_status yoke_ranks_share_floats(yoke_step *step, float *values, size_t count);
/* Rank 0's running statistics become everyone's, before an evaluation. */
yoke_status yoke_ranks_share_buffers(yoke_step *step);

/* Sets first_row, whole_rows and, with synchronised batch norm, micros of the batch in flight. */
yoke_status yoke_ranks_place_batch(yoke_step *step, const yoke_batch *batch);
/* The result in flight becomes the sum over all ranks, in their order. */
yoke_status yoke_ranks_add_results(yoke_step *step);

/* Returns `status`. A failure that the other ranks cannot see aborts the process group with this
 * rank's error text; every rank sees NUMERIC by itself, in a step and in synchronised batch norms.
 */
yoke_status yoke_ranks_report(const yoke_step *step, yoke_status status);

#endif
