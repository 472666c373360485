/* SPDX-License-Identifier: Apache-2.0 */
/* What a program in C sees of the simulator's count: each launch and call of a library that ran
 * between begin and end, at the size that it was made for. In a build with YOKE_SIMCOUNT only. */
#ifndef SIMCUDA_COUNTED_H
#define SIMCUDA_COUNTED_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum simcuda_kind {
    SIMCUDA_KERNEL,
    SIMCUDA_LIBRARY,
    SIMCUDA_COPY,     /* within device memory, or a fill of it */
    SIMCUDA_TRANSFER, /* from or to the host */
} simcuda_kind;

typedef enum simcuda_arithmetic {
    SIMCUDA_FLOAT32,
    SIMCUDA_TF32,
    SIMCUDA_BFLOAT16,
} simcuda_arithmetic;

typedef struct simcuda_counted {
    const char *operation, *direction; /* as labelled when it was queued; "": not at all */
    const char *what;                  /* the kernel's or the call's name */
    simcuda_kind kind;
    unsigned blocks, threads;
    unsigned sampled; /* blocks that ran and were counted; the sums below are for all blocks */
    double requested_bytes; /* that threads load and store in device memory */
    double shared_bytes;    /* and in shared memory; an access of less than 4 bytes counts as 4 */
    double l2_bytes;        /* sectors of 32 bytes that blocks read past their L1, and all stores */
    double unique_bytes;    /* different sectors, once for reading and once for writing */
    double memory_bytes;    /* what misses the second-level cache */
    double operations;      /* of a library: multiplications and additions */
    simcuda_arithmetic arithmetic;
} simcuda_counted;

/* Before the first call of CUDA: memory of zeros, kernels by samples of their blocks, libraries and
 * large copies without arithmetic. Values mean nothing afterwards. False: CUDA has begun. */
bool simcuda_count_open(void);
void simcuda_count_begin(void);
/* The list lives until the next begin. */
int simcuda_count_end(const simcuda_counted **list);
/* Of what this thread queues from now on; texts that live on. */
void simcuda_count_label(const char *operation, const char *direction);
void simcuda_count_labels(const char **operation, const char **direction);

#ifdef __cplusplus
}
#endif

#endif
