/* SPDX-License-Identifier: Apache-2.0 */
/* The batch in flight: checks, micro-batches, shards, and the order of the stages by hand. */
#ifndef PARALLEL_STEP_FLIGHT_H
#define PARALLEL_STEP_FLIGHT_H

#include "parallel/step/parts.h"

/* The device whose memory an array of the caller is; NULL: it is host memory. ARGUMENT: memory of a
 * GPU that is not in this engine. */
yoke_status yoke_locate(const yoke_step *step, const void *array, yoke_device **location);
/* Copies and checks the caller's batch. with_labels: it must have what the loss compares with. */
yoke_status yoke_flight_check(yoke_step *step, const yoke_batch *given, bool with_labels,
                              yoke_batch *batch);
/* Begins a batch, which the engine's options cut; in_one: all of it goes to the devices at once.
 * With ranks, finds its place in the whole. */
yoke_status yoke_flight_begin(yoke_step *step, const yoke_batch *batch, bool in_one, bool training);
/* Begins a training step's batch once more, as it has come. */
yoke_status yoke_flight_begin_again(yoke_step *step);
/* The result of a batch before any of its losses is known. */
yoke_step_result yoke_flight_no_result(yoke_label_count labels);
/* The micro-batches of so many rows; 1 of none: a rank without rows takes part all the same. */
int yoke_flight_micros(int rows, int parts);
/* Cuts the current micro-batch into shards. */
void yoke_flight_cut(yoke_step *step);
/* Where lanes go through their rounds alone: before the first, and the shard of a lane's round. */
void yoke_flight_begin_rounds(yoke_step *step);
void yoke_flight_cut_round(yoke_step *step, int lane);
bool yoke_flight_is_last(const yoke_flight *flight);
/* Whether the lane's round, or micro-batch, is its last one; whether it has a shard in this round:
 * always without options.shards. */
bool yoke_lane_is_last(const yoke_step *step, int lane);
bool yoke_lane_has_round(const yoke_step *step, int lane);
/* Whether no micro-batch or round so far has rows for the lane. */
bool yoke_flight_is_idle(const yoke_step *step, int lane);

/* Whether the losses are finite: of the micro-batches gathered so far; and of the shards that the
 * lanes have computed since. */
bool yoke_flight_is_finite_so_far(const yoke_flight *flight);
bool yoke_flight_is_finite(const yoke_step *step);

/* A training forward begins: even one that fails changes the root's running statistics. A step has
 * new weights on the root; published: every replica holds them. */
void yoke_count_forward(yoke_step *step);
void yoke_count_update(yoke_step *step, bool published);

/* The order of the stages called by hand. ARGUMENT unless the batch has gone through `first` and
 * not past `last`; unless its forward was in training mode; unless it has labels or targets. */
yoke_status yoke_flight_require(const yoke_step *step, const char *stage, yoke_stage first,
                                yoke_stage last);
yoke_status yoke_flight_require_training(const yoke_step *step, const char *stage);
yoke_status yoke_flight_require_labels(const yoke_step *step, const yoke_batch *batch);

#endif
