/* SPDX-License-Identifier: Apache-2.0 */
/* Means and squared deviations of the channels of a batch, for batch norm. Batch norm over small
 * images multiplies their errors by more than 100 in a network of 50 layers, so sums in float32 are
 * short, and sums of sums are double. */
#ifndef DEVICE_CPU_CHANNEL_STATISTICS_H
#define DEVICE_CPU_CHANNEL_STATISTICS_H

#include "device/cpu/cpu.h"
#include "device/cpu/geometry.h"

typedef struct cpu_channel_statistics {
    cpu_geometry geometry; /* of the input */
    size_t rows;
    bool half;
    int threads;
    size_t part_rows, parts; /* the same for any number of threads, so that the sums are */
    size_t scratch_offset;
    const void *input;
    /* In scratch: for each part sums of differences to `origin` and of their squares; for each
     * channel, padding included, the mean of some values. */
    double *sums;
    float *origin;
} cpu_channel_statistics;

/* Extends `scratch_bytes`. */
yoke_status cpu_channel_statistics_plan(cpu_channel_statistics *self,
                                        const yoke_plan_request *request, int threads,
                                        size_t *scratch_bytes);
void cpu_channel_statistics_bind(cpu_channel_statistics *self, const void *input, void *scratch);

/* For each channel the mean and the sum of squared differences to it; NaN stays NaN. */
void cpu_channel_statistics_run(const cpu_channel_statistics *self, double *means,
                                double *deviations);

#endif
