/* SPDX-License-Identifier: Apache-2.0 */
/* Addition and multiplication in one pass over flat values. `to` may equal an operand. */
#include "device/cuda/kernel.h"
#include "device/cuda/kernels.h"

template <typename T, int N>
static __global__ void add(T *to, const T *left, const T *right, bool then_relu, size_t packs) {
    GRID_STRIDE(i, packs) {
        cuda_pack<T, N> a = cuda_load<N>(left + i * N), b = cuda_load<N>(right + i * N);
        float result[N];
        for (int k = 0; k < N; k++) {
            float sum = cuda_widen(a.at[k]) + cuda_widen(b.at[k]);
            result[k] = then_relu && sum < 0 ? 0 : sum; /* NaN < 0 is false, so NaN stays */
        }
        cuda_store<T, N>(to + i * N, result);
    }
}

template <typename T, int N>
static __global__ void multiply(T *to, const T *left, const T *right, size_t packs) {
    GRID_STRIDE(i, packs) {
        cuda_pack<T, N> a = cuda_load<N>(left + i * N), b = cuda_load<N>(right + i * N);
        float result[N];
        for (int k = 0; k < N; k++)
            result[k] = cuda_widen(a.at[k]) * cuda_widen(b.at[k]);
        cuda_store<T, N>(to + i * N, result);
    }
}

template <typename T, int N>
static void launch_multiply(const cuda_elementwise_job *job, cudaStream_t stream) {
    size_t packs = job->elements / N;
    LAUNCH((multiply<T, N>), cuda_blocks(packs), CUDA_THREADS, stream, (T *)job->to,
           (const T *)job->from, (const T *)job->second, packs);
}

template <typename T, int N>
static void launch_add(const cuda_elementwise_job *job, cudaStream_t stream) {
    size_t packs = job->elements / N;
    LAUNCH((add<T, N>), cuda_blocks(packs), CUDA_THREADS, stream, (T *)job->to,
           (const T *)job->from, (const T *)job->second, job->relu, packs);
}

extern "C" cudaError_t cuda_run_add(const cuda_elementwise_job *job, cudaStream_t stream) {
    CUDA_BY_PACK(launch_add, job->type, job->elements, job, stream);
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_run_multiply(const cuda_elementwise_job *job, cudaStream_t stream) {
    CUDA_BY_PACK(launch_multiply, job->type, job->elements, job, stream);
    return cudaGetLastError();
}
