/* SPDX-License-Identifier: Apache-2.0 */
/* Multi-head attention of float32 values without the matrix of all pairs of positions (Dao 2023,
 * FlashAttention-2); attention_tensor.cu has that of 16 bits. A block has some positions of one
 * head of one row; threads side by side share each of them, and a tile of the positions on the
 * other side passes through shared memory. Forward and the gradient of the queries own queries, the
 * gradient of keys and values owns keys: no two blocks write to one place. */
#include "device/cuda/attention_values.h"

constexpr int THREADS = 128;
constexpr int TOGETHER = 4; /* features in one load from shared memory */

/* A position has N features, padded with zeros; each of its parts<N> threads holds own<N>, no more
 * than registers have room for. */
template <int N> constexpr int parts = N <= 128 ? 4 : 8; /* a power of two, within a warp */
template <int N> constexpr int own = N / parts<N>;
template <int N> constexpr int owners = THREADS / parts<N>; /* positions of a block */

/* Positions of a tile: two tiles take at most 32 KiB. */
template <int N> constexpr int tile_of = N <= 128 ? 32 : 16;

template <int N> static __device__ head_of_row place_of(const cuda_attention_job &job) {
    unsigned blocks = ((unsigned)job.positions + owners<N> - 1) / owners<N>;
    return {blockIdx.x / blocks, (int)(blockIdx.x % blocks) * owners<N>};
}

template <int N> static __device__ int own_position(const head_of_row &place) {
    return place.first + (int)threadIdx.x / parts<N>;
}

/* The feature that this thread holds at i: threads side by side load side by side. */
template <int N> static __device__ int feature(int i) {
    int part = (int)threadIdx.x % parts<N>;
    return (i / TOGETHER * parts<N> + part) * TOGETHER + i % TOGETHER;
}

/* The thread's features of its own position; 0 past the last. */
template <typename T, int N>
static __device__ void load_own(float (&to)[own<N>], const head_values<const T> &from,
                                const cuda_attention_job &job, const head_of_row &place,
                                float scale) {
    int position = own_position<N>(place);
    const T *at = from.at + (size_t)position * from.stride;
    for (int i = 0; i < own<N>; i++) {
        bool exists = position < job.positions && feature<N>(i) < job.size;
        to[i] = exists ? scale * cuda_widen(at[feature<N>(i)]) : 0;
    }
}

template <typename T, int N>
static __device__ void store_own(const head_values<T> &to, const float (&from)[own<N>],
                                 const cuda_attention_job &job, const head_of_row &place,
                                 float scale) {
    int position = own_position<N>(place);
    if (position >= job.positions) return;
    T *at = to.at + (size_t)position * to.stride;
    for (int i = 0; i < own<N>; i++)
        if (feature<N>(i) < job.size) cuda_narrow(scale * from[i], at + feature<N>(i));
}

/* The block loads the features of a tile, [tile_of<N>, N] in shared memory, in packs where a head
 * is of whole packs. */
template <int PACK, typename T, int N>
static __device__ void load_packs(float *to, const head_values<const T> &from,
                                  const cuda_attention_job &job, int first, float scale) {
#pragma unroll 1 /* registers are short */
    for (int e = (int)threadIdx.x * PACK; e < tile_of<N> * N; e += THREADS * PACK) {
        int position = first + e / N, f = e % N;
        cuda_pack<T, PACK> pack = {};
        if (position < job.positions && f < job.size)
            pack = cuda_load<PACK>(from.at + (size_t)position * from.stride + f);
        for (int i = 0; i < PACK; i++)
            to[e + i] = scale * cuda_widen(pack.at[i]);
    }
}

template <typename T, int N>
static __device__ void load_tile(float *to, const head_values<const T> &from,
                                 const cuda_attention_job &job, int first, float scale) {
    if (job.size % TOGETHER == 0)
        load_packs<TOGETHER, T, N>(to, from, job, first, scale);
    else
        load_packs<1, T, N>(to, from, job, first, scale);
}

