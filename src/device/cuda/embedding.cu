/* SPDX-License-Identifier: Apache-2.0 */
/* Embeddings of tokens and of positions. A thread adds the gradients of one weight in the order of
 * the positions. */
#include <math.h>

#include "device/cuda/kernel.h"
#include "device/cuda/kernels.h"

/* The row of a token id; -1: the table has none. */
static __device__ int find_token(const cuda_embedding_job &job, size_t position) {
    float id = ((const float *)job.input)[position];
    bool known = id >= 0 && id < (float)job.table && id == floorf(id);
    return known ? (int)id : -1;
}

template <typename T> static __global__ void embed(cuda_embedding_job job) {
    GRID_STRIDE(i, job.rows * job.positions * job.features) {
        int token = find_token(job, i / job.features);
        size_t at = (size_t)(token < 0 ? 0 : token) * job.features + i % job.features;
        cuda_narrow(token < 0 ? NAN : job.weight[at], &((T *)job.output)[i]);
    }
}

/* A block has one token and a tile of features. Most chunks of positions have no such token. */
template <typename T>
static __global__ void embed_backward(cuda_embedding_job job, unsigned tiles) {
    __shared__ int tokens[CUDA_THREADS], part[CUDA_WARP];
    int own = (int)(blockIdx.x / tiles);
    size_t feature = (size_t)(blockIdx.x % tiles) * CUDA_THREADS + threadIdx.x;
    size_t count = job.rows * job.positions;
    float sum = 0;
    for (size_t first = 0; first < count; first += CUDA_THREADS) {
        size_t position = first + threadIdx.x;
        int token = position < count ? find_token(job, position) : -1;
        if (cuda_block_sum<int>(token == own, part) == 0) continue;
        __syncthreads();
        tokens[threadIdx.x] = token;
        __syncthreads();
        for (size_t k = 0; k < CUDA_THREADS && feature < job.features; k++)
            if (tokens[k] == own)
                sum += cuda_widen(
                    ((const T *)job.output_gradient)[(first + k) * job.features + feature]);
    }
    if (feature < job.features) job.weight_gradient[(size_t)own * job.features + feature] = sum;
}

template <typename T> static __global__ void add_positions(cuda_embedding_job job) {
    size_t row = job.positions * job.features;
    GRID_STRIDE(i, job.rows * row)
    cuda_narrow(cuda_widen(((const T *)job.input)[i]) + job.weight[i % row], &((T *)job.output)[i]);
}

template <typename T> static __global__ void add_positions_backward(cuda_embedding_job job) {
    size_t row = job.positions * job.features;
    GRID_STRIDE(i, job.table * job.features) {
        float sum = 0;
        for (size_t k = 0; k < job.rows && i < row; k++)
            sum += cuda_widen(((const T *)job.output_gradient)[k * row + i]);
        job.weight_gradient[i] = sum;
    }
}

extern "C" cudaError_t cuda_run_embedding(const cuda_embedding_job *job, cudaStream_t stream) {
    unsigned blocks = cuda_blocks(job->rows * job->positions * job->features);
    LAUNCH_BY_TYPE(LAUNCH, embed, job->type, blocks, CUDA_THREADS, stream, *job);
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_run_embedding_backward(const cuda_embedding_job *job,
                                                   cudaStream_t stream) {
    unsigned tiles = (unsigned)((job->features + CUDA_THREADS - 1) / CUDA_THREADS);
    unsigned blocks = (unsigned)job->table * tiles;
    LAUNCH_BY_TYPE(LAUNCH_BLOCK, embed_backward, job->type, blocks, CUDA_THREADS, stream, *job,
                   tiles);
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_run_positions(const cuda_embedding_job *job, cudaStream_t stream) {
    unsigned blocks = cuda_blocks(job->rows * job->positions * job->features);
    LAUNCH_BY_TYPE(LAUNCH, add_positions, job->type, blocks, CUDA_THREADS, stream, *job);
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_run_positions_backward(const cuda_embedding_job *job,
                                                   cudaStream_t stream) {
    unsigned blocks = cuda_blocks(job->table * job->features);
    LAUNCH_BY_TYPE(LAUNCH, add_positions_backward, job->type, blocks, CUDA_THREADS, stream, *job);
    return cudaGetLastError();
}
