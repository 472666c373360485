/* SPDX-License-Identifier: Apache-2.0 */
/* Batch norms of several participants together, as torch.nn.SyncBatchNorm's. */
#ifndef DEVICE_NORM_GROUP_H
#define DEVICE_NORM_GROUP_H

#include <stdbool.h>
#include <stddef.h>

#include "base/base.h"

/* The participants, devices or ranks, whose batch norms normalise over the rows of all of them: one
 * participant's view. */
typedef struct yoke_norm_group {
    int participants;
    /* Waits for all participants; *all gets [participants, count], in their order, until the next
     * call. Every participant calls it equally often, with equal counts. */
    yoke_status (*all_gather)(void *context, const double *own, size_t count, const double **all);
    void *context;
    bool found_nonfinite; /* a batch norm's statistics were not finite; the owner clears it */
} yoke_norm_group;

#endif
