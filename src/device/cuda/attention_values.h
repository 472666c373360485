/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernels of attention share: where the features of a head lie. For .cu files only. */
#ifndef DEVICE_CUDA_ATTENTION_VALUES_H
#define DEVICE_CUDA_ATTENTION_VALUES_H

#include "device/cuda/kernel.h"
#include "device/cuda/kernels.h"

/* What a block works on. */
struct head_of_row {
    unsigned index; /* among the heads of all rows */
    int first;      /* of its own positions */
};

/* The features of one head of one row: position p begins at `at` + p * `stride`. */
template <typename T> struct head_values {
    T *at;
    unsigned stride;
};

/* Where the features of one sequence lie in values that have `sequences` of them side by side: the
 * input has three, q, k and v. */
template <typename T>
static __device__ head_values<T> values_of(const cuda_attention_job &job, T *values,
                                           const head_of_row &place, int sequences, int sequence) {
    unsigned row = place.index / (unsigned)job.heads, head = place.index % (unsigned)job.heads;
    unsigned width = (unsigned)job.heads * (unsigned)job.size, stride = (unsigned)sequences * width;
    return {values + (size_t)row * (size_t)job.positions * stride +
                ((unsigned)sequence * width + head * (unsigned)job.size),
            stride};
}
template <typename T>
static __device__ head_values<const T> input_of(const cuda_attention_job &job,
                                                const head_of_row &place, int sequence) {
    return values_of(job, (const T *)job.input, place, 3, sequence);
}

static __device__ bool reads(const cuda_attention_job &job, int query, int key) {
    return key < job.positions && (!job.causal || key <= query);
}

/* Past the last key that queries before `end` read. */
static __device__ int keys_end(const cuda_attention_job &job, int end) {
    return job.causal && end < job.positions ? end : job.positions;
}

static __device__ float scale_of(const cuda_attention_job &job) {
    return 1 / sqrtf((float)job.size);
}

static __device__ size_t statistic(const cuda_attention_job &job, const head_of_row &place,
                                   int position) {
    return (size_t)place.index * (size_t)job.positions + (size_t)position;
}

/* Blocks of `owned` positions of each head of each row. */
static inline unsigned attention_blocks(const cuda_attention_job *job, unsigned owned) {
    unsigned blocks = ((unsigned)job->positions + owned - 1) / owned;
    return (unsigned)job->rows * (unsigned)job->heads * blocks;
}

/* Calls function<T, N> with the smallest N that holds a head. */
#define ATTENTION_BY_SIZE(function, T, size, ...)                                                  \
    ((size) <= 16    ? function<T, 16>(__VA_ARGS__)                                                \
     : (size) <= 32  ? function<T, 32>(__VA_ARGS__)                                                \
     : (size) <= 64  ? function<T, 64>(__VA_ARGS__)                                                \
     : (size) <= 128 ? function<T, 128>(__VA_ARGS__)                                               \
                     : function<T, CUDA_ATTENTION_SIZE>(__VA_ARGS__))

/* attention_tensor.cu: of values of 16 bits. */
void attention_tensor_forward(const cuda_attention_job *job, cudaStream_t stream);
void attention_tensor_backward(const cuda_attention_job *job, cudaStream_t stream);

#endif
