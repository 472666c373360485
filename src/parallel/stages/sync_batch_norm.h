/* SPDX-License-Identifier: Apache-2.0 */
/* Synchronised batch norm: the batch norms of all lanes, or of all ranks, gather their statistics.
 * Every participant takes part in every all-gather of a micro-batch, in the order of the model,
 * also without rows and after an error in its values: nobody waits for one that does not come. */
#ifndef PARALLEL_SYNC_BATCH_NORM_H
#define PARALLEL_SYNC_BATCH_NORM_H

#include "parallel/step/step.h"

/* Leaves step->sync_norm NULL unless the options ask for it, the model has a batch norm, and
 * there are several lanes or ranks. Comes before the replicas. */
yoke_status yoke_sync_norm_create(yoke_step *step);
void yoke_sync_norm_destroy(struct yoke_sync_norm *sync); /* takes NULL */

/* What a lane's replica joins; NULL without synchronisation. */
yoke_norm_group *yoke_sync_norm_group(const yoke_step *step, int lane);

/* On the lane's worker, around a forward that ended with `status`: takes part where that
 * forward did not, and returns NUMERIC where statistics were not finite on any lane. */
void yoke_sync_norm_begin(const yoke_step *step, int lane);
yoke_status yoke_sync_norm_end(const yoke_step *step, int lane, yoke_status status);
/* On the worker of a lane that computes nothing in this segment of backward. */
yoke_status yoke_sync_norm_idle_segment(const yoke_step *step, int lane, int segment);

#endif
