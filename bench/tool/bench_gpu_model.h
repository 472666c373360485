/* SPDX-License-Identifier: Apache-2.0 */
/* What a count would take on an H100 SXM: a model, of one table of rates. docs/performance.md says
 * how the rates were found and how far they err. */
#ifndef BENCH_TOOL_BENCH_GPU_MODEL_H
#define BENCH_TOOL_BENCH_GPU_MODEL_H

#include <stdbool.h>

/* How products are computed. */
typedef enum bench_arithmetic {
    BENCH_FLOAT32_CORES, /* of a library, in float32 */
    BENCH_TF32,
    BENCH_BFLOAT16,
    BENCH_OWN_CORES, /* kernels of Yoke's own without tensor cores: attention */
    BENCH_OWN_TENSOR
} bench_arithmetic;

/* One launch, or one call of a library. */
typedef struct bench_work {
    const char *operation, *what; /* "batch_norm", "forward_chunk<T, N>" */
    bool library, convolution;
    unsigned blocks, threads; /* 0: of a library */
    double memory_bytes, l2_bytes, l1_bytes, operations;
    bench_arithmetic arithmetic;
} bench_work;

double bench_model_ms(const bench_work *work);
/* By how much its last wave of blocks, or too few blocks, make a kernel longer; 1: not. */
double bench_model_tail(const bench_work *work);
/* The least time: for the bytes or for the operations, whichever takes longer. */
double bench_model_floor_ms(double bytes, double operations, bench_arithmetic arithmetic,
                            bool convolution);
/* The table, a line each. */
void bench_model_print(void);

#endif
