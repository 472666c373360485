/* SPDX-License-Identifier: Apache-2.0 */
/* The deal: which part of a batch each device computes. Rows are dealt by torch.chunk's rule, or in
 * proportion to options.shares; with options.shards whole shards are, so that the deal changes the
 * time of a step and never its bits. */
#ifndef PARALLEL_STEP_DEAL_H
#define PARALLEL_STEP_DEAL_H

#include "parallel/step/parts.h"

/* Reads the options; ARGUMENT when a device is left without rows. Ranks are known. */
yoke_status yoke_deal_create(yoke_step *step);
/* Whether it changes between steps, by measured speed. Ranks make another engine instead. */
bool yoke_deal_changes(const yoke_step *step);
/* Between two steps: seconds[count] is what each device took for its part of the last batches.
 * Deals anew where the slowest one would be done clearly earlier, and says whether it has. */
bool yoke_deal_improve(yoke_step *step, const double *seconds);

/* The rows of a lane, of a micro-batch of `rows`. */
yoke_chunk yoke_deal_rows(const yoke_step *step, int rows, int lane);
/* The most rows that a lane has at a time, whatever the deal. */
int yoke_deal_most_rows(const yoke_step *step);
/* Lanes, or in DDP ranks, each of which has one lane. */
int yoke_deal_participants(const yoke_step *step);
/* With shards: how many a lane has, and the first of them. */
int yoke_deal_shards(const yoke_step *step, int lane);
int yoke_deal_first_shard(const yoke_step *step, int lane);
/* The most shards of a lane: the rounds that a batch takes. */
int yoke_deal_rounds(const yoke_step *step);

#endif
