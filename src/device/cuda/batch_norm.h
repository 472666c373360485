/* SPDX-License-Identifier: Apache-2.0 */
/* What forward and backward of batch norm share: which thread reads which pixels, channels last. A
 * small tensor takes one launch: a block owns a few channels and reads its pixels a second time
 * from the cache. A large tensor takes two. The blocks of a launch all run at once: those of a
 * group of channels sweep over the pixels together, a stretch each. In the first launch each block
 * sums, and the last one of its group to finish combines the sums of all. The second launch applies
 * them and sweeps backwards, so that L2 still holds what it reads first. For .cu files only. */
#ifndef DEVICE_CUDA_BATCH_NORM_H
#define DEVICE_CUDA_BATCH_NORM_H

#include <math.h>

#include "device/cuda/columns.h"
#include "device/cuda/kernels.h"
#include "device/cuda/last_block.h"

constexpr int WHOLE_LANES = 2; /* 32 bytes of a pixel: one sector of memory */
constexpr int CHUNK_LANES = 4;
constexpr int CHUNK_THREADS = 256;
constexpr size_t STRETCH = CHUNK_THREADS / CHUNK_LANES; /* pixels that a block reads at once */

struct division {
    unsigned groups; /* of CHUNK_LANES packs of channels */
    unsigned count;  /* blocks of each group */
};

/* The part that one thread reads: a pack of channels of `steps` pixels, `stride` apart, which
 * modulo 2^64 may be backwards. */
struct part {
    int channel;
    bool real; /* false: beyond the last channel, with no pixels */
    size_t pixel, stride, steps;
};

template <int N, int LANES>
static __device__ part part_of(const cuda_batch_norm_job &job, unsigned group, size_t block,
                               size_t blocks) {
    int channel = (int)(group * LANES + threadIdx.x % LANES) * N;
    bool real = channel < job.channels;
    size_t pixels = blockDim.x / LANES, stride = blocks * pixels;
    size_t pixel = block * pixels + threadIdx.x / LANES;
    size_t steps = real && pixel < job.pixels ? (job.pixels - 1 - pixel) / stride + 1 : 0;
    return {real ? channel : 0, real, pixel, stride, steps};
}

template <int N>
static __device__ part chunk_part(const cuda_batch_norm_job &job, const division &cut) {
    return part_of<N, CHUNK_LANES>(job, blockIdx.x % cut.groups, blockIdx.x / cut.groups,
                                   cut.count);
}

static __device__ part reversed(part part) {
    if (part.steps > 0) part.pixel += (part.steps - 1) * part.stride;
    part.stride = 0 - part.stride;
    return part;
}

/* Issues several loads before it uses the first: of two values and a mask four times, of three
 * values twice, or they would not fit a thread's registers. */
template <typename Load, typename Use>
static __device__ void visit(const part &part, Load load, Use use) {
    constexpr int AHEAD = sizeof(decltype(load(0))) > 48 ? 2 : 4;
    size_t pixel = part.pixel;
    for (size_t step = 0; step < part.steps; step += AHEAD, pixel += AHEAD * part.stride) {
        decltype(load(pixel)) ahead[AHEAD] = {};
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (step + k < part.steps) ahead[k] = load(pixel + k * part.stride);
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (step + k < part.steps) use(pixel + k * part.stride, ahead[k]);
    }
}

/* What follows the norm: a ReLU at most; an input that is added; one to which another norm is
 * applied before it is added. */
enum adding { ALONE, ADDED, NORMED };

template <int N> struct second_norm { float mean[N], scale[N]; };
template <int N>
static __device__ void load_second(const cuda_batch_norm_job &job, const part &part,
                                   second_norm<N> &second) {
    auto at = [&](int row, int i) {
        return CUDA_NORM_ROW(job.second, row, job.channels)[part.channel + i];
    };
    for (int i = 0; i < N; i++) {
        second.mean[i] = at(CUDA_NORM_MEAN, i);
        second.scale[i] = at(CUDA_NORM_WEIGHT, i) * at(CUDA_NORM_RECIPROCAL, i);
    }
}

/* Reads channels for the first time, or for the last. */
enum visits { FIRST, LAST };
template <int N, typename T, visits VISIT = FIRST>
static __device__ cuda_pack<T, N> load_at(const cuda_batch_norm_job &job, const part &part,
                                          const void *values, size_t pixel) {
    const T *from = (const T *)values + pixel * (size_t)job.channels + part.channel;
    return VISIT == LAST ? cuda_load_last<N>(from) : cuda_load<N>(from);
}

/* What the ReLU behind a sum lets through: a byte for each pack of a pixel, of which bit i stands
 * for channel i. The bytes of CHUNK_LANES packs lie side by side, then come those of the next
 * pixel: 32 for a warp. */
template <int N>
static __device__ unsigned char *mask_at(const cuda_batch_norm_job &job, const part &part,
                                         size_t pixel) {
    size_t pack = (size_t)part.channel / N, group = pack / CHUNK_LANES;
    return job.mask + (group * job.pixels + pixel) * CHUNK_LANES + pack % CHUNK_LANES;
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

/* ROWS of [channels] for each block of a group, and behind them for the sums of all. */
template <int ROWS>
static __host__ __device__ float *partial_row(const cuda_batch_norm_job &job, size_t block,
                                              int row) {
    return job.partial + (block * ROWS + (size_t)row) * (size_t)job.channels;
}

/* Whether this block is to combine the partial sums of its group. */
static __device__ bool combines(const cuda_batch_norm_job &job, const division &cut) {
    return cuda_arrives_last(job.arrivals + blockIdx.x % cut.groups, cut.count);
}

/* Sum over all blocks of a group of term(block) for the channel of this thread: neighbouring
 * threads have neighbouring channels of the group. */
template <int CHANNELS, typename Term>
static __device__ float sum_blocks(const division &cut, float *room, Term term) {
    float sum[1] = {0};
#pragma unroll 4
    for (unsigned block = threadIdx.x / CHANNELS; block < cut.count;
         block += CHUNK_THREADS / CHANNELS)
        sum[0] += term(block);
    cuda_sum_columns<1, CHANNELS>(sum, room);
    return sum[0];
}

/* `resident`: blocks that the GPU runs at once. */
template <int N> static division divide(const cuda_batch_norm_job *job, unsigned resident) {
    size_t groups = ((size_t)job->channels + CHUNK_LANES * N - 1) / (CHUNK_LANES * N);
    size_t most = (job->pixels + STRETCH - 1) / STRETCH, count = resident / groups;
    return {(unsigned)groups, (unsigned)(count < 1 ? 1 : count < most ? count : most)};
}

/* The counters of groups are as many as a device has; beyond them blocks are many in any case. */
template <int N> static bool fits_one_launch(const cuda_batch_norm_job *job, size_t pixels) {
    return job->pixels <= pixels || divide<N>(job, 0).groups > CUDA_ARRIVALS;
}

static inline cudaError_t find_resident(const void *kernel, int processors, unsigned *blocks) {
    int each = 0;
    cudaError_t error =
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, CHUNK_THREADS, 0);
    *blocks = (unsigned)(processors * each);
    return error;
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
