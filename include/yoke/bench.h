/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * For benchmarks: the time of a training step's kernels without the engine around them, what they
 * could take at best, and the buckets that a step exchanges.
 * yoke.h does not include it.
 */
#ifndef YOKE_BENCH_H
#define YOKE_BENCH_H

#include <stddef.h>

#include "yoke/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct yoke_data_parallel;
struct yoke_model;

/** How to time kernel calls. On a GPU the GPU's own clock times recordings of them, so that the
 * host's launches do not count. */
typedef enum yoke_kernel_timing {
    YOKE_KERNELS_ALONE,   /**< Each call many times in a row: its weights stay in the cache. */
    YOKE_KERNELS_IN_ORDER /**< Passes over the whole step: caches are as cold as in a step. On a GPU
                               one pass is timed as a whole, with the gaps between kernels. */
} yoke_kernel_timing;

/** Measures the kernel time of one training step on the root: every plan call and the update, the
 * best of `repeat`, summed. What a step takes beyond it is the engine's own cost. Weights and
 * running statistics keep their values.
 *
 * @param parallel           The engine; no step may be running.
 * @param timing             Each call alone, or the calls in the order of a step.
 * @param repeat             How often to time each call; at least 1.
 * @param[out] milliseconds  The sum.
 * @return ARGUMENT: a pointer is NULL, or `repeat` is below 1.
 */
YOKE_API yoke_status yoke_data_parallel_kernel_time(struct yoke_data_parallel *parallel,
                                                    yoke_kernel_timing timing, int repeat,
                                                    double *milliseconds);

/** A call of a training step: an operation in one direction, or the update. Texts belong to the
 * engine, or are constants. */
typedef struct yoke_kernel_call {
    const char *layer;     /**< "layer1.0.conv1"; of what belongs to no layer as `operation`. */
    const char *operation; /**< "conv2d", "batch_norm", "accumulate", "update", ... */
    const char *direction; /**< "forward", "backward", of convolution and linear instead
                                "backward data" and "backward weights". */
    const char *way;     /**< The algorithm that computes it: "cuDNN 1", "im2col", "matrix product",
                              oneDNN's name of its implementation; "im2col, no other" where the
                              libraries have none. NULL: there is no choice. */
    char shape[64];      /**< "64x56x56 to 64x56x56, kernel 3/1". */
    double milliseconds; /**< The call alone, the best of all repetitions. */
    double bytes;        /**< It must move at least: each operand once. */
    double operations;   /**< Multiplications and additions in convolution, linear and attention;
                              of anything else 0. */
} yoke_kernel_call;

/** Measures each kernel call of one training step on the root alone, as
 * yoke_data_parallel_kernel_time does, but lists them.
 *
 * @param parallel    The engine; no step may be running.
 * @param repeat      How often to time each call; at least 1.
 * @param[out] calls  In the order of a step; may be NULL with capacity 0.
 * @param capacity    The number of calls there is space for.
 * @param[out] count  The number of calls; the first `capacity` of them were written.
 * @return ARGUMENT: a pointer is NULL, or `repeat` is below 1.
 */
YOKE_API yoke_status yoke_data_parallel_kernel_calls(struct yoke_data_parallel *parallel,
                                                     int repeat, yoke_kernel_call *calls,
                                                     int capacity, int *count);

/** What the root reaches at best: the two lines of its roofline. */
typedef struct yoke_device_rates {
    double bytes_per_s;      /**< Read and written by a copy, or a ReLU, of large values. */
    double operations_per_s; /**< Of a large matrix product in the engine's precision. */
} yoke_device_rates;

/** Measures the rates of the root.
 *
 * @param parallel    The engine; no step may be running.
 * @param[out] rates  The rates.
 * @return ARGUMENT: a pointer is NULL. MEMORY: there is no space for the operands.
 */
YOKE_API yoke_status yoke_data_parallel_rates(struct yoke_data_parallel *parallel,
                                              yoke_device_rates *rates);

/** The buckets of gradients that a step exchanges, in their order.
 *
 * @param parallel    The engine. NULL: 0.
 * @param[out] bytes  Of each bucket; may be NULL with capacity 0.
 * @param capacity    The number of buckets there is space for.
 * @return The number of buckets; the first `capacity` of them were written.
 */
YOKE_API int yoke_data_parallel_bucket_bytes(const struct yoke_data_parallel *parallel,
                                             size_t *bytes, int capacity);

/** A segment of backward: it ends where a bucket of gradients is complete. */
typedef struct yoke_model_segment {
    size_t bytes;           /**< Of the bucket. */
    double multiplications; /**< Of a forward of one row, in the convolutions and linear layers
                                 whose weights are in the bucket; backward takes twice as many. */
} yoke_model_segment;

/** The segments of a model on devices that keep weights as PyTorch does, as GPUs do, without a
 * device: the first bucket has 1 MiB, as in the engine.
 *
 * @param model          A finished model.
 * @param bucket_bytes   Of every other bucket; 0: 4 MiB. On GPUs the engine takes 25 MiB.
 * @param[out] segments  In the order of backward; may be NULL with capacity 0.
 * @param capacity       The number of segments there is space for.
 * @param[out] count     The number of segments; the first `capacity` of them were written.
 * @return ARGUMENT: a pointer is NULL.
 */
YOKE_API yoke_status yoke_model_segments(const struct yoke_model *model, size_t bucket_bytes,
                                         yoke_model_segment *segments, int capacity, int *count);

#ifdef __cplusplus
}
#endif

#endif
