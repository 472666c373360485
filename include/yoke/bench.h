/** @file
 * For benchmarks: the time of a training step's kernels without the engine around them, its layers,
 * and the buckets that it exchanges.
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

/** The buckets of gradients that a step exchanges, in their order.
 *
 * @param parallel    The engine; not NULL.
 * @param[out] bytes  Of each bucket; may be NULL with capacity 0.
 * @param capacity    The number of buckets there is space for.
 * @return The number of buckets; the first `capacity` of them were written.
 */
YOKE_API int yoke_data_parallel_bucket_bytes(const struct yoke_data_parallel *parallel,
                                             size_t *bytes, int capacity);

/** Layers of the model that compute: the calls of a forward written in Python.
 *
 * @param parallel  The engine; not NULL.
 * @return At least 1.
 */
YOKE_API int yoke_data_parallel_layer_count(const struct yoke_data_parallel *parallel);

#ifdef __cplusplus
}
#endif

#endif
