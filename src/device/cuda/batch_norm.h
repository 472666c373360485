/* SPDX-License-Identifier: Apache-2.0 */
/* What forward and backward of batch norm share: which thread reads which pixels, channels last. A
 * small tensor takes one launch: a block owns a few channels and reads its pixels a second time
 * from the cache. A large tensor takes two: first each block sums over its chunk of pixels, then
 * every block adds the sums of all chunks for its channels and applies them to its chunk. For .cu
 * files only. */
#ifndef DEVICE_CUDA_BATCH_NORM_H
#define DEVICE_CUDA_BATCH_NORM_H

#include <math.h>

#include "device/cuda/columns.h"
#include "device/cuda/kernels.h"

constexpr int WHOLE_LANES = 2; /* 32 bytes of a pixel: one sector of memory */
constexpr int CHUNK_LANES = 4;
constexpr int CHUNK_THREADS = 256;

struct chunks {
    unsigned groups; /* of CHUNK_LANES packs of channels */
    unsigned count;
    size_t pixels; /* of one chunk; the last may be shorter */
};

/* The part that one thread reads: a pack of channels of every stride-th pixel. */
struct part {
    int channel;
    bool real; /* false: beyond the last channel, with no pixels */
    size_t pixel, end, stride;
};

template <int N, int LANES>
static __device__ part part_of(const cuda_batch_norm_job &job, unsigned group, size_t begin,
                               size_t end) {
    int channel = (int)(group * LANES + threadIdx.x % LANES) * N;
    bool real = channel < job.channels;
    return {real ? channel : 0, real, begin + threadIdx.x / LANES, real ? end : begin,
            blockDim.x / LANES};
}

template <int N>
static __device__ part chunk_part(const cuda_batch_norm_job &job, const chunks &chunks) {
    size_t begin = blockIdx.x / chunks.groups * chunks.pixels, end = begin + chunks.pixels;
    return part_of<N, CHUNK_LANES>(job, blockIdx.x % chunks.groups, begin,
                                   end < job.pixels ? end : job.pixels);
}

/* Issues several loads before it uses the first; more than 128 bytes would not fit a thread's
 * registers. */
template <typename Load, typename Use>
static __device__ void visit(const part &part, Load load, Use use) {
    constexpr int AHEAD = sizeof(decltype(load(0))) > 32 ? 2 : 4;
    for (size_t pixel = part.pixel; pixel < part.end; pixel += AHEAD * part.stride) {
        decltype(load(pixel)) ahead[AHEAD] = {};
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (pixel + k * part.stride < part.end) ahead[k] = load(pixel + k * part.stride);
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (pixel + k * part.stride < part.end) use(pixel + k * part.stride, ahead[k]);
    }
}

template <int N, typename T>
static __device__ cuda_pack<T, N> load_at(const cuda_batch_norm_job &job, const part &part,
                                          const void *values, size_t pixel) {
    return cuda_load<N>((const T *)values + pixel * (size_t)job.channels + part.channel);
}

/* N channels of one pixel, of each of COUNT tensors. */
template <typename T, int N, int COUNT> struct packs { cuda_pack<T, N> of[COUNT]; };

template <int N> static __device__ void load_channels(float (&to)[N], const float *from) {
    for (int i = 0; i < N; i++)
        to[i] = from[i];
}

/* Forward and backward must compute the same bits, so that they agree on the ReLU's mask. */
static __device__ float normal(float value, float mean, float scale, float bias) {
    return fmaf(value - mean, scale, bias);
}

/* Two rows of [channels] for each chunk. */
static __device__ float *partial_row(const cuda_batch_norm_job &job, size_t chunk, int row) {
    return job.partial + (chunk * 2 + (size_t)row) * (size_t)job.channels;
}

/* Sum over all chunks of term(chunk) for the channel of this thread: neighbouring threads have
 * neighbouring channels of the block's group. */
template <int CHANNELS, typename Term>
static __device__ float sum_chunks(const chunks &chunks, float *room, Term term) {
    float sum[1] = {0};
#pragma unroll 4
    for (unsigned chunk = threadIdx.x / CHANNELS; chunk < chunks.count;
         chunk += CHUNK_THREADS / CHANNELS)
        sum[0] += term(chunk);
    cuda_sum_columns<1, CHANNELS>(sum, room);
    return sum[0];
}

template <int N> static chunks chunks_of(const cuda_batch_norm_job *job) {
    size_t pixels = job->pixels, lanes = CHUNK_THREADS / CHUNK_LANES;
    size_t groups = ((size_t)job->channels + CHUNK_LANES * N - 1) / (CHUNK_LANES * N);
    size_t most = (pixels + lanes - 1) / lanes;
    size_t count = (job->cut.blocks + (job->cut.at_most ? 0 : groups - 1)) / groups;
    if (count < 1) count = 1;
    size_t chunk_pixels = (pixels - 1) / (count < most ? count : most) + 1;
    return {(unsigned)groups, (unsigned)((pixels - 1) / chunk_pixels + 1), chunk_pixels};
}

template <int N> static unsigned whole_blocks(const cuda_batch_norm_job *job) {
    return (unsigned)((job->channels + WHOLE_LANES * N - 1) / (WHOLE_LANES * N));
}

static inline unsigned whole_threads(const cuda_batch_norm_job *job) {
    unsigned threads = 2 * CUDA_WARP;
    while (threads < CUDA_COLUMN_THREADS && threads < job->pixels * WHOLE_LANES)
        threads *= 2;
    return threads;
}

#endif
