/* ReLU and addition in one pass over flat values. `to` may equal an operand. */
#include "device/cuda/kernel.h"
#include "device/cuda/kernels.h"

/* NaN < 0 is false, so NaN stays. */
static __device__ float rectify(float value) {
    return value < 0 ? 0 : value;
}

template <typename T, int N> static __global__ void relu(T *to, const T *from, size_t packs) {
    GRID_STRIDE(i, packs) {
        cuda_pack<T, N> values = cuda_load<N>(from + i * N);
        float result[N];
        for (int k = 0; k < N; k++)
            result[k] = rectify(cuda_widen(values.at[k]));
        cuda_store<T, N>(to + i * N, result);
    }
}

template <typename T, int N>
static __global__ void relu_backward(T *to, const T *from, const T *output, size_t packs) {
    GRID_STRIDE(i, packs) {
        cuda_pack<T, N> outputs = cuda_load<N>(output + i * N), values = cuda_load<N>(from + i * N);
        float result[N];
        for (int k = 0; k < N; k++)
            result[k] = cuda_widen(outputs.at[k]) <= 0 ? 0 : cuda_widen(values.at[k]);
        cuda_store<T, N>(to + i * N, result);
    }
}

template <typename T, int N>
static __global__ void add(T *to, const T *left, const T *right, bool then_relu, size_t packs) {
    GRID_STRIDE(i, packs) {
        cuda_pack<T, N> a = cuda_load<N>(left + i * N), b = cuda_load<N>(right + i * N);
        float result[N];
        for (int k = 0; k < N; k++) {
            float sum = cuda_widen(a.at[k]) + cuda_widen(b.at[k]);
            result[k] = then_relu ? rectify(sum) : sum;
        }
        cuda_store<T, N>(to + i * N, result);
    }
}

template <typename T, int N>
static void launch_relu(const cuda_elementwise_job *job, cudaStream_t stream) {
    size_t packs = job->elements / N;
    LAUNCH((relu<T, N>), cuda_blocks(packs), CUDA_THREADS, stream, (T *)job->to,
           (const T *)job->from, packs);
}

template <typename T, int N>
static void launch_relu_backward(const cuda_elementwise_job *job, cudaStream_t stream) {
    size_t packs = job->elements / N;
    LAUNCH((relu_backward<T, N>), cuda_blocks(packs), CUDA_THREADS, stream, (T *)job->to,
           (const T *)job->from, (const T *)job->second, packs);
}

template <typename T, int N>
static void launch_add(const cuda_elementwise_job *job, cudaStream_t stream) {
    size_t packs = job->elements / N;
    LAUNCH((add<T, N>), cuda_blocks(packs), CUDA_THREADS, stream, (T *)job->to,
           (const T *)job->from, (const T *)job->second, job->relu, packs);
}

extern "C" cudaError_t cuda_run_relu(const cuda_elementwise_job *job, cudaStream_t stream) {
    CUDA_BY_PACK(launch_relu, job->half, job->elements, job, stream);
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_run_relu_backward(const cuda_elementwise_job *job,
                                              cudaStream_t stream) {
    CUDA_BY_PACK(launch_relu_backward, job->half, job->elements, job, stream);
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_run_add(const cuda_elementwise_job *job, cudaStream_t stream) {
    CUDA_BY_PACK(launch_add, job->half, job->elements, job, stream);
    return cudaGetLastError();
}
