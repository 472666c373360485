/* SPDX-License-Identifier: Apache-2.0 */
/* Embeddings of tokens and of positions. A thread adds the gradients of its weights in the order of
 * the positions. */
#include "device/cuda/token_order.h"

template <typename T, int N> static __global__ void embed(cuda_embedding_job job) {
    for (size_t at = blockIdx.x; at < job.rows * job.positions; at += gridDim.x) {
        int token = cuda_find_token(job, at);
        const float *from = job.weight + (size_t)(token < 0 ? 0 : token) * job.features;
        T *to = (T *)job.output + at * job.features;
        for (size_t i = threadIdx.x * N; i < job.features; i += blockDim.x * N) {
            float values[N];
            for (int k = 0; k < N; k++)
                values[k] = token < 0 ? NAN : from[i + k];
            cuda_store(to + i, values);
        }
    }
}

/* A block for each token, also where the batch has none. */
template <typename T, int N>
static __global__ void embed_backward(cuda_embedding_job job, cuda_token_order order) {
    for (size_t token = blockIdx.x; token < job.table; token += gridDim.x) {
        int begin = order.starts[token], end = order.starts[token + 1];
        for (size_t i = threadIdx.x * N; i < job.features; i += blockDim.x * N) {
            const T *from = (const T *)job.output_gradient + i;
            float sum[N] = {0};
#pragma unroll 4
            for (int k = begin; k < end; k++) {
                cuda_pack<T, N> one = cuda_load<N>(from + (size_t)order.places[k] * job.features);
                for (int c = 0; c < N; c++)
                    sum[c] += cuda_widen(one.at[c]);
            }
            cuda_store(job.weight_gradient + token * job.features + i, sum);
        }
    }
}

/* Groups of blocks share the batch's rows; in each, a thread has N weights. */
template <typename T, int N>
static __global__ void add_positions(cuda_embedding_job job, unsigned tiles, unsigned groups) {
    size_t row = job.positions * job.features;
    size_t i = ((size_t)(blockIdx.x % tiles) * blockDim.x + threadIdx.x) * N;
    if (i >= row) return;
    cuda_pack<float, N> weight = cuda_load<N>(job.weight + i);
    for (size_t k = blockIdx.x / tiles; k < job.rows; k += groups) {
        cuda_pack<T, N> from = cuda_load<N>((const T *)job.input + k * row + i);
        float values[N];
        for (int c = 0; c < N; c++)
            values[c] = cuda_widen(from.at[c]) + weight.at[c];
        cuda_store((T *)job.output + k * row + i, values);
    }
}

template <typename T, int N> static __global__ void add_positions_backward(cuda_embedding_job job) {
    size_t row = job.positions * job.features;
    GRID_STRIDE(pack, job.table * job.features / N) {
        size_t i = pack * N;
        float sum[N] = {0};
#pragma unroll 4
        for (size_t k = 0; k < job.rows && i < row; k++) {
            cuda_pack<T, N> one = cuda_load<N>((const T *)job.output_gradient + k * row + i);
            for (int c = 0; c < N; c++)
                sum[c] += cuda_widen(one.at[c]);
        }
        cuda_store(job.weight_gradient + i, sum);
    }
}

template <typename T, int N>
static void launch_embed(const cuda_embedding_job *job, cudaStream_t stream) {
    unsigned blocks = cuda_position_blocks(job->rows * job->positions);
    LAUNCH((embed<T, N>), blocks, CUDA_POSITION_THREADS, stream, *job);
}

template <typename T, int N>
static void launch_embed_backward(const cuda_embedding_job *job, cuda_token_order order,
                                  cudaStream_t stream) {
    LAUNCH((embed_backward<T, N>), cuda_position_blocks(job->table), CUDA_POSITION_THREADS, stream,
           *job, order);
}

template <typename T, int N>
static void launch_positions(const cuda_embedding_job *job, cudaStream_t stream) {
    size_t packs = job->positions * job->features / N;
    unsigned tiles = (unsigned)((packs + CUDA_THREADS - 1) / CUDA_THREADS);
    unsigned groups = cuda_blocks(packs * job->rows) / tiles;
    if (groups < 1) groups = 1;
    LAUNCH((add_positions<T, N>), tiles * groups, CUDA_THREADS, stream, *job, tiles, groups);
}

template <typename T, int N>
static void launch_positions_backward(const cuda_embedding_job *job, cudaStream_t stream) {
    LAUNCH((add_positions_backward<T, N>), cuda_blocks(job->table * job->features / N),
           CUDA_THREADS, stream, *job);
}

extern "C" cudaError_t cuda_run_embedding(const cuda_embedding_job *job, cudaStream_t stream) {
    CUDA_BY_PACK(launch_embed, job->type, job->features, job, stream);
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_run_embedding_backward(const cuda_embedding_job *job,
                                                   cudaStream_t stream) {
    cuda_token_order order = cuda_order_tokens(job, stream);
    CUDA_BY_PACK(launch_embed_backward, job->type, job->features, job, order, stream);
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_run_positions(const cuda_embedding_job *job, cudaStream_t stream) {
    CUDA_BY_PACK(launch_positions, job->type, job->features, job, stream);
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_run_positions_backward(const cuda_embedding_job *job,
                                                   cudaStream_t stream) {
    CUDA_BY_PACK(launch_positions_backward, job->type, job->features, job, stream);
    return cudaGetLastError();
}
