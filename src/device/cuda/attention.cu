/* SPDX-License-Identifier: Apache-2.0 */
/* Multi-head attention without the matrix of all pairs of positions (Dao 2023, FlashAttention-2). A
 * block has some positions of one head of one row; threads side by side share each of them, and a
 * tile of the positions on the other side passes through shared memory. Forward and the gradient of
 * the queries own queries, the gradient of keys and values owns keys: no two blocks write to one
 * place. */
#include "device/cuda/kernel.h"
#include "device/cuda/kernels.h"

constexpr int THREADS = 128;
constexpr int TOGETHER = 4; /* features in one load from shared memory */

/* A position has N features, padded with zeros; each of its parts<N> threads holds own<N>, no more
 * than registers have room for. */
template <int N> constexpr int parts = N <= 128 ? 4 : 8; /* a power of two, within a warp */
template <int N> constexpr int own = N / parts<N>;
template <int N> constexpr int owners = THREADS / parts<N>; /* positions of a block */

/* Positions of a tile: two tiles take at most 32 KiB. */
template <int N> constexpr int tile_of = N <= 128 ? 32 : 16;

/* What a block works on. */
struct head_of_row {
    size_t index; /* among the heads of all rows */
    int first;    /* of its own positions */
};

template <int N> static __device__ head_of_row place_of(const cuda_attention_job &job) {
    unsigned blocks = ((unsigned)job.positions + owners<N> - 1) / owners<N>;
    return {blockIdx.x / blocks, (int)(blockIdx.x % blocks) * owners<N>};
}

template <int N> static __device__ int own_position(const head_of_row &place) {
    return place.first + (int)threadIdx.x / parts<N>;
}

/* Where the features of a position begin in values of `sequences` side by side: the input has
 * three, q, k and v. */
static __device__ size_t offset(const cuda_attention_job &job, const head_of_row &place,
                                int position, int sequences, int sequence) {
    size_t row = place.index / (size_t)job.heads, head = place.index % (size_t)job.heads;
    size_t at =
        (row * (size_t)job.positions + (size_t)position) * (size_t)sequences + (size_t)sequence;
    return (at * (size_t)job.heads + head) * (size_t)job.size;
}

/* The feature that this thread holds at i: threads side by side load side by side. */
template <int N> static __device__ int feature(int i) {
    int part = (int)threadIdx.x % parts<N>;
    return (i / TOGETHER * parts<N> + part) * TOGETHER + i % TOGETHER;
}

/* The thread's features of its own position; 0 past the last. */
template <typename T, int N>
static __device__ void load_own(float (&to)[own<N>], const void *values,
                                const cuda_attention_job &job, const head_of_row &place,
                                int sequences, int sequence, float scale) {
    int position = own_position<N>(place);
    for (int i = 0; i < own<N>; i++) {
        bool exists = position < job.positions && feature<N>(i) < job.size;
        size_t at =
            exists ? offset(job, place, position, sequences, sequence) + (size_t)feature<N>(i) : 0;
        to[i] = exists ? scale * cuda_widen(((const T *)values)[at]) : 0;
    }
}

template <typename T, int N>
static __device__ void store_own(void *values, const float (&from)[own<N>],
                                 const cuda_attention_job &job, const head_of_row &place,
                                 int sequences, int sequence, float scale) {
    int position = own_position<N>(place);
    if (position >= job.positions) return;
    for (int i = 0; i < own<N>; i++)
        if (feature<N>(i) < job.size)
            cuda_narrow(scale * from[i], (T *)values +
                                             offset(job, place, position, sequences, sequence) +
                                             (size_t)feature<N>(i));
}

