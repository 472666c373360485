/* SPDX-License-Identifier: Apache-2.0 */
/* The time of a training step's kernels without the engine around them, what they could take at
 * best, and the buckets that a step exchanges. No step may be running. */
#ifndef BENCH_FLOOR_FLOOR_H
#define BENCH_FLOOR_FLOOR_H

#include "yoke/data_parallel.h"

/* How to time kernel calls. On a GPU the GPU's own clock times recordings of them, so that the
 * host's launches do not count. */
typedef enum bench_timing {
    BENCH_KERNELS_ALONE,   /* each call many times in a row: its weights stay in the cache */
    BENCH_KERNELS_IN_ORDER /* passes over the whole step: caches are as cold as in a step. On a GPU
                              one pass is timed as a whole, with the gaps between kernels. */
} bench_timing;

/* yoke_data_parallel_create, where a choice among candidates takes the one that `names` has, up to
 * 8 and NULL behind the last, without measuring. NULL: there are none. */
yoke_status bench_create_preferring(yoke_data_parallel **parallel, const yoke_model *model,
                                    yoke_devices *devices, const yoke_optimizer_options *optimizer,
                                    const yoke_data_parallel_options *options,
                                    const char *const *names);

/* The kernel time of one training step on the root: every plan call and the update, the best of
 * `repeat`, summed. What a step takes beyond it is the engine's own cost. Weights and running
 * statistics keep their values. ARGUMENT: `repeat` is below 1. */
yoke_status bench_kernel_time(yoke_data_parallel *parallel, bench_timing timing, int repeat,
                              double *milliseconds);

/* A call of a training step: an operation in one direction, or the update. Texts belong to the
 * engine, or are constants. */
typedef struct bench_kernel_call {
    const char *layer;     /* "layer1.0.conv1"; outside layers as `operation` */
    const char *operation; /* "conv2d", "batch_norm", "accumulate", "update", ... */
    const char *direction; /* "forward", "backward"; convolution and linear have "backward data"
                              and "backward weights" instead */
    const char *algorithm; /* the algorithm that computes it: "cuDNN 1", "im2col", "matrix product",
                        oneDNN's name of its implementation; "im2col, no other" where the
                        libraries have none. NULL: there is no choice. */
    char shape[64];        /* "64x56x56 to 64x56x56, kernel 3/1" */
    double milliseconds;   /* the call alone, the best of all repetitions */
    double bytes;          /* that it must move at least: each operand once */
    double operations;     /* multiplications and additions in convolution, linear and attention;
                              elsewhere 0 */
} bench_kernel_call;

/* Times each kernel call of one step as bench_kernel_time does with BENCH_KERNELS_ALONE, and lists
 * them in the order of a step. *count becomes their number; the first `capacity` are written. */
yoke_status bench_kernel_calls(yoke_data_parallel *parallel, int repeat, bench_kernel_call *calls,
                               int capacity, int *count);

/* The same list without times: nothing runs. */
yoke_status bench_kernel_list(yoke_data_parallel *parallel, bench_kernel_call *calls, int capacity,
                              int *count);

/* What the root reaches at best: the two lines of its roofline. */
typedef struct bench_rates {
    double bytes_per_s;      /* that a copy or a ReLU of large values reads and writes */
    double operations_per_s; /* in a large matrix product in the engine's precision */
} bench_rates;

yoke_status bench_measure_rates(yoke_data_parallel *parallel, bench_rates *rates);

/* The sizes of the buckets that a step exchanges, in their order: writes the first `capacity`,
 * returns their number. */
int bench_bucket_bytes(const yoke_data_parallel *parallel, size_t *bytes, int capacity);

#endif
