/* SPDX-License-Identifier: Apache-2.0 */
/* Batch normalisation, forward and evaluation. ADD: followed by a sum and its ReLU. */
#include "device/cuda/batch_norm.h"

#include <float.h>

/* An overflow must reach the loss as NaN; a reciprocal of 0 would hide it. */
static __device__ float reciprocal_std(float variance, float epsilon) {
    return variance <= FLT_MAX ? 1 / sqrtf(variance + epsilon) : NAN;
}

/* torch's running statistics: unbiased variance, in double as in Python. Values that are not finite
 * are ignored. */
static __device__ void keep_statistics(const cuda_batch_norm_job &job, int channel, float mean,
                                       float variance) {
    job.mean[channel] = mean;
    job.reciprocal[channel] = reciprocal_std(variance, job.epsilon);
    if (!(fabsf(mean) <= FLT_MAX && variance <= FLT_MAX)) return;
    double keep = 1 - job.momentum, count = (double)job.pixels;
    double unbiased = (double)variance * (count / (count - 1));
    job.running_mean[channel] =
        (float)(keep * (double)job.running_mean[channel] + job.momentum * (double)mean);
    job.running_variance[channel] =
        (float)(keep * (double)job.running_variance[channel] + job.momentum * unbiased);
}

/* Mean, and sum of squared distances from it, over the block's `count` pixels, the first `begin`. A
 * thread sums the distances from its first value, and the block combines them relative to its own
 * first value: for any mean, cancellation is of the order of the std. */
template <int N, int LANES, typename T>
static __device__ void measure(const cuda_batch_norm_job &job, const part &part, size_t begin,
                               float count, float (&mean)[N], float (&squares)[N]) {
    __shared__ float room[CUDA_COLUMN_ROOM(N, LANES)];
    auto load = [&](size_t pixel) { return load_at<N, T>(job, part, job.input, pixel); };
    cuda_pack<T, N> base = load(begin), first = part.steps > 0 ? load(part.pixel) : base;
    float own = 0, sum[N] = {};
    for (int i = 0; i < N; i++)
        squares[i] = 0;
    visit(part, load, [&](size_t, const cuda_pack<T, N> &values) {
        own += 1;
        for (int i = 0; i < N; i++) {
            float off = cuda_widen(values.at[i]) - cuda_widen(first.at[i]);
            sum[i] += off;
            squares[i] = fmaf(off, off, squares[i]);
        }
    });
    for (int i = 0; i < N; i++)
        mean[i] = fmaf(own, cuda_widen(first.at[i]) - cuda_widen(base.at[i]), sum[i]);
    cuda_sum_columns<N, LANES>(mean, room);
    for (int i = 0; i < N; i++) {
        mean[i] = cuda_widen(base.at[i]) + mean[i] / count;
        if (own == 0) continue;
        float off = sum[i] / own, own_squares = squares[i] - sum[i] * off;
        float apart = cuda_widen(first.at[i]) - mean[i] + off;
        squares[i] = (own_squares < 0 ? 0 : own_squares) + own * apart * apart;
    }
    cuda_sum_columns<N, LANES>(squares, room);
}

/* The ReLU sees what is stored. */
template <typename T, int N> static __device__ unsigned char passes(const float (&stored)[N]) {
    unsigned bits = 0;
    for (int i = 0; i < N; i++) {
        T rounded;
        cuda_narrow(stored[i], &rounded);
        bits |= (cuda_widen(rounded) <= 0 ? 0u : 1u) << i;
    }
    return (unsigned char)bits;
}

