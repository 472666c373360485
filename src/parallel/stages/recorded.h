/* SPDX-License-Identifier: Apache-2.0 */
/* Recorded steps: forward, loss and backward of a shard as one launch (a CUDA graph), with the
 * events of its stages, losses and buckets inside. */
#ifndef PARALLEL_RECORDED_H
#define PARALLEL_RECORDED_H

#include "parallel/exchange/exchange.h"

yoke_status yoke_recordings_create(yoke_lane *lane);
void yoke_recordings_destroy(yoke_lane *lane);

/* Records what is missing for micro-batches of `rows`; nothing where devices do not record. */
yoke_status yoke_record_lanes(yoke_step *step, int rows, bool training);

/* On the lane's worker: goes through `stages`; those that are recorded run in one launch where the
 * lane's shard has a recording. Every bucket then goes to `exchange` (may be NULL). */
yoke_status yoke_lane_run(yoke_step *step, int lane, const yoke_lane_stage *stages,
                          yoke_exchange *exchange);

#endif
