/* SPDX-License-Identifier: Apache-2.0 */
/* Recorded steps: what a shard needs from staging memory to its gradients as one launch (a CUDA
 * graph), with the events of its stages, losses and buckets inside; on a device alone the exchange,
 * too. */
#ifndef PARALLEL_RECORDED_H
#define PARALLEL_RECORDED_H

#include "parallel/exchange/exchange.h"

yoke_status yoke_recordings_create(yoke_lane *lane);
void yoke_recordings_destroy(yoke_lane *lane);

/* Whether training steps run from recordings. */
bool yoke_steps_are_recorded(const yoke_step *step);

/* Records what is missing for the micro-batch in flight; or for one of `rows` as most programs
 * bring it. Nothing where devices do not record. */
yoke_status yoke_record_lanes(yoke_step *step, bool training);
yoke_status yoke_record_usual(yoke_step *step, int rows, bool training);

/* On the lane's worker: *replayed, where the lane's shard has a recording; that has then run, and
 * every bucket has gone to `exchange` (may be NULL). */
yoke_status yoke_lane_replay(yoke_step *step, int lane, yoke_exchange *exchange, bool *replayed);

#endif
