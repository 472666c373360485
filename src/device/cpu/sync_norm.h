/* SPDX-License-Identifier: Apache-2.0 */
/* Batch norm over the rows of several participants: sums over this participant's rows, the
 * all-gather, and what it changes in the gradient of the input. */
#ifndef DEVICE_CPU_SYNC_NORM_H
#define DEVICE_CPU_SYNC_NORM_H

#include "device/cpu/channel_statistics.h"

/* The operands of the batch norm; borrowed. mean and variance belong to all participants' rows. */
typedef struct cpu_sync_operands {
    const void *input;
    void *input_gradient; /* NULL: not wanted */
    float *mean, *variance;
    const float *scale, *scale_gradient, *shift_gradient;
} cpu_sync_operands;

typedef struct cpu_sync_norm {
    yoke_norm_group *group;            /* NULL: the batch norm normalises its own rows */
    cpu_channel_statistics statistics; /* of this participant's rows */
    cpu_geometry geometry;             /* of the input and its gradient */
    size_t rows;
    bool half;
    int threads;
    double epsilon;
    double total; /* values of a channel in the latest forward, over all participants */
    cpu_sync_operands operands;
    size_t scratch_offset;
    /* In scratch: what the group gathers; for each channel, padding included, its mean and the two
     * coefficients of the correction. */
    double *message;
    float *mean, *slope, *offset;
} cpu_sync_norm;

/* `group` is set. Extends `scratch_bytes`. */
yoke_status cpu_sync_norm_plan(cpu_sync_norm *sync, const yoke_plan_request *request, int threads,
                               size_t *scratch_bytes);
void cpu_sync_norm_bind(cpu_sync_norm *sync, const cpu_sync_operands *operands, void *scratch);

/* Before the input is normalised: mean and variance over all rows. ARGUMENT: one value only. */
yoke_status cpu_sync_norm_statistics(cpu_sync_norm *sync, const yoke_plan_step *step);
/* After the gradients as if mean and variance were constants: the input's gradient as it is. In
 * bfloat16 the gradient is rounded before and after. */
yoke_status cpu_sync_norm_correct(cpu_sync_norm *sync, const yoke_plan_step *step);

#endif
