/* SPDX-License-Identifier: Apache-2.0 */
/* How a shard comes out of staging memory. */
#ifndef PARALLEL_STAGES_SCATTER_H
#define PARALLEL_STAGES_SCATTER_H

#include "parallel/step/step.h"

/* Copies on the device, and what decodes or lays out input 0; with equal bytes where they do the
 * same: no padding has a value of its own. */
typedef struct yoke_unpacking {
    struct {
        void *to;
        const void *from;
        size_t bytes;
    } copies[YOKE_INPUTS_LIMIT + 4];
    size_t count;
    yoke_decode_request decoding;
} yoke_unpacking;

/* Of the lane's shard of the micro-batch. */
void yoke_unpacking_of(const yoke_step *step, int lane, yoke_unpacking *unpacking);
yoke_status yoke_unpacking_run(const yoke_lane *lane, const yoke_unpacking *unpacking);

/* On the lane's worker, before forward: where the shard is in staging memory still. */
yoke_status yoke_lane_unpack(yoke_step *step, int lane);

#endif
