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

/* The numbers of all participants, [participants, count]. Forward gathers count, means and squared
 * deviations from them, 1 + 2 * channels numbers each. */
typedef struct yoke_norm_gathered {
    const double *all;
    int participants;
    size_t count;
} yoke_norm_gathered;
/* Waits for the others. alone: they take no part; idle: this one has no rows, and gives zeros. */
yoke_status yoke_norm_gather(const yoke_norm_group *group, bool alone, bool idle, double *own,
                             size_t count, yoke_norm_gathered *gathered);
/* Of forward's numbers: values of a channel over all participants; 0: nobody has rows. ARGUMENT:
 * one value only. */
yoke_status yoke_norm_total(const yoke_norm_gathered *from, bool alone, double *total);
/* mean[channels] and the biased variance[channels] over all participants' values. */
void yoke_norm_combine(const yoke_norm_gathered *from, double total, float *mean, float *variance);
/* The sum of number `at` over the participants, in their order. */
double yoke_norm_sum(const yoke_norm_gathered *from, size_t at);

#endif
