/* SPDX-License-Identifier: Apache-2.0 */
/* Batch normalisation, backward. With x^ = (x - mean) * reciprocal and g the gradient before the
 * ReLU, bias gradient = sum g, weight gradient = sum g x^, input gradient = weight * reciprocal *
 * (g - mean of g - x^ * mean of g x^). The ReLU's mask is computed again from x, which is read
 * anyway. With a sum (ADD) the output shows the mask; g is also the gradient of the added input:
 * the first pass writes it there and the second reads it. */
#include "device/cuda/batch_norm.h"

template <int N> struct channel_constants { float mean[N], scale[N], bias[N]; };

template <int N>
static __device__ void load_constants(const cuda_batch_norm_job &job, const part &part,
                                      channel_constants<N> &constants) {
    for (int i = 0; i < N; i++) {
        int channel = part.channel + i;
        constants.mean[i] = job.mean[channel];
        constants.scale[i] = job.weight[channel] * job.reciprocal[channel];
        constants.bias[i] = job.bias[channel];
    }
}

/* Calls use(pixel, off, g) with off = x - mean, N of each. */
template <typename T, int N, bool ADD, typename Use>
static __device__ void visit_gradients(const cuda_batch_norm_job &job, const part &part,
                                       const channel_constants<N> &constants, Use use) {
    auto load = [&](size_t pixel) {
        packs<T, N, 2 + ADD> values = {{load_at<N, T>(job, part, job.input, pixel),
                                        load_at<N, T>(job, part, job.output_gradient, pixel)}};
        if (ADD) values.of[1 + ADD] = load_at<N, T>(job, part, job.output, pixel);
        return values;
    };
    visit(part, load, [&](size_t pixel, const packs<T, N, 2 + ADD> &values) {
        float off[N], gradient[N];
        for (int i = 0; i < N; i++) {
            float value = cuda_widen(values.of[0].at[i]);
            float z = ADD ? cuda_widen(values.of[1 + ADD].at[i])
                          : normal(value, constants.mean[i], constants.scale[i], constants.bias[i]);
            off[i] = value - constants.mean[i];
            gradient[i] = job.relu && z <= 0 ? 0 : cuda_widen(values.of[1].at[i]);
        }
        use(pixel, off, gradient);
    });
}

template <typename T, int N>
static __device__ void store_at(const cuda_batch_norm_job &job, const part &part, void *values,
                                size_t pixel, const float (&stored)[N]) {
    cuda_store<T, N>((T *)values + pixel * (size_t)job.channels + (size_t)part.channel, stored);
}

/* sums: N sums of g, then N sums of g * off, over all pixels of the block. */
template <typename T, int N, int LANES, bool ADD>
static __device__ void sum_gradients(const cuda_batch_norm_job &job, const part &part,
                                     const channel_constants<N> &constants, float (&sums)[2 * N]) {
    __shared__ float room[CUDA_COLUMN_ROOM(2 * N, LANES)];
    for (int i = 0; i < 2 * N; i++)
        sums[i] = 0;
    visit_gradients<T, N, ADD>(job, part, constants,
                               [&](size_t pixel, const float(&off)[N], const float(&gradient)[N]) {
                                   for (int i = 0; i < N; i++) {
                                       sums[i] += gradient[i];
                                       sums[N + i] = fmaf(gradient[i], off[i], sums[N + i]);
                                   }
                                   if (ADD && job.added_gradient != NULL)
                                       store_at<T>(job, part, job.added_gradient, pixel, gradient);
                               });
    cuda_sum_columns<2 * N, LANES>(sums, room);
}

/* The second pass reads g where the first one wrote it. */
static __host__ __device__ cuda_batch_norm_job spread_job(cuda_batch_norm_job job, bool add) {
    if (add) {
        job.output_gradient = job.added_gradient;
        job.relu = false;
    }
    return job;
}

static __device__ void keep_gradients(const cuda_batch_norm_job &job, int channel, float sum,
                                      float off_sum) {
    job.bias_gradient[channel] = sum;
    job.weight_gradient[channel] = off_sum * job.reciprocal[channel];
}

/* sum, off_sum: of g and g * off over all pixels. Overwrites them with the factors of an element's
 * gradient. */
template <typename T, int N>
static __device__ void spread_gradients(const cuda_batch_norm_job &job, const part &part,
                                        const channel_constants<N> &constants, float *sum,
                                        float *off_sum) {
    for (int i = 0; i < N; i++) {
        float reciprocal = job.reciprocal[part.channel + i];
        sum[i] /= (float)job.pixels;
        off_sum[i] *= reciprocal * reciprocal / (float)job.pixels;
        if (job.fixed) sum[i] = off_sum[i] = 0; /* the statistics do not depend on the input */
    }
    visit_gradients<T, N, false>(
        job, part, constants, [&](size_t pixel, const float(&off)[N], const float(&gradient)[N]) {
            float result[N];
            for (int i = 0; i < N; i++) {
                float rest = gradient[i] - sum[i] - off[i] * off_sum[i];
                result[i] = constants.scale[i] * rest;
            }
            store_at<T>(job, part, job.input_gradient, pixel, result);
        });
}