template <typename T, int N, adding ADD>
static __device__ void normalise(const cuda_batch_norm_job &job, const part &part,
                                 const float (&mean)[N], const float (&reciprocal)[N]) {
    float scale[N], bias[N];
    for (int i = 0; i < N; i++) {
        scale[i] = job.weight[part.channel + i] * reciprocal[i];
        bias[i] = job.bias[part.channel + i];
    }
    second_norm<N> second;
    if (ADD == NORMED) load_second(job, part, second);
    for (int i = 0; ADD == NORMED && i < N; i++)
        bias[i] += CUDA_NORM_ROW(job.second, CUDA_NORM_BIAS, job.channels)[part.channel + i];
    auto load = [&](size_t pixel) {
        packs<T, N, 1 + (ADD != ALONE)> values = {
            {load_at<N, T, LAST>(job, part, job.input, pixel)}};
        if (ADD != ALONE)
            values.of[ADD != ALONE] = load_at<N, T, LAST>(job, part, job.added, pixel);
        return values;
    };
    visit(part, load, [&](size_t pixel, const packs<T, N, 1 + (ADD != ALONE)> &values) {
        float result[N];
        for (int i = 0; i < N; i++) {
            float z = normal(cuda_widen(values.of[0].at[i]), mean[i], scale[i], bias[i]);
            float added = ADD != ALONE ? cuda_widen(values.of[ADD != ALONE].at[i]) : 0;
            if (ADD == ADDED) z += added;
            if (ADD == NORMED) z = fmaf(added - second.mean[i], second.scale[i], z);
            result[i] = job.relu && z < 0 ? 0 : z;
        }
        cuda_store<T, N>((T *)job.output + pixel * (size_t)job.channels + part.channel, result);
        if (ADD != ALONE && job.mask != NULL) *mask_at<N>(job, part, pixel) = passes<T, N>(result);
    });
}

template <typename T, int N, adding ADD>
static __global__ void __launch_bounds__(CUDA_COLUMN_THREADS)
    forward_whole(cuda_batch_norm_job job) {
    part part = part_of<N, WHOLE_LANES>(job, blockIdx.x, 0, 1);
    float mean[N], variance[N], reciprocal[N];
    measure<N, WHOLE_LANES, T>(job, part, 0, (float)job.pixels, mean, variance);
    for (int i = 0; i < N; i++) {
        variance[i] /= (float)job.pixels;
        reciprocal[i] = reciprocal_std(variance[i], job.epsilon);
    }
    if (threadIdx.x < WHOLE_LANES && part.real)
        for (int i = 0; i < N; i++)
            keep_statistics(job, part.channel + i, mean[i], variance[i]);
    normalise<T, N, ADD>(job, part, mean, reciprocal);
}

/* How many pixels each block of a group has. */
struct shares {
    size_t full; /* of every block */
    size_t rest; /* of the first ones, a stretch each */
};

static __device__ shares shares_of(const cuda_batch_norm_job &job, const division &cut) {
    size_t round = cut.count * STRETCH;
    return {job.pixels / round * STRETCH, job.pixels % round};
}

static __device__ float share_of(const shares &shares, size_t block) {
    size_t before = block * STRETCH, left = shares.rest > before ? shares.rest - before : 0;
    return (float)(shares.full + (left < STRETCH ? left : STRETCH));
}

template <int N>
static __device__ void combine_measures(const cuda_batch_norm_job &job, const division &cut,
                                        const shares &shares) {
    constexpr int CHANNELS = CHUNK_LANES * N;
    __shared__ float room[CUDA_COLUMN_ROOM(1, CHANNELS)];
    int channel = (int)(blockIdx.x % cut.groups * CHANNELS + threadIdx.x % CHANNELS);
    int reads = channel < job.channels ? channel : 0;
    auto part = [&](unsigned block, int row) {
        return cuda_load_written(partial_row<2>(job, block, row) + reads);
    };
    float base = part(0, 0);
    float mean = sum_blocks<CHANNELS>(cut, room, [&](unsigned block) {
        return share_of(shares, block) * (part(block, 0) - base);
    });
    mean = base + mean / (float)job.pixels;
    float variance = sum_blocks<CHANNELS>(cut, room, [&](unsigned block) {
        float apart = part(block, 0) - mean;
        return part(block, 1) + share_of(shares, block) * apart * apart;
    });
    if (threadIdx.x < CHANNELS && channel < job.channels)
        keep_statistics(job, channel, mean, variance / (float)job.pixels);
}

