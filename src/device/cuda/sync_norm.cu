/* SPDX-License-Identifier: Apache-2.0 */
/* Batch norm over the rows of several participants: what one of them says of its own rows, and what
 * the others' rows change in its gradient. */
#include "device/cuda/sync_norm.h"

#include <float.h>
#include <math.h>

#include "device/cuda/kernel.h"

constexpr size_t MOST_PARTS = 64; /* of the pixels */
constexpr size_t LEAST_PIXELS = 256;
constexpr unsigned WARPS = CUDA_THREADS / CUDA_WARP;

/* Parts of `pixels` pixels each, for every tile of CUDA_WARP channels. */
struct parts {
    size_t tiles, count, pixels;
};

static parts divide(size_t pixels, int channels) {
    size_t each = (pixels + MOST_PARTS - 1) / MOST_PARTS;
    if (each < LEAST_PIXELS) each = LEAST_PIXELS;
    return {((size_t)channels + CUDA_WARP - 1) / CUDA_WARP, (pixels + each - 1) / each, each};
}

/* Values of one channel, described. */
template <typename T> struct moments {
    T count, mean, squares; /* squares: of the distances from the mean */
};

template <typename T> static __device__ void merge(moments<T> &to, const moments<T> &from) {
    if (from.count == 0) return;
    T count = to.count + from.count, apart = from.mean - to.mean;
    to.squares += from.squares + apart * apart * (to.count * (from.count / count));
    to.mean += apart * (from.count / count);
    to.count = count;
}

/* A warp reads neighbouring channels of a pixel, each warp of the block every eighth pixel. */
template <typename T> static __global__ void describe_part(cuda_sync_norm_job job, parts parts) {
    __shared__ moments<float> of_warp[WARPS][CUDA_WARP];
    size_t part = blockIdx.x / parts.tiles, channels = (size_t)job.channels;
    unsigned lane = threadIdx.x % CUDA_WARP, warp = threadIdx.x / CUDA_WARP;
    size_t channel = blockIdx.x % parts.tiles * CUDA_WARP + lane;
    size_t begin = part * parts.pixels + warp, end = (part + 1) * parts.pixels;
    if (end > job.pixels) end = job.pixels;
    moments<float> own = {};
    if (channel < channels && begin < end) {
        const T *input = (const T *)job.input;
        float first = cuda_widen(input[begin * channels + channel]), sum = 0;
        for (size_t pixel = begin; pixel < end; pixel += WARPS) {
            float off = cuda_widen(input[pixel * channels + channel]) - first;
            sum += off;
            own.squares = fmaf(off, off, own.squares);
            own.count += 1;
        }
        float mean = sum / own.count;
        own.mean = first + mean;
        own.squares -= sum * mean;
        if (own.squares < 0) own.squares = 0;
    }
    of_warp[warp][lane] = own;
    __syncthreads();
    if (warp > 0 || channel >= channels) return;
    for (unsigned other = 1; other < WARPS; other++)
        merge(own, of_warp[other][lane]);
    job.partial[2 * part * channels + channel] = own.mean;
    job.partial[(2 * part + 1) * channels + channel] = own.squares;
}

static __global__ void describe_all(cuda_sync_norm_job job, parts parts) {
    size_t channels = (size_t)job.channels;
    GRID_STRIDE(channel, channels) {
        moments<double> all = {};
        for (size_t part = 0; part < parts.count; part++) {
            size_t left = job.pixels - part * parts.pixels;
            merge(all, {(double)(left < parts.pixels ? left : parts.pixels),
                        (double)job.partial[2 * part * channels + channel],
                        (double)job.partial[(2 * part + 1) * channels + channel]});
        }
        job.message[channel] = all.mean;
        job.message[channels + channel] = all.squares;
    }
}

static __global__ void keep(cuda_sync_norm_job job) {
    GRID_STRIDE(c, (size_t)job.channels) {
        float mean = job.mean[c], variance = job.variance[c];
        if (!(fabsf(mean) <= FLT_MAX && variance <= FLT_MAX)) continue;
        double stays = 1 - job.momentum;
        job.running_mean[c] =
            (float)(stays * (double)job.running_mean[c] + job.momentum * (double)mean);
        job.running_variance[c] = (float)(stays * (double)job.running_variance[c] +
                                          job.momentum * ((double)variance * job.unbiased));
    }
}

template <typename T> static __global__ void correct(cuda_sync_norm_job job) {
    size_t channels = (size_t)job.channels;
    T *gradient = (T *)job.gradient;
    GRID_STRIDE(i, job.pixels * channels) {
        size_t c = i % channels;
        float off = cuda_widen(((const T *)job.input)[i]) - job.mean[c];
        float scale = job.weight[c] * job.reciprocal[c];
        float change = scale * fmaf(job.slope[c], off, job.offset[c]);
        cuda_narrow(cuda_widen(gradient[i]) - change, &gradient[i]);
    }
}

extern "C" size_t cuda_sync_norm_partial_bytes(size_t pixels, int channels) {
    return 2 * sizeof(float) * (size_t)channels * divide(pixels, channels).count;
}

extern "C" cudaError_t cuda_run_sync_norm_describe(const cuda_sync_norm_job *job,
                                                   cudaStream_t stream) {
    parts parts = divide(job->pixels, job->channels);
    LAUNCH_BY_TYPE(LAUNCH_BLOCK, describe_part, job->type, (unsigned)(parts.tiles * parts.count),
                   CUDA_THREADS, stream, *job, parts);
    LAUNCH(describe_all, cuda_blocks((size_t)job->channels), CUDA_THREADS, stream, *job, parts);
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_run_sync_norm_keep(const cuda_sync_norm_job *job, cudaStream_t stream) {
    LAUNCH(keep, cuda_blocks((size_t)job->channels), CUDA_THREADS, stream, *job);
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_run_sync_norm_correct(const cuda_sync_norm_job *job,
                                                  cudaStream_t stream) {
    LAUNCH_BY_TYPE(LAUNCH, correct, job->type, cuda_blocks(job->pixels * (size_t)job->channels),
                   CUDA_THREADS, stream, *job);
    return cudaGetLastError();
}