/* The block loads the features of a tile, [tile_of<N>, N] in shared memory. */
template <typename T, int N>
static __device__ void load_tile(float *to, const void *values, const cuda_attention_job &job,
                                 const head_of_row &place, int first, int sequences, int sequence,
                                 float scale) {
    for (int e = (int)threadIdx.x; e < tile_of<N> * N; e += THREADS) {
        int position = first + e / N, f = e % N;
        bool exists = position < job.positions && f < job.size;
        size_t at = exists ? offset(job, place, position, sequences, sequence) + (size_t)f : 0;
        to[e] = exists ? scale * cuda_widen(((const T *)values)[at]) : 0;
    }
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

static __device__ bool reads(const cuda_attention_job &job, int query, int key) {
    return key < job.positions && (!job.causal || key <= query);
}

/* Past the last key that a block's queries read. */
template <int N>
static __device__ int keys_end(const cuda_attention_job &job, const head_of_row &place) {
    int end = place.first + owners<N>;
    return job.causal && end < job.positions ? end : job.positions;
}

static __device__ float scale_of(const cuda_attention_job &job) {
    return 1 / sqrtf((float)job.size);
}

static __device__ size_t statistic(const cuda_attention_job &job, const head_of_row &place,
                                   int position) {
    return place.index * (size_t)job.positions + (size_t)position;
}

template <typename T, int N> static __global__ void forward(cuda_attention_job job) {
    __shared__ float keys[tile_of<N> * N], values[tile_of<N> * N];
    head_of_row place = place_of<N>(job);
    int position = own_position<N>(place);
    float query[own<N>], output[own<N>] = {}, largest = -INFINITY, sum = 0;
    load_own<T, N>(query, job.input, job, place, 3, 0, scale_of(job));
    for (int first = 0; first < keys_end<N>(job, place); first += tile_of<N>) {
        __syncthreads();
        load_tile<T, N>(keys, job.input, job, place, first, 3, 1, 1);
        load_tile<T, N>(values, job.input, job, place, first, 3, 2, 1);
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
    store_own<T, N>(job.output, output, job, place, 1, 0, 1 / sum);
    if (job.log_sum != NULL && position < job.positions && threadIdx.x % parts<N> == 0)
        job.log_sum[statistic(job, place, position)] = largest + logf(sum);
}

/* With weight p = e^(score - log_sum) and the gradient g of the output, the score's gradient is
 * p * (g . v - g . output); g . output is stored for the kernel below. */
template <typename T, int N> static __global__ void query_gradient(cuda_attention_job job) {
    __shared__ float keys[tile_of<N> * N], values[tile_of<N> * N];
    head_of_row place = place_of<N>(job);
    int position = own_position<N>(place);
    bool exists = position < job.positions;
    float query[own<N>], gradient[own<N>], result[own<N>], product = 0;
    load_own<T, N>(query, job.input, job, place, 3, 0, scale_of(job));
    load_own<T, N>(gradient, job.output_gradient, job, place, 1, 0, 1);
    load_own<T, N>(result, job.output, job, place, 1, 0, 1);
    for (int i = 0; i < own<N>; i++)
        product += result[i] * gradient[i];
    for (int lanes = 1; lanes < parts<N>; lanes *= 2)
        product += __shfl_xor_sync(0xffffffffu, product, lanes);
    for (int i = 0; i < own<N>; i++)
        result[i] = 0;
    float log_sum = exists ? job.log_sum[statistic(job, place, position)] : 0;
    if (exists && threadIdx.x % parts<N> == 0)
        job.product[statistic(job, place, position)] = product;
    for (int first = 0; first < keys_end<N>(job, place); first += tile_of<N>) {
        __syncthreads();
        load_tile<T, N>(keys, job.input, job, place, first, 3, 1, 1);
        load_tile<T, N>(values, job.input, job, place, first, 3, 2, 1);
        __syncthreads();
        for (int j = 0; j < tile_of<N>; j++) {
            float score = dot<N>(query, keys + j * N), change = dot<N>(gradient, values + j * N);
            float weight = reads(job, position, first + j) ? expf(score - log_sum) : 0;
            add<N>(result, weight * (change - product), keys + j * N);
        }
    }
    store_own<T, N>(job.input_gradient, result, job, place, 3, 0, scale_of(job));
}

template <typename T, int N> static __global__ void key_value_gradient(cuda_attention_job job) {
    __shared__ float queries[tile_of<N> * N], gradients[tile_of<N> * N];
    __shared__ float log_sums[tile_of<N>], products[tile_of<N>];
    head_of_row place = place_of<N>(job);
    int position = own_position<N>(place);
    float key[own<N>], value[own<N>], key_result[own<N>] = {}, value_result[own<N>] = {};
    load_own<T, N>(key, job.input, job, place, 3, 1, 1);
    load_own<T, N>(value, job.input, job, place, 3, 2, 1);
    int begin = job.causal ? place.first / tile_of<N> * tile_of<N> : 0;
    for (int first = begin; first < job.positions; first += tile_of<N>) {
        __syncthreads();
        load_tile<T, N>(queries, job.input, job, place, first, 3, 0, scale_of(job));
        load_tile<T, N>(gradients, job.output_gradient, job, place, first, 1, 0, 1);
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
    store_own<T, N>(job.input_gradient, key_result, job, place, 3, 1, 1);
    store_own<T, N>(job.input_gradient, value_result, job, place, 3, 2, 1);
}

template <int N> static unsigned blocks_for(const cuda_attention_job *job) {
    unsigned blocks = ((unsigned)job->positions + owners<N> - 1) / owners<N>;
    return (unsigned)job->rows * (unsigned)job->heads * blocks;
}

template <typename T, int N>
static void launch_forward(const cuda_attention_job *job, cudaStream_t stream) {
    LAUNCH_BLOCK((forward<T, N>), blocks_for<N>(job), THREADS, stream, *job);
}

template <typename T, int N>
static void launch_backward(const cuda_attention_job *job, cudaStream_t stream) {
    LAUNCH_BLOCK((query_gradient<T, N>), blocks_for<N>(job), THREADS, stream, *job);
    LAUNCH_BLOCK((key_value_gradient<T, N>), blocks_for<N>(job), THREADS, stream, *job);
}

/* Calls function<T, N> with the smallest N that holds a head. */
#define BY_SIZE_OF(function, T, size, ...)                                                         \
    ((size) <= 16    ? function<T, 16>(__VA_ARGS__)                                                \
     : (size) <= 32  ? function<T, 32>(__VA_ARGS__)                                                \
     : (size) <= 64  ? function<T, 64>(__VA_ARGS__)                                                \
     : (size) <= 128 ? function<T, 128>(__VA_ARGS__)                                               \
                     : function<T, CUDA_ATTENTION_SIZE>(__VA_ARGS__))
#define BY_SIZE(function, type_of_values, size, ...)                                               \
    cuda_by_type(type_of_values, [&](auto of) {                                                    \
        using T = typename decltype(of)::type;                                                     \
        BY_SIZE_OF(function, T, size, __VA_ARGS__);                                                \
    })

extern "C" cudaError_t cuda_run_attention(const cuda_attention_job *job, cudaStream_t stream) {
    BY_SIZE(launch_forward, job->type, job->size, job, stream);
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_run_attention_backward(const cuda_attention_job *job,
                                                   cudaStream_t stream) {
    BY_SIZE(launch_backward, job->type, job->size, job, stream);
    return cudaGetLastError();
}