template <typename T, int N>
static __global__ void __launch_bounds__(CHUNK_THREADS, 2)
    measure_chunk(cuda_batch_norm_job job, division cut) {
    part part = chunk_part<N>(job, cut);
    size_t block = blockIdx.x / cut.groups;
    shares shares = shares_of(job, cut);
    float mean[N], squares[N];
    measure<N, CHUNK_LANES, T>(job, part, block * STRETCH, share_of(shares, block), mean, squares);
    if (threadIdx.x < CHUNK_LANES && part.real)
        for (int i = 0; i < N; i++) {
            partial_row<2>(job, block, 0)[part.channel + i] = mean[i];
            partial_row<2>(job, block, 1)[part.channel + i] = squares[i];
        }
    if (combines(job, cut)) combine_measures<N>(job, cut, shares);
}

/* Normalises with the statistics of this step, or with the running ones. */
template <typename T, int N, adding ADD>
static __global__ void __launch_bounds__(CHUNK_THREADS, 2)
    forward_chunk(cuda_batch_norm_job job, division cut, bool running) {
    part part = chunk_part<N>(job, cut);
    float mean[N], reciprocal[N];
    load_channels(mean, (running ? job.running_mean : job.mean) + part.channel);
    load_channels(reciprocal, (running ? job.running_variance : job.reciprocal) + part.channel);
    for (int i = 0; running && i < N; i++)
        reciprocal[i] = reciprocal_std(reciprocal[i], job.epsilon);
    if (job.fixed && blockIdx.x < cut.groups && threadIdx.x < CHUNK_LANES && part.real)
        for (int i = 0; i < N; i++) {
            job.mean[part.channel + i] = mean[i];
            job.reciprocal[part.channel + i] = reciprocal[i];
        }
    normalise<T, N, ADD>(job, reversed(part), mean, reciprocal);
}

/* The statistics from sums, and what a plan that applies the norm reads. */
template <typename T, int N> static __global__ void settle(cuda_batch_norm_job job) {
    int channel = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (channel >= job.channels) return;
    auto row = [&](int index) { return CUDA_NORM_ROW(job.mean, index, job.channels) + channel; };
    if (job.summed) {
        double count = (double)job.pixels, mean = *row(CUDA_NORM_SUMS) / count;
        double variance = *row(CUDA_NORM_SQUARES) / count - mean * mean;
        keep_statistics(job, channel, (float)mean, (float)(variance < 0 ? 0 : variance));
    }
    float scale = job.weight[channel] * job.reciprocal[channel];
    T *scales = (T *)CUDA_NORM_ROW(job.mean, CUDA_NORM_SCALE, job.channels);
    T *shifts = (T *)CUDA_NORM_ROW(job.mean, CUDA_NORM_SHIFT, job.channels);
    cuda_narrow(scale, &scales[channel]);
    cuda_narrow(job.bias[channel] - job.mean[channel] * scale, &shifts[channel]);
    *row(CUDA_NORM_WEIGHT) = job.weight[channel];
    *row(CUDA_NORM_BIAS) = job.bias[channel];
}

/* Launchers. */

template <typename T, int N, adding ADD>
static void launch_values(const cuda_batch_norm_job *job, bool running, cudaStream_t stream) {
    division cut = divide<N>(job, job->resident.values);
    LAUNCH((forward_chunk<T, N, ADD>), cut.groups * cut.count, CHUNK_THREADS, stream, *job, cut,
           running);
}

template <typename T, int N>
static void evaluate(const cuda_batch_norm_job *job, cudaStream_t stream) {
    job->added != NULL ? launch_values<T, N, ADDED>(job, true, stream)
                       : launch_values<T, N, ALONE>(job, true, stream);
}

