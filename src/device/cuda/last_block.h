/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel whose blocks write partial results, and whose last block combines them: no second kernel
 * does, and no block waits for another. The order in which blocks arrive decides who combines, not
 * in which order. For .cu files only. */
#ifndef DEVICE_CUDA_LAST_BLOCK_H
#define DEVICE_CUDA_LAST_BLOCK_H

#include "device/cuda/kernel.h"

/* Whether this block is the last of `count` to arrive at a counter; if so, it sees what the others
 * wrote before. Every thread must call it, once in a kernel. The counter is 0 before and after. */
static __device__ bool cuda_arrives_last(unsigned *counter, unsigned count) {
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicInc(counter, count - 1) == count - 1;
    __syncthreads();
    if (last) __threadfence();
    return last;
}

/* Reads what another block of this kernel wrote, which L1 may hold as it was before. */
static __device__ float cuda_load_written(const float *from) {
    return __ldcg(from);
}

#endif
