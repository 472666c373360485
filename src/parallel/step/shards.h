/* SPDX-License-Identifier: Apache-2.0 */
/* Shards whatever the number of devices: their rows, and the order in which their gradients, losses
 * and running statistics add up. */
#ifndef PARALLEL_STEP_SHARDS_H
#define PARALLEL_STEP_SHARDS_H

#include "parallel/step/parts.h"

/* ARGUMENT when the options do not go together with shards. */
yoke_status yoke_shards_check(yoke_step *step);
yoke_status yoke_shards_create(yoke_step *step); /* the root replica exists */
void yoke_shards_destroy(yoke_step *step);       /* takes half-built ones */

/* This process's rows of a batch of `rows` in all ranks. */
yoke_chunk yoke_shards_of_rank(const yoke_step *step, int rows);
/* The rows of a lane's shard in a round, of a batch of `rows` in all ranks; first counts from this
 * process's first row. */
yoke_chunk yoke_shard_at(const yoke_step *step, int rows, int index);
yoke_chunk yoke_shard_of_lane(const yoke_step *step, int rows, int lane, int round);

/* How many of the rows of a batch of options.batch rows the lane computes. */
int yoke_device_rows(const yoke_step *step, int lane);

/* What follows from a deal. */
void yoke_shards_deal(yoke_step *step);

/* Adds the shard's gradient of a bucket, in the replica, to the partial sums of earlier rounds; the
 * last round leaves the sum of the lane's last shards, or of all of them, in the replica. */
int yoke_shards_sums(const yoke_step *step); /* buffers that a lane needs for them */
yoke_status yoke_shards_merge(yoke_step *step, int lane, yoke_bucket bucket);

/* The sums that the participants have made of their shards, in the order of the shards: subtrees of
 * the sum over all. */
typedef struct yoke_blocks {
    int sizes[YOKE_SHARDS_LIMIT];        /* shards in each */
    int participants[YOKE_SHARDS_LIMIT]; /* whose sum it is */
    int buffers[YOKE_SHARDS_LIMIT];      /* of its `accumulated`; -1: the replica's gradients */
    int count;
} yoke_blocks;
void yoke_shards_blocks(const yoke_step *step, yoke_blocks *blocks);

/* After the root's round of training: the running statistics stay those of the root's first shard.
 */
yoke_status yoke_shards_keep_statistics(yoke_step *step);
/* After a round: losses[lanes] of its shards. The result's loss becomes the sum over all shards
 * after the last. */
void yoke_shards_add_losses(yoke_step *step, const double *losses);
/* Where lanes go through their rounds alone: after each but the last; and after all of them, on the
 * caller's thread. */
void yoke_shards_end_round(yoke_step *step, int lane);
void yoke_shards_add_lanes(yoke_step *step);
/* The sum over the shards of all ranks, which each has in its `losses`. */
yoke_status yoke_shards_gather_losses(yoke_step *step, double *loss);

#endif