template <typename T, int N, bool ADD>
static __global__ void __launch_bounds__(CUDA_COLUMN_THREADS)
    backward_whole(cuda_batch_norm_job job) {
    part part = part_of<N, WHOLE_LANES>(job, blockIdx.x, 0, job.pixels);
    channel_constants<N> constants;
    load_constants(job, part, constants);
    float sums[2 * N];
    sum_gradients<T, N, WHOLE_LANES, ADD>(job, part, constants, sums);
    if (threadIdx.x < WHOLE_LANES && part.real)
        for (int i = 0; i < N; i++)
            keep_gradients(job, part.channel + i, sums[i], sums[N + i]);
    if (job.input_gradient != NULL)
        spread_gradients<T, N>(spread_job(job, ADD), part, constants, sums, sums + N);
}

template <typename T, int N, bool ADD>
static __global__ void __launch_bounds__(CHUNK_THREADS, 2)
    sum_chunk(cuda_batch_norm_job job, chunks chunks) {
    part part = chunk_part<N>(job, chunks);
    channel_constants<N> constants;
    load_constants(job, part, constants);
    float sums[2 * N];
    sum_gradients<T, N, CHUNK_LANES, ADD>(job, part, constants, sums);
    if (threadIdx.x >= CHUNK_LANES || !part.real) return;
    for (int i = 0; i < 2 * N; i++)
        partial_row(job, blockIdx.x / chunks.groups, i / N)[part.channel + i % N] = sums[i];
}

template <typename T, int N>
static __global__ void __launch_bounds__(CHUNK_THREADS, 2)
    backward_chunk(cuda_batch_norm_job job, chunks chunks) {
    constexpr int CHANNELS = CHUNK_LANES * N;
    __shared__ float room[CUDA_COLUMN_ROOM(1, CHANNELS)], sums[CHANNELS], off_sums[CHANNELS];
    int channel = (int)(blockIdx.x % chunks.groups * CHANNELS + threadIdx.x % CHANNELS);
    int reads = channel < job.channels ? channel : 0;
    float sum = sum_chunks<CHANNELS>(
        chunks, room, [&](unsigned chunk) { return partial_row(job, chunk, 0)[reads]; });
    float off_sum = sum_chunks<CHANNELS>(
        chunks, room, [&](unsigned chunk) { return partial_row(job, chunk, 1)[reads]; });
    if (threadIdx.x < CHANNELS) {
        sums[threadIdx.x] = sum;
        off_sums[threadIdx.x] = off_sum;
        if (blockIdx.x < chunks.groups && channel < job.channels)
            keep_gradients(job, channel, sum, off_sum);
    }
    __syncthreads();
    if (job.input_gradient == NULL) return;
    part part = chunk_part<N>(job, chunks);
    channel_constants<N> constants;
    load_constants(job, part, constants);
    float part_sum[N], part_off_sum[N];
    load_channels(part_sum, sums + threadIdx.x % CHUNK_LANES * N);
    load_channels(part_off_sum, off_sums + threadIdx.x % CHUNK_LANES * N);
    spread_gradients<T, N>(job, part, constants, part_sum, part_off_sum);
}

template <typename T, int N, bool ADD>
static void launch_backward(const cuda_batch_norm_job *job, cudaStream_t stream) {
    if (job->pixels <= CUDA_NORM_WHOLE_BACKWARD) {
        LAUNCH_BLOCK((backward_whole<T, N, ADD>), whole_blocks<N>(job), whole_threads(job), stream,
                     *job);
        return;
    }
    chunks chunks = chunks_of<N>(job);
    unsigned blocks = chunks.groups * chunks.count;
    LAUNCH_BLOCK((sum_chunk<T, N, ADD>), blocks, CHUNK_THREADS, stream, *job, chunks);
    if (job->input_gradient == NULL) blocks = chunks.groups;
    LAUNCH_BLOCK((backward_chunk<T, N>), blocks, CHUNK_THREADS, stream, spread_job(*job, ADD),
                 chunks);
}

template <typename T, int N>
static void backward(const cuda_batch_norm_job *job, cudaStream_t stream) {
    job->added != NULL ? launch_backward<T, N, true>(job, stream)
                       : launch_backward<T, N, false>(job, stream);
}

extern "C" cudaError_t cuda_run_batch_norm_backward(const cuda_batch_norm_job *job,
                                                    cudaStream_t stream) {
    CUDA_BY_PACK(backward, job->type, job->channels, job, stream);
    return cudaGetLastError();
}
