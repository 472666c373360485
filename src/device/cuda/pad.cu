/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions over a few channels read pixels and filter taps of 4 or 8, the last ones zero: their
 * loads are then aligned. */
#include "device/cuda/kernel.h"
#include "device/cuda/kernels.h"

/* [rows, channels, pixels] becomes [rows, pixels, PADDED]. */
template <typename T, int PADDED>
static __global__ void pad_pixels(T *to, const float *from, cuda_pad_job job) {
    size_t channels = (size_t)job.channels;
    GRID_STRIDE(i, job.outer * job.pixels) {
        const float *first = from + i / job.pixels * channels * job.pixels + i % job.pixels;
        float values[PADDED];
        for (size_t c = 0; c < PADDED; c++)
            values[c] = c < channels ? first[c * job.pixels] : 0;
        cuda_store(to + i * PADDED, values);
    }
}

template <typename T, int PADDED>
static void launch_pixels(const cuda_pad_job *job, cudaStream_t stream) {
    LAUNCH((pad_pixels<T, PADDED>), cuda_blocks(job->outer * job->pixels), CUDA_THREADS, stream,
           (T *)job->to, (const float *)job->from, *job);
}

/* The other way round. */
template <typename T>
static __global__ void cut_pixels(float *to, const T *from, cuda_pad_job job) {
    size_t channels = (size_t)job.channels, padded = (size_t)job.padded;
    GRID_STRIDE(i, job.outer * channels * job.pixels) {
        size_t channel = i / job.pixels % channels, row = i / job.pixels / channels;
        to[i] = cuda_widen(from[(row * job.pixels + i % job.pixels) * padded + channel]);
    }
}

/* [outer, channels] becomes [outer, padded], or the other way round. */
template <typename T> static __global__ void pad_weights(T *to, const T *from, cuda_pad_job job) {
    size_t padded = (size_t)job.padded, channels = (size_t)job.channels;
    GRID_STRIDE(i, job.outer * padded) {
        size_t channel = i % padded;
        if (channel < channels)
            to[i] = from[i / padded * channels + channel];
        else
            cuda_narrow(0, &to[i]);
    }
}

static __global__ void cut_weights(float *to, const float *from, cuda_pad_job job) {
    size_t padded = (size_t)job.padded, channels = (size_t)job.channels;
    GRID_STRIDE(i, job.outer * channels)
    to[i] = from[i / channels * padded + i % channels];
}

extern "C" cudaError_t cuda_run_pad_pixels(const cuda_pad_job *job, cudaStream_t stream) {
    cuda_by_type(job->type, [&](auto of) {
        using T = typename decltype(of)::type;
        job->padded == 4 ? launch_pixels<T, 4>(job, stream) : launch_pixels<T, 8>(job, stream);
    });
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_run_cut_pixels(const cuda_pad_job *job, cudaStream_t stream) {
    unsigned blocks = cuda_blocks(job->outer * (size_t)job->channels * job->pixels);
    cuda_by_type(job->type, [&](auto of) {
        using T = typename decltype(of)::type;
        LAUNCH(cut_pixels<T>, blocks, CUDA_THREADS, stream, (float *)job->to, (const T *)job->from,
               *job);
    });
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_run_pad_weights(const cuda_pad_job *job, cudaStream_t stream) {
    unsigned blocks = cuda_blocks(job->outer * (size_t)job->padded);
    cuda_by_type(job->type, [&](auto of) {
        using T = typename decltype(of)::type;
        LAUNCH(pad_weights<T>, blocks, CUDA_THREADS, stream, (T *)job->to, (const T *)job->from,
               *job);
    });
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_run_cut_weights(const cuda_pad_job *job, cudaStream_t stream) {
    LAUNCH(cut_weights, cuda_blocks(job->outer * (size_t)job->channels), CUDA_THREADS, stream,
           (float *)job->to, (const float *)job->from, *job);
    return cudaGetLastError();
}
