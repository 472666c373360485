/* SPDX-License-Identifier: Apache-2.0 */
/* Batch normalisation, backward. With x^ = (x - mean) * reciprocal and g the gradient before the
 * ReLU, bias gradient = sum g, weight gradient = sum g x^, input gradient = weight * reciprocal *
 * (g - mean of g - x^ * mean of g x^). The ReLU's mask is computed again from x, which is read
 * anyway. With a sum (ADD) forward saved it; g is also the gradient of the added input: the first
 * pass writes it there and the second reads it. */
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

/* N channels of a pixel: x, the output's gradient, and of a sum the ReLU's mask. */
template <typename T, int N> struct pixel_values {
    cuda_pack<T, N> x, gradient;
    unsigned char mask;
};

/* Calls use(pixel, off, g) with off = x - mean, N of each. */
template <typename T, int N, bool ADD, visits VISIT, typename Use>
static __device__ void visit_gradients(const cuda_batch_norm_job &job, const part &part,
                                       const channel_constants<N> &constants, Use use) {
    auto load = [&](size_t pixel) {
        pixel_values<T, N> values = {load_at<N, T, VISIT>(job, part, job.input, pixel),
                                     load_at<N, T, VISIT>(job, part, job.output_gradient, pixel),
                                     0};
        if (ADD) values.mask = *mask_at<N>(job, part, pixel);
        return values;
    };
    visit(part, load, [&](size_t pixel, const pixel_values<T, N> &values) {
        float off[N], gradient[N];
        for (int i = 0; i < N; i++) {
            float value = cuda_widen(values.x.at[i]);
            bool stops = ADD ? (values.mask >> i & 1) == 0
                             : job.relu && normal(value, constants.mean[i], constants.scale[i],
                                                  constants.bias[i]) <= 0;
            off[i] = value - constants.mean[i];
            gradient[i] = stops ? 0 : cuda_widen(values.gradient.at[i]);
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
    visit_gradients<T, N, ADD, FIRST>(
        job, part, constants, [&](size_t pixel, const float(&off)[N], const float(&gradient)[N]) {
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
    visit_gradients<T, N, false, LAST>(
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
    part part = part_of<N, WHOLE_LANES>(job, blockIdx.x, 0, 1);
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

/* Also keeps the sums of all blocks for the second launch. */
template <int N>
static __device__ void combine_gradients(const cuda_batch_norm_job &job, const division &cut) {
    constexpr int CHANNELS = CHUNK_LANES * N;
    __shared__ float room[CUDA_COLUMN_ROOM(1, CHANNELS)];
    int channel = (int)(blockIdx.x % cut.groups * CHANNELS + threadIdx.x % CHANNELS);
    int reads = channel < job.channels ? channel : 0;
    float sums[2];
    for (int row = 0; row < 2; row++)
        sums[row] = sum_blocks<CHANNELS>(cut, room, [&](unsigned block) {
            return cuda_load_written(partial_row(job, block, row) + reads);
        });
    if (threadIdx.x >= CHANNELS || channel >= job.channels) return;
    for (int row = 0; row < 2; row++)
        partial_row(job, cut.count, row)[channel] = sums[row];
    keep_gradients(job, channel, sums[0], sums[1]);
}

template <typename T, int N, bool ADD>
static __global__ void __launch_bounds__(CHUNK_THREADS, 2)
    sum_chunk(cuda_batch_norm_job job, division cut) {
    part part = chunk_part<N>(job, cut);
    channel_constants<N> constants;
    load_constants(job, part, constants);
    float sums[2 * N];
    sum_gradients<T, N, CHUNK_LANES, ADD>(job, part, constants, sums);
    if (threadIdx.x < CHUNK_LANES && part.real)
#pragma unroll
        for (int i = 0; i < 2 * N; i++)
            partial_row(job, blockIdx.x / cut.groups, i / N)[part.channel + i % N] = sums[i];
    if (combines(job, cut)) combine_gradients<N>(job, cut);
}

/* summed: blocks of the first launch in each group. */
template <typename T, int N>
static __global__ void __launch_bounds__(CHUNK_THREADS, 2)
    backward_chunk(cuda_batch_norm_job job, division cut, unsigned summed) {
    part part = chunk_part<N>(job, cut);
    channel_constants<N> constants;
    load_constants(job, part, constants);
    float sum[N], off_sum[N];
    load_channels(sum, partial_row(job, summed, 0) + part.channel);
    load_channels(off_sum, partial_row(job, summed, 1) + part.channel);
    spread_gradients<T, N>(job, reversed(part), constants, sum, off_sum);
}

template <typename T, int N, bool ADD>
static void launch_backward(const cuda_batch_norm_job *job, cudaStream_t stream) {
    if (fits_one_launch<N>(job, CUDA_NORM_WHOLE_BACKWARD)) {
        LAUNCH_BLOCK((backward_whole<T, N, ADD>), whole_blocks<N>(job), whole_threads(job), stream,
                     *job);
        return;
    }
    division sums = divide<N>(job, job->resident.sums);
    division values = divide<N>(job, job->resident.values);
    LAUNCH_BLOCK((sum_chunk<T, N, ADD>), sums.groups * sums.count, CHUNK_THREADS, stream, *job,
                 sums);
    if (job->input_gradient == NULL) return;
    LAUNCH((backward_chunk<T, N>), values.groups * values.count, CHUNK_THREADS, stream,
           spread_job(*job, ADD), values, sums.count);
}

template <typename T, int N>
static void backward(const cuda_batch_norm_job *job, cudaStream_t stream) {
    job->added != NULL ? launch_backward<T, N, true>(job, stream)
                       : launch_backward<T, N, false>(job, stream);
}

/* With and without a sum it launches as many blocks, so that both add in the same order. */
template <typename T, int N> static cudaError_t fit(cuda_batch_norm_job *job, int processors) {
    const void *kernels[] = {(const void *)sum_chunk<T, N, false>,
                             (const void *)sum_chunk<T, N, true>,
                             (const void *)backward_chunk<T, N>};
    unsigned resident[3];
    for (int i = 0; i < 3; i++) {
        cudaError_t error = find_resident(kernels[i], processors, &resident[i]);
        if (error != cudaSuccess) return error;
    }
    job->resident = {resident[0] < resident[1] ? resident[0] : resident[1], resident[2]};
    return cudaSuccess;
}

extern "C" cudaError_t cuda_fit_batch_norm_backward(cuda_batch_norm_job *job, int processors) {
    return CUDA_BY_PACK(fit, job->type, job->channels, job, processors);
}

extern "C" cudaError_t cuda_run_batch_norm_backward(const cuda_batch_norm_job *job,
                                                    cudaStream_t stream) {
    CUDA_BY_PACK(backward, job->type, job->channels, job, stream);
    return cudaGetLastError();
}
