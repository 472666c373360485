/* SPDX-License-Identifier: Apache-2.0 */
/* The stages, one file for each. */
#ifndef PARALLEL_STAGES_STAGE_TABLE_H
#define PARALLEL_STAGES_STAGE_TABLE_H

#include "parallel/exchange/exchange.h"
#include "parallel/step/step.h"

/* scatter.c: cuts the current micro-batch and uploads each shard; output gradients to the shards,
 * gradients[outputs], NULL: zeros. */
extern const yoke_stage_def yoke_stage_scatter;
yoke_status yoke_lane_scatter(int lane, void *step);
yoke_status yoke_scatter_output_gradients(yoke_step *step, const float *const *gradients);

/* replicate.c: the root's weights go to stale replicas; or its weights and running statistics. */
extern const yoke_stage_def yoke_stage_replicate_weights, yoke_stage_replicate;

/* forward.c, loss.c, backward.c: on every lane, its shard. The bars are what recorded.c records. */
extern const yoke_stage_def yoke_stage_forward, yoke_stage_loss, yoke_stage_backward;
extern const yoke_bar yoke_bar_forward, yoke_bar_loss, yoke_bar_backward;
yoke_status yoke_lane_forward(int lane, void *step); /* of a shard that it unpacks first */
/* In a step, a forward whose statistics are not finite makes the loss NaN: the other participants
 * wait for this lane's buckets, and the step fails later on all of them. */
yoke_status yoke_lane_forward_or_nan(yoke_step *step, int lane);
yoke_status yoke_lane_loss(int lane, void *step);
/* Segment by segment; exchange gets each finished bucket. NULL: the gradients stay in the replica.
 */
yoke_status yoke_lane_backward(yoke_step *step, int lane, yoke_exchange *exchange);

/* reduce.c, update.c: by hand and in classic; the other schedules exchange bucket by bucket. */
extern const yoke_stage_def yoke_stage_reduce, yoke_stage_update;

/* gather.c: scalars of the micro-batch, or of all rounds, are added to the result; rows come back
 * in their order, to the host or to a device. outputs[outputs]; NULL: not this one. */
extern const yoke_stage_def yoke_stage_gather, yoke_stage_gather_rounds, yoke_stage_gather_wanted;
yoke_status yoke_gather_outputs(yoke_step *step, float *const *outputs);
yoke_status yoke_gather_input_gradients(yoke_step *step, int input, float *gradients);

/* guard.c: what a failed step must not spoil. begin keeps the running statistics, unless lane 0
 * does, as in a recording, before they change; restore puts them back. NUMERIC: the loss so far is
 * not finite. */
extern const yoke_stage_def yoke_stage_check_loss;
int yoke_guard_count(const yoke_step *step);
yoke_status yoke_guard_create(yoke_step *step);
void yoke_guard_destroy(yoke_step *step);
yoke_status yoke_guard_begin(yoke_step *step, bool recorded);
yoke_status yoke_guard_keep(yoke_step *step);
yoke_status yoke_guard_restore(yoke_step *step);
/* Counts a step whose update has ended with `status`; or leaves it out, where its gradient is not
 * finite and the loss scale is dynamic: then it has changed nothing. published: as
 * yoke_count_update's. */
yoke_status yoke_guard_end(yoke_step *step, yoke_status status, bool published);
/* The root's running statistics alone are those before the step again. */
yoke_status yoke_guard_give_statistics(yoke_step *step);
/* Reads what devices found in steps before number `before` after those had answered OK. NUMERIC:
 * one's gradient was not finite; it is undone with all that came after it, which changed no weight.
 * With a dynamic loss scale it is left out: flight.left_out. */
yoke_status yoke_settle(yoke_step *step, uint64_t before);

/* Shards: the running statistics stay those of the root's first one. */
extern const yoke_stage_def yoke_stage_keep_statistics;

#endif
