/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of an image times a factor for each channel of a row. */
#include <cuda_runtime.h>

#include "device/cuda/kernel.h"
#include "device/cuda/kernels.h"

template <typename T, int N>
static __global__ void scale_channels(cuda_channel_scale_job job, size_t packs) {
    size_t row = job.pixels * job.channels;
    const T *from = (const T *)job.from, *factors = (const T *)job.factors;
    GRID_STRIDE(i, packs) {
        size_t at = i * N;
        cuda_pack<T, N> values = cuda_load<N>(from + at);
        cuda_pack<T, N> by = cuda_load<N>(factors + at / row * job.channels + at % job.channels);
        float result[N];
        for (int k = 0; k < N; k++)
            result[k] = cuda_widen(values.at[k]) * cuda_widen(by.at[k]);
        cuda_store<T, N>((T *)job.to + at, result);
    }
}

/* A block adds CUDA_WARP channels of a row; thread lane + CUDA_WARP * k the pixels k, k + stride,
 * ... of channel `lane`, in float32; CPUs add in double. */
template <typename T> static __global__ void sum_channels(cuda_channel_scale_job job) {
    __shared__ float part[CUDA_THREADS];
    const T *from = (const T *)job.from, *image = (const T *)job.image;
    size_t tiles = (job.channels + CUDA_WARP - 1) / CUDA_WARP;
    size_t lane = threadIdx.x % CUDA_WARP, first = threadIdx.x / CUDA_WARP;
    for (size_t unit = blockIdx.x; unit < job.rows * tiles; unit += gridDim.x) {
        size_t row = unit / tiles, channel = unit % tiles * CUDA_WARP + lane;
        bool inside = channel < job.channels;
        float sum = 0;
        for (size_t pixel = first; inside && pixel < job.pixels;
             pixel += CUDA_THREADS / CUDA_WARP) {
            size_t at = (row * job.pixels + pixel) * job.channels + channel;
            sum += cuda_widen(from[at]) * cuda_widen(image[at]);
        }
        part[threadIdx.x] = sum;
        __syncthreads();
        for (size_t other = lane + CUDA_WARP; first == 0 && other < CUDA_THREADS;
             other += CUDA_WARP)
            sum += part[other];
        if (first == 0 && inside)
            cuda_narrow(sum, (T *)job.factors_gradient + row * job.channels + channel);
        __syncthreads();
    }
}

template <typename T, int N>
static void launch_scale(const cuda_channel_scale_job *job, cudaStream_t stream) {
    size_t packs = job->rows * job->pixels * job->channels / N;
    LAUNCH((scale_channels<T, N>), cuda_blocks(packs), CUDA_THREADS, stream, *job, packs);
}

extern "C" cudaError_t cuda_run_channel_scale(const cuda_channel_scale_job *job,
                                              cudaStream_t stream) {
    CUDA_BY_PACK(launch_scale, job->type, job->channels, job, stream);
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_run_channel_scale_sums(const cuda_channel_scale_job *job,
                                                   cudaStream_t stream) {
    size_t units = job->rows * ((job->channels + CUDA_WARP - 1) / CUDA_WARP);
    unsigned blocks = cuda_position_blocks(units);
    LAUNCH_BY_TYPE(LAUNCH_BLOCK, sum_channels, job->type, blocks, CUDA_THREADS, stream, *job);
    return cudaGetLastError();
}
