/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax: a block for each position. */
#include <math.h>

#include "device/cuda/kernel.h"
#include "device/cuda/kernels.h"

/* The largest of the block, to every thread; NaN where one is. part: [CUDA_WARP]. */
static __device__ float block_largest(float value, float *part) {
    for (int lane = CUDA_WARP / 2; lane > 0; lane /= 2) {
        float other = __shfl_xor_sync(0xffffffffu, value, lane);
        value = other > value || isnan(other) ? other : value;
    }
    __syncthreads();
    if (threadIdx.x % CUDA_WARP == 0) part[threadIdx.x / CUDA_WARP] = value;
    __syncthreads();
    float largest = part[0];
    for (unsigned warp = 1; warp < blockDim.x / CUDA_WARP; warp++)
        largest = part[warp] > largest || isnan(part[warp]) ? part[warp] : largest;
    return largest;
}

template <typename T> static __global__ void softmax(cuda_softmax_job job) {
    __shared__ float part[CUDA_WARP];
    size_t features = (size_t)job.features;
    for (size_t position = blockIdx.x; position < job.positions; position += gridDim.x) {
        const T *x = (const T *)job.from + position * features;
        T *y = (T *)job.to + position * features;
        float largest = -INFINITY, sum = 0;
        for (size_t i = threadIdx.x; i < features; i += blockDim.x) {
            float value = cuda_widen(x[i]);
            largest = value > largest || isnan(value) ? value : largest;
        }
        largest = block_largest(largest, part);
        for (size_t i = threadIdx.x; i < features; i += blockDim.x)
            sum += expf(cuda_widen(x[i]) - largest);
        float reciprocal = 1 / cuda_block_sum(sum, part);
        for (size_t i = threadIdx.x; i < features; i += blockDim.x)
            cuda_narrow(expf(cuda_widen(x[i]) - largest) * reciprocal, &y[i]);
    }
}

/* dx = y * (dy - sum(dy * y)) */
template <typename T> static __global__ void softmax_backward(cuda_softmax_job job) {
    __shared__ float part[CUDA_WARP];
    size_t features = (size_t)job.features;
    for (size_t position = blockIdx.x; position < job.positions; position += gridDim.x) {
        const T *dy = (const T *)job.from + position * features;
        const T *y = (const T *)job.output + position * features;
        T *dx = (T *)job.to + position * features;
        float sum = 0;
        for (size_t i = threadIdx.x; i < features; i += blockDim.x)
            sum += cuda_widen(dy[i]) * cuda_widen(y[i]);
        sum = cuda_block_sum(sum, part);
        for (size_t i = threadIdx.x; i < features; i += blockDim.x)
            cuda_narrow(cuda_widen(y[i]) * (cuda_widen(dy[i]) - sum), &dx[i]);
    }
}

extern "C" cudaError_t cuda_run_softmax(const cuda_softmax_job *job, cudaStream_t stream) {
    unsigned blocks = cuda_position_blocks(job->positions);
    LAUNCH_BY_TYPE(LAUNCH_BLOCK, softmax, job->type, blocks, CUDA_POSITION_THREADS, stream, *job);
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_run_softmax_backward(const cuda_softmax_job *job, cudaStream_t stream) {
    unsigned blocks = cuda_position_blocks(job->positions);
    LAUNCH_BY_TYPE(LAUNCH_BLOCK, softmax_backward, job->type, blocks, CUDA_POSITION_THREADS, stream,
                   *job);
    return cudaGetLastError();
}
