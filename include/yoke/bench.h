/* For benchmarks: how long the kernels of a training step take without the engine around them. Not
 * part of yoke.h. */
#ifndef YOKE_BENCH_H
#define YOKE_BENCH_H

#include "yoke/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct yoke_data_parallel yoke_data_parallel;

/* How each kernel call is timed. On a GPU the GPU's own clock times recordings of the calls, so
 * that no launch by the host counts. */
typedef enum yoke_kernel_timing {
    YOKE_KERNELS_ALONE,   /* each call many times in a row: its weights stay in the cache */
    YOKE_KERNELS_IN_ORDER /* passes over the whole step: caches are as cold as in a step. On a GPU
                             one pass is timed as a whole, with the gaps between kernels */
} yoke_kernel_timing;

/* Kernel time of one training step on the root, in milliseconds: every plan call and the update,
 * each timed by itself, the best of `repeat`, summed. A step's time beyond it is the engine's own
 * cost. Weights and running statistics keep their values. */
YOKE_API yoke_status yoke_data_parallel_kernel_time(yoke_data_parallel *parallel,
                                                    yoke_kernel_timing timing, int repeat,
                                                    double *milliseconds);

#ifdef __cplusplus
}
#endif

#endif
