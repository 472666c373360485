/* SPDX-License-Identifier: Apache-2.0 */
/* options.shards V: the batch is cut into V shards whatever the number of devices, so that the same
 * sums of the same gradients are taken in the same order on 1, 2, 4 ... devices and ranks. A lane
 * computes its V / (devices x ranks) consecutive shards one after the other, a round each. */
#ifndef PARALLEL_SHARDS_H
#define PARALLEL_SHARDS_H

#include "model/model.h"
#include "parallel/parallel.h"

typedef struct yoke_shards {
    int rounds;        /* shards of one lane; 1 without options.shards */
    float *statistics; /* the root's running statistics after its first shard; NULL: none to keep */
    double *losses;    /* [lanes x rounds] of this process's shards, in their order */
} yoke_shards;

/* ARGUMENT when the options do not go together with shards. */
yoke_status yoke_shards_check(yoke_data_parallel *parallel);
yoke_status yoke_shards_create(yoke_data_parallel *parallel); /* the root replica exists */
void yoke_shards_destroy(yoke_data_parallel *parallel);       /* takes half-built ones */

/* This process's rows of a batch of `rows` in all ranks. */
yoke_chunk yoke_shards_of_rank(const yoke_data_parallel *parallel, int rows);
/* The rows of a lane's shard in a round, of a batch of `rows` in all ranks; first counts from this
 * process's first row. */
yoke_chunk yoke_shard_of_lane(const yoke_data_parallel *parallel, int rows, int lane, int round);

/* Adds the shard's gradient of a bucket, in the replica, to the partial sums of earlier rounds; the
 * last round leaves the lane's whole sum in the replica. */
int yoke_shards_sums(const yoke_data_parallel *parallel); /* buffers that a lane needs for them */
yoke_status yoke_shards_merge(yoke_data_parallel *parallel, int lane, yoke_bucket bucket);

/* After a round of training: the running statistics stay those of the root's first shard. */
yoke_status yoke_shards_keep_statistics(yoke_data_parallel *parallel);
/* After a round: losses[lanes] of its shards. The result's loss becomes the sum over all shards
 * after the last. */
void yoke_shards_add_losses(yoke_data_parallel *parallel, const double *losses);

#endif
