/* SPDX-License-Identifier: Apache-2.0 */
/* Recorded steps: forward, loss and backward of a shard as one launch (a CUDA graph), with the
 * events of its stages, losses and buckets inside. */
#ifndef PARALLEL_RECORDED_H
#define PARALLEL_RECORDED_H

#include "parallel/exchange/exchange.h"

yoke_status yoke_recordings_create(yoke_lane *lane);
void yoke_recordings_destroy(yoke_lane *lane);

/* Records what is missing for micro-batches of `rows`, whose outputs somebody reads or, with
 * loss_only, nobody does; nothing where devices do not record. */
yoke_status yoke_record_lanes(yoke_step *step, int rows, bool training, bool loss_only);

/* On the lane's worker: *replayed, where the lane's shard has a recording; that has then run, and
 * every bucket has gone to `exchange` (may be NULL). */
yoke_status yoke_lane_replay(yoke_step *step, int lane, yoke_exchange *exchange, bool *replayed);

#endif