template <typename T, int N, adding ADD>
static void launch_forward(const cuda_batch_norm_job *job, cudaStream_t stream) {
    if (!job->summed && !job->applied && fits_one_launch<N>(job, CUDA_NORM_WHOLE_FORWARD)) {
        LAUNCH_BLOCK((forward_whole<T, N, ADD>), whole_blocks<N>(job), whole_threads(job), stream,
                     *job);
        return;
    }
    division cut = divide<N>(job, job->resident.sums);
    if (!job->summed)
        LAUNCH_BLOCK((measure_chunk<T, N>), cut.groups * cut.count, CHUNK_THREADS, stream, *job,
                     cut);
    if (job->summed || job->applied)
        LAUNCH((settle<T, N>), cuda_blocks((size_t)job->channels), CUDA_THREADS, stream, *job);
    if (job->applied) return;
    if (ADD != ALONE && job->second != NULL)
        launch_values<T, N, NORMED>(job, false, stream);
    else
        launch_values<T, N, ADD>(job, false, stream);
}

template <typename T, int N>
static void forward(const cuda_batch_norm_job *job, cudaStream_t stream) {
    job->added != NULL ? launch_forward<T, N, ADDED>(job, stream)
                       : launch_forward<T, N, ALONE>(job, stream);
}

template <typename T, int N> static cudaError_t fit(cuda_batch_norm_job *job, int processors) {
    const void *values = job->added != NULL ? (const void *)forward_chunk<T, N, NORMED>
                                            : (const void *)forward_chunk<T, N, ALONE>;
    cudaError_t error =
        find_resident((const void *)measure_chunk<T, N>, processors, &job->resident.sums);
    return error != cudaSuccess ? error : find_resident(values, processors, &job->resident.values);
}

template <typename T, int N> static size_t partial_bytes(const cuda_batch_norm_job *job) {
    if (fits_one_launch<N>(job, CUDA_NORM_WHOLE_BACKWARD)) return 0;
    size_t rows = job->added != NULL ? 3 : 2; /* of a second norm */
    rows *= (size_t)divide<N>(job, job->resident.sums).count + 1;
    return rows * (size_t)job->channels * sizeof(float);
}

template <typename T, int N> static size_t mask_bytes(const cuda_batch_norm_job *job) {
    return divide<N>(job, 0).groups * CHUNK_LANES * job->pixels;
}

template <typename T, int N> static bool is_large(const cuda_batch_norm_job *job) {
    return !fits_one_launch<N>(job, CUDA_NORM_WHOLE_FORWARD);
}

extern "C" bool cuda_batch_norm_is_large(const cuda_batch_norm_job *job) {
    return CUDA_BY_PACK(is_large, job->type, job->channels, job);
}

extern "C" size_t cuda_batch_norm_mask_bytes(const cuda_batch_norm_job *job) {
    return CUDA_BY_PACK(mask_bytes, job->type, job->channels, job);
}

extern "C" size_t cuda_batch_norm_partial_bytes(const cuda_batch_norm_job *job) {
    return CUDA_BY_PACK(partial_bytes, job->type, job->channels, job);
}

extern "C" cudaError_t cuda_fit_batch_norm(cuda_batch_norm_job *job, int processors) {
    return CUDA_BY_PACK(fit, job->type, job->channels, job, processors);
}

extern "C" cudaError_t cuda_run_batch_norm(const cuda_batch_norm_job *job, cudaStream_t stream) {
    CUDA_BY_PACK(forward, job->type, job->channels, job, stream);
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_run_batch_norm_evaluation(const cuda_batch_norm_job *job,
                                                      cudaStream_t stream) {
    CUDA_BY_PACK(evaluate, job->type, job->channels, job, stream);
    return cudaGetLastError();
}