/* The dot product of an own position and one of a tile, for all of its threads. */
template <int N> static __device__ float dot(const float (&own_values)[own<N>], const float *row) {
    float sum = 0;
    for (int i = 0; i < own<N>; i++)
        sum += own_values[i] * row[feature<N>(i)];
    for (int lanes = 1; lanes < parts<N>; lanes *= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
    return sum;
}

template <int N> static __device__ void add(float (&to)[own<N>], float factor, const float *row) {
    for (int i = 0; i < own<N>; i++)
        to[i] += factor * row[feature<N>(i)];
}

template <typename T, int N> static __global__ void forward(cuda_attention_job job) {
    __shared__ float keys[tile_of<N> * N], values[tile_of<N> * N];
    head_of_row place = place_of<N>(job);
    const auto key_values = input_of<T>(job, place, 1), value_values = input_of<T>(job, place, 2);
    const int end = keys_end(job, place.first + owners<N>);
    int position = own_position<N>(place);
    float query[own<N>], output[own<N>] = {}, largest = -INFINITY, sum = 0;
    load_own<T, N>(query, input_of<T>(job, place, 0), job, place, scale_of(job));
    for (int first = 0; first < end; first += tile_of<N>) {
        __syncthreads();
        load_tile<T, N>(keys, key_values, job, first, 1);
        load_tile<T, N>(values, value_values, job, first, 1);
        __syncthreads();
        for (int j = 0; j < tile_of<N>; j++) {
            float score = dot<N>(query, keys + j * N);
            bool counts = reads(job, position, first + j);
            if (counts && score > largest) {
                float rescale = expf(largest - score);
                largest = score;
                sum *= rescale;
                for (int i = 0; i < own<N>; i++)
                    output[i] *= rescale;
            }
            float weight = counts ? expf(score - largest) : 0;
            sum += weight;
            add<N>(output, weight, values + j * N);
        }
    }
    store_own<T, N>(values_of(job, (T *)job.output, place, 1, 0), output, job, place, 1 / sum);
    if (job.log_sum != NULL && position < job.positions && threadIdx.x % parts<N> == 0)
        job.log_sum[statistic(job, place, position)] = largest + logf(sum);
}

/* With weight p = e^(score - log_sum) and the gradient g of the output, the score's gradient is
 * p * (g . v - g . output); g . output is stored for the kernel below. */
template <typename T, int N> static __global__ void query_gradient(cuda_attention_job job) {
    __shared__ float keys[tile_of<N> * N], values[tile_of<N> * N];
    head_of_row place = place_of<N>(job);
    const auto key_values = input_of<T>(job, place, 1), value_values = input_of<T>(job, place, 2);
    const int end = keys_end(job, place.first + owners<N>);
    int position = own_position<N>(place);
    bool exists = position < job.positions;
    float query[own<N>], gradient[own<N>], result[own<N>], product = 0;
    load_own<T, N>(query, input_of<T>(job, place, 0), job, place, scale_of(job));
    load_own<T, N>(gradient, values_of(job, (const T *)job.output_gradient, place, 1, 0), job,
                   place, 1);
    load_own<T, N>(result, values_of(job, (const T *)job.output, place, 1, 0), job, place, 1);
    for (int i = 0; i < own<N>; i++)
        product += result[i] * gradient[i];
    for (int lanes = 1; lanes < parts<N>; lanes *= 2)
        product += __shfl_xor_sync(0xffffffffu, product, lanes);
    for (int i = 0; i < own<N>; i++)
        result[i] = 0;
    float log_sum = exists ? job.log_sum[statistic(job, place, position)] : 0;
    if (exists && threadIdx.x % parts<N> == 0)
        job.product[statistic(job, place, position)] = product;
    for (int first = 0; first < end; first += tile_of<N>) {
        __syncthreads();
        load_tile<T, N>(keys, key_values, job, first, 1);
        load_tile<T, N>(values, value_values, job, first, 1);
        __syncthreads();
        for (int j = 0; j < tile_of<N>; j++) {
            float score = dot<N>(query, keys + j * N), change = dot<N>(gradient, values + j * N);
            float weight = reads(job, position, first + j) ? expf(score - log_sum) : 0;
            add<N>(result, weight * (change - product), keys + j * N);
        }
    }
    store_own<T, N>(values_of(job, (T *)job.input_gradient, place, 3, 0), result, job, place,
                    scale_of(job));
}

template <typename T, int N> static __global__ void key_value_gradient(cuda_attention_job job) {
    __shared__ float queries[tile_of<N> * N], gradients[tile_of<N> * N];
    __shared__ float log_sums[tile_of<N>], products[tile_of<N>];
    head_of_row place = place_of<N>(job);
    int position = own_position<N>(place);
    float key[own<N>], value[own<N>], key_result[own<N>] = {}, value_result[own<N>] = {};
    const auto query_values = input_of<T>(job, place, 0);
    const auto gradient_values = values_of(job, (const T *)job.output_gradient, place, 1, 0);
    load_own<T, N>(key, input_of<T>(job, place, 1), job, place, 1);
    load_own<T, N>(value, input_of<T>(job, place, 2), job, place, 1);
    int begin = job.causal ? place.first / tile_of<N> * tile_of<N> : 0;
    for (int first = begin; first < job.positions; first += tile_of<N>) {
        __syncthreads();
        load_tile<T, N>(queries, query_values, job, first, scale_of(job));
        load_tile<T, N>(gradients, gradient_values, job, first, 1);
        for (int j = (int)threadIdx.x; j < tile_of<N>; j += THREADS) {
            bool exists = first + j < job.positions;
            size_t at = exists ? statistic(job, place, first + j) : 0;
            log_sums[j] = exists ? job.log_sum[at] : 0;
            products[j] = exists ? job.product[at] : 0;
        }
        __syncthreads();
        for (int j = 0; j < tile_of<N>; j++) {
            float score = dot<N>(key, queries + j * N), change = dot<N>(value, gradients + j * N);
            bool counts = first + j < job.positions && reads(job, first + j, position);
            float weight = counts ? expf(score - log_sums[j]) : 0;
            add<N>(value_result, weight, gradients + j * N);
            add<N>(key_result, weight * (change - products[j]), queries + j * N);
        }
    }
    store_own<T, N>(values_of(job, (T *)job.input_gradient, place, 3, 1), key_result, job, place,
                    1);
    store_own<T, N>(values_of(job, (T *)job.input_gradient, place, 3, 2), value_result, job, place,
                    1);
}

template <typename T, int N>
static void launch_forward(const cuda_attention_job *job, cudaStream_t stream) {
    LAUNCH_BLOCK((forward<T, N>), attention_blocks(job, owners<N>), THREADS, stream, *job);
}

template <typename T, int N>
static void launch_backward(const cuda_attention_job *job, cudaStream_t stream) {
    const unsigned blocks = attention_blocks(job, owners<N>);
    LAUNCH_BLOCK((query_gradient<T, N>), blocks, THREADS, stream, *job);
    LAUNCH_BLOCK((key_value_gradient<T, N>), blocks, THREADS, stream, *job);
}

extern "C" cudaError_t cuda_run_attention(const cuda_attention_job *job, cudaStream_t stream) {
    if (job->type != CUDA_FLOAT32)
        attention_tensor_forward(job, stream);
    else
        ATTENTION_BY_SIZE(launch_forward, float, job->size, job, stream);
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_run_attention_backward(const cuda_attention_job *job,
                                                   cudaStream_t stream) {
    if (job->type != CUDA_FLOAT32)
        attention_tensor_backward(job, stream);
    else
        ATTENTION_BY_SIZE(launch_backward, float, job->size, job, stream);
    return cudaGetLastError();
}
