/* SPDX-License-Identifier: Apache-2.0 */
/* Positions in the order of their tokens, for .cu files. */
#ifndef DEVICE_CUDA_TOKEN_ORDER_H
#define DEVICE_CUDA_TOKEN_ORDER_H

#include <math.h>

#include "device/cuda/kernel.h"
#include "device/cuda/kernels.h"

/* The row of a token id; -1: the table has none. */
static inline __device__ int cuda_find_token(const cuda_embedding_job &job, size_t position) {
    float id = ((const float *)job.input)[position];
    bool known = id >= 0 && id < (float)job.table && id == floorf(id);
    return known ? (int)id : -1;
}

/* Positions of token t: places[starts[t]] up to places[starts[t + 1] - 1], in ascending order. */
struct cuda_token_order {
    const int *places, *starts;
};
cuda_token_order cuda_order_tokens(const cuda_embedding_job *job, cudaStream_t stream);

#endif
