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

/* Mean, and sum of squared distances from it, over the block's `count` pixels from `begin`. A
 * thread sums the distances from its first value, and the block combines them relative to its own
 * first value: for any mean, cancellation is of the order of the std. */
template <int N, int LANES, typename T>
static __device__ void measure(const cuda_batch_norm_job &job, const part &part, size_t begin,
                               float count, float (&mean)[N], float (&squares)[N]) {
    __shared__ float room[CUDA_COLUMN_ROOM(N, LANES)];
    auto load = [&](size_t pixel) { return load_at<N, T>(job, part, job.input, pixel); };
    cuda_pack<T, N> base = load(begin), first = part.pixel < part.end ? load(part.pixel) : base;
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

template <typename T, int N, bool ADD>
static __device__ void normalise(const cuda_batch_norm_job &job, const part &part,
                                 const float (&mean)[N], const float (&reciprocal)[N]) {
    float scale[N], bias[N];
    for (int i = 0; i < N; i++) {
        scale[i] = job.weight[part.channel + i] * reciprocal[i];
        bias[i] = job.bias[part.channel + i];
    }
    auto load = [&](size_t pixel) {
        packs<T, N, 1 + ADD> values = {{load_at<N, T>(job, part, job.input, pixel)}};
        if (ADD) values.of[ADD] = load_at<N, T>(job, part, job.added, pixel);
        return values;
    };
    visit(part, load, [&](size_t pixel, const packs<T, N, 1 + ADD> &values) {
        float result[N];
        for (int i = 0; i < N; i++) {
            float z = normal(cuda_widen(values.of[0].at[i]), mean[i], scale[i], bias[i]);
            if (ADD) z += cuda_widen(values.of[ADD].at[i]);
            result[i] = job.relu && z < 0 ? 0 : z;
        }
        cuda_store<T, N>((T *)job.output + pixel * (size_t)job.channels + part.channel, result);
    });
}

template <typename T, int N, bool ADD>
static __global__ void __launch_bounds__(CUDA_COLUMN_THREADS)
    forward_whole(cuda_batch_norm_job job) {
    part part = part_of<N, WHOLE_LANES>(job, blockIdx.x, 0, job.pixels);
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

static __device__ float chunk_count(const cuda_batch_norm_job &job, const chunks &chunks,
                                    size_t chunk) {
    size_t left = job.pixels - chunk * chunks.pixels;
    return (float)(left < chunks.pixels ? left : chunks.pixels);
}

template <typename T, int N>
static __global__ void __launch_bounds__(CHUNK_THREADS, 2)
    measure_chunk(cuda_batch_norm_job job, chunks chunks) {
    part part = chunk_part<N>(job, chunks);
    size_t chunk = blockIdx.x / chunks.groups;
    float mean[N], squares[N];
    measure<N, CHUNK_LANES, T>(job, part, chunk * chunks.pixels, chunk_count(job, chunks, chunk),
                               mean, squares);
    if (threadIdx.x >= CHUNK_LANES || !part.real) return;
    for (int i = 0; i < N; i++) {
        partial_row(job, chunk, 0)[part.channel + i] = mean[i];
        partial_row(job, chunk, 1)[part.channel + i] = squares[i];
    }
}

template <typename T, int N, bool ADD>
static __global__ void __launch_bounds__(CHUNK_THREADS, 2)
    forward_chunk(cuda_batch_norm_job job, chunks chunks) {
    constexpr int CHANNELS = CHUNK_LANES * N;
    __shared__ float room[CUDA_COLUMN_ROOM(1, CHANNELS)], means[CHANNELS], variances[CHANNELS];
    int channel = (int)(blockIdx.x % chunks.groups * CHANNELS + threadIdx.x % CHANNELS);
    int reads = channel < job.channels ? channel : 0;
    float base = partial_row(job, 0, 0)[reads];
    float mean = sum_chunks<CHANNELS>(chunks, room, [&](unsigned chunk) {
        return chunk_count(job, chunks, chunk) * (partial_row(job, chunk, 0)[reads] - base);
    });
    mean = base + mean / (float)job.pixels;
    float variance = sum_chunks<CHANNELS>(chunks, room, [&](unsigned chunk) {
        float apart = partial_row(job, chunk, 0)[reads] - mean;
        return partial_row(job, chunk, 1)[reads] + chunk_count(job, chunks, chunk) * apart * apart;
    });
    variance /= (float)job.pixels;
    if (threadIdx.x < CHANNELS) {
        means[threadIdx.x] = mean;
        variances[threadIdx.x] = variance;
        if (blockIdx.x < chunks.groups && channel < job.channels)
            keep_statistics(job, channel, mean, variance);
    }
    __syncthreads();
    float part_mean[N], reciprocal[N];
    for (int i = 0; i < N; i++) {
        unsigned at = threadIdx.x % CHUNK_LANES * N + (unsigned)i;
        part_mean[i] = means[at];
        reciprocal[i] = reciprocal_std(variances[at], job.epsilon);
    }
    normalise<T, N, ADD>(job, chunk_part<N>(job, chunks), part_mean, reciprocal);
}

template <typename T, int N, bool ADD>
static __global__ void __launch_bounds__(CHUNK_THREADS, 2)
    evaluate_chunk(cuda_batch_norm_job job, chunks chunks) {
    part part = chunk_part<N>(job, chunks);
    float mean[N], reciprocal[N];
    load_channels(mean, job.running_mean + part.channel);
    load_channels(reciprocal, job.running_variance + part.channel);
    for (int i = 0; i < N; i++)
        reciprocal[i] = reciprocal_std(reciprocal[i], job.epsilon);
    if (job.fixed && blockIdx.x < chunks.groups && threadIdx.x < CHUNK_LANES && part.real)
        for (int i = 0; i < N; i++) {
            job.mean[part.channel + i] = mean[i];
            job.reciprocal[part.channel + i] = reciprocal[i];
        }
    normalise<T, N, ADD>(job, part, mean, reciprocal);
}

/* Launchers. */

template <typename T, int N, bool ADD>
static void launch_forward(const cuda_batch_norm_job *job, cudaStream_t stream) {
    if (job->pixels <= CUDA_NORM_WHOLE_FORWARD) {
        LAUNCH_BLOCK((forward_whole<T, N, ADD>), whole_blocks<N>(job), whole_threads(job), stream,
                     *job);
        return;
    }
    chunks chunks = chunks_of<N>(job);
    unsigned blocks = chunks.groups * chunks.count;
    LAUNCH_BLOCK((measure_chunk<T, N>), blocks, CHUNK_THREADS, stream, *job, chunks);
    LAUNCH_BLOCK((forward_chunk<T, N, ADD>), blocks, CHUNK_THREADS, stream, *job, chunks);
}

template <typename T, int N>
static void forward(const cuda_batch_norm_job *job, cudaStream_t stream) {
    job->added != NULL ? launch_forward<T, N, true>(job, stream)
                       : launch_forward<T, N, false>(job, stream);
}

template <typename T, int N, bool ADD>
static void launch_evaluation(const cuda_batch_norm_job *job, cudaStream_t stream) {
    chunks chunks = chunks_of<N>(job);
    LAUNCH((evaluate_chunk<T, N, ADD>), chunks.groups * chunks.count, CHUNK_THREADS, stream, *job,
           chunks);
}

template <typename T, int N>
static void evaluate(const cuda_batch_norm_job *job, cudaStream_t stream) {
    job->added != NULL ? launch_evaluation<T, N, true>(job, stream)
                       : launch_evaluation<T, N, false>(job, stream);
}

template <typename T, int N> static size_t partial_bytes(const cuda_batch_norm_job *job) {
    if (job->pixels <= CUDA_NORM_WHOLE_FORWARD && job->pixels <= CUDA_NORM_WHOLE_BACKWARD) return 0;
    return 2 * sizeof(float) * (size_t)job->channels * chunks_of<N>(job).count;
}

extern "C" size_t cuda_batch_norm_partial_bytes(const cuda_batch_norm_job *job) {
    return CUDA_BY_PACK(partial_bytes, job->type, job->channels, job);
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
