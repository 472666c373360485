/* SPDX-License-Identifier: Apache-2.0 */
/* Batch normalisation, backward. With x^ = (x - mean) * reciprocal and g the gradient before the
 * ReLU, bias gradient = sum g, weight gradient = sum g x^, input gradient = weight * reciprocal *
 * (g - mean of g - x^ * mean of g x^). The ReLU's mask is computed again from x, which is read
 * anyway. With a sum (ADD) forward saved it; g is also the gradient of the added input: the first
 * pass writes it there and the second reads it. Of a sum of two norms (NORMED) the first pass also
 * sums up g and g x^ of the second one, whose own backward spreads them. */
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

/* N channels of a pixel: x, the output's gradient, of a sum the ReLU's mask, and the x of a second
 * norm. */
template <typename T, int N, adding ADD> struct pixel_values {
    cuda_pack<T, N> x, gradient;
    unsigned char mask;
};
template <typename T, int N> struct pixel_values<T, N, NORMED> {
    cuda_pack<T, N> x, gradient, second;
    unsigned char mask;
};

template <typename T, int N, adding ADD>
static __device__ float second_of(const pixel_values<T, N, ADD> &, int) {
    return 0;
}
template <typename T, int N>
static __device__ float second_of(const pixel_values<T, N, NORMED> &values, int i) {
    return cuda_widen(values.second.at[i]);
}
template <typename T, int N, adding ADD>
static __device__ void load_added(const cuda_batch_norm_job &, const part &, size_t,
                                  pixel_values<T, N, ADD> &) {}
template <typename T, int N>
static __device__ void load_added(const cuda_batch_norm_job &job, const part &part, size_t pixel,
                                  pixel_values<T, N, NORMED> &values) {
    values.second = load_at<N, T>(job, part, job.added, pixel);
}

/* Calls use(pixel, off, g, x of the second norm) with off = x - mean, N of each. */
template <typename T, int N, adding ADD, visits VISIT, typename Use>
static __device__ void visit_gradients(const cuda_batch_norm_job &job, const part &part,
                                       const channel_constants<N> &constants, Use use) {
    auto load = [&](size_t pixel) {
        pixel_values<T, N, ADD> values = {};
        values.x = load_at<N, T, VISIT>(job, part, job.input, pixel);
        values.gradient = load_at<N, T, VISIT>(job, part, job.output_gradient, pixel);
        if (ADD != ALONE) values.mask = *mask_at<N>(job, part, pixel);
        load_added(job, part, pixel, values);
        return values;
    };
    visit(part, load, [&](size_t pixel, const pixel_values<T, N, ADD> &values) {
        float off[N], gradient[N], second[N];
        for (int i = 0; i < N; i++) {
            float value = cuda_widen(values.x.at[i]);
            bool stops = ADD != ALONE
                             ? (values.mask >> i & 1) == 0
                             : job.relu && normal(value, constants.mean[i], constants.scale[i],
                                                  constants.bias[i]) <= 0;
            off[i] = value - constants.mean[i];
            gradient[i] = stops ? 0 : cuda_widen(values.gradient.at[i]);
            second[i] = second_of(values, i);
        }
        use(pixel, off, gradient, second);
    });
}

template <typename T, int N>
static __device__ void store_at(const cuda_batch_norm_job &job, const part &part, void *values,
                                size_t pixel, const float (&stored)[N]) {
    cuda_store<T, N>((T *)values + pixel * (size_t)job.channels + (size_t)part.channel, stored);
}

/* Rows of partial sums: of g, of g * off, and of g * off of the second norm. */
template <adding ADD> constexpr int ROWS = ADD == NORMED ? 3 : 2;

/* sums: N of each row, over all pixels of the block. */
template <typename T, int N, int LANES, adding ADD>
static __device__ void sum_gradients(const cuda_batch_norm_job &job, const part &part,
                                     const channel_constants<N> &constants,
                                     float (&sums)[ROWS<ADD> * N]) {
    __shared__ float room[CUDA_COLUMN_ROOM(2 * N, LANES)];
    second_norm<N> second;
    if (ADD == NORMED) load_second(job, part, second);
    for (int i = 0; i < ROWS<ADD> * N; i++)
        sums[i] = 0;
    visit_gradients<T, N, ADD, FIRST>(
        job, part, constants,
        [&](size_t pixel, const float(&off)[N], const float(&gradient)[N], const float(&x)[N]) {
            for (int i = 0; i < N; i++) {
                sums[i] += gradient[i];
                sums[N + i] = fmaf(gradient[i], off[i], sums[N + i]);
                float *last = &sums[(ROWS<ADD> - 1) * N + i];
                if (ADD == NORMED) *last = fmaf(gradient[i], x[i] - second.mean[i], *last);
            }
            if (ADD != ALONE && job.added_gradient != NULL)
                store_at<T>(job, part, job.added_gradient, pixel, gradient);
        });
    cuda_sum_columns<2 * N, LANES>((float(&)[2 * N]) sums, room);
    if constexpr (ADD == NORMED) {
        __shared__ float third[CUDA_COLUMN_ROOM(N, LANES)];
        cuda_sum_columns<N, LANES>((float(&)[N])sums[2 * N], third);
    }
}

/* The second pass reads g where the first one wrote it. */
static __host__ __device__ cuda_batch_norm_job spread_job(cuda_batch_norm_job job, adding add) {
    if (add != ALONE) {
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
    visit_gradients<T, N, ALONE, LAST>(
        job, part, constants,
        [&](size_t pixel, const float(&off)[N], const float(&gradient)[N], const float(&)[N]) {
            float result[N];
            for (int i = 0; i < N; i++) {
                float rest = gradient[i] - sum[i] - off[i] * off_sum[i];
                result[i] = constants.scale[i] * rest;
            }
            store_at<T>(job, part, job.input_gradient, pixel, result);
        });
}

template <typename T, int N, adding ADD>
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

/* Also keeps the sums of all blocks for the second launch, and the second norm's for its own. */
template <int N, adding ADD>
static __device__ void combine_gradients(const cuda_batch_norm_job &job, const division &cut) {
    constexpr int CHANNELS = CHUNK_LANES * N;
    __shared__ float room[CUDA_COLUMN_ROOM(1, CHANNELS)];
    int channel = (int)(blockIdx.x % cut.groups * CHANNELS + threadIdx.x % CHANNELS);
    int reads = channel < job.channels ? channel : 0;
    float sums[ROWS<ADD>];
    for (int row = 0; row < ROWS<ADD>; row++)
        sums[row] = sum_blocks<CHANNELS>(cut, room, [&](unsigned block) {
            return cuda_load_written(partial_row<ROWS<ADD>>(job, block, row) + reads);
        });
    if (threadIdx.x >= CHANNELS || channel >= job.channels) return;
    for (int row = 0; row < 2; row++)
        partial_row<ROWS<ADD>>(job, cut.count, row)[channel] = sums[row];
    keep_gradients(job, channel, sums[0], sums[1]);
    if (ADD != NORMED) return;
    auto second = [&](int row) { return CUDA_NORM_ROW(job.second, row, job.channels) + channel; };
    *second(CUDA_NORM_BIAS_GRADIENT) = sums[0];
    *second(CUDA_NORM_WEIGHT_GRADIENT) = sums[ROWS<ADD> - 1] * *second(CUDA_NORM_RECIPROCAL);
}

template <typename T, int N, adding ADD>
static __global__ void __launch_bounds__(CHUNK_THREADS, 2)
    sum_chunk(cuda_batch_norm_job job, division cut) {
    part part = chunk_part<N>(job, cut);
    channel_constants<N> constants;
    load_constants(job, part, constants);
    float sums[ROWS<ADD> * N];
    sum_gradients<T, N, CHUNK_LANES, ADD>(job, part, constants, sums);
    if (threadIdx.x < CHUNK_LANES && part.real)
#pragma unroll
        for (int i = 0; i < ROWS<ADD> * N; i++)
            partial_row<ROWS<ADD>>(job, blockIdx.x / cut.groups, i / N)[part.channel + i % N] =
                sums[i];
    if (combines(job, cut)) combine_gradients<N, ADD>(job, cut);
}

/* `partial` begins with the sums of all blocks. */
template <typename T, int N>
static __global__ void __launch_bounds__(CHUNK_THREADS, 2)
    backward_chunk(cuda_batch_norm_job job, division cut) {
    part part = chunk_part<N>(job, cut);
    channel_constants<N> constants;
    load_constants(job, part, constants);
    float sum[N], off_sum[N];
    load_channels(sum, partial_row<2>(job, 0, 0) + part.channel);
    load_channels(off_sum, partial_row<2>(job, 0, 1) + part.channel);
    spread_gradients<T, N>(job, reversed(part), constants, sum, off_sum);
}

/* Another plan has applied the norm and written the gradients of weight and bias. This keeps them,
 * and makes the sums of g and g * off of them. */
template <int N> static __global__ void settle_gradients(cuda_batch_norm_job job) {
    int channel = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (channel >= job.channels) return;
    float *weight = CUDA_NORM_ROW(job.mean, CUDA_NORM_WEIGHT_GRADIENT, job.channels) + channel;
    float sum = CUDA_NORM_ROW(job.mean, CUDA_NORM_BIAS_GRADIENT, job.channels)[channel];
    float off_sum = *weight / job.reciprocal[channel];
    keep_gradients(job, channel, sum, off_sum);
    *weight = off_sum;
}

/* The gradient before its ReLU is there, too. */
template <typename T, int N>
static void launch_applied(cuda_batch_norm_job job, cudaStream_t stream) {
    division values = divide<N>(&job, job.resident.values);
    LAUNCH((settle_gradients<N>), cuda_blocks((size_t)job.channels), CUDA_THREADS, stream, job);
    job.partial = CUDA_NORM_ROW(job.mean, CUDA_NORM_BIAS_GRADIENT, job.channels);
    job.relu = false;
    if (job.input_gradient == NULL) return;
    LAUNCH((backward_chunk<T, N>), values.groups * values.count, CHUNK_THREADS, stream, job,
           values);
}

template <typename T, int N, adding ADD>
static void launch_chunks(const cuda_batch_norm_job *job, cudaStream_t stream) {
    division sums = divide<N>(job, job->resident.sums);
    division values = divide<N>(job, job->resident.values);
    cuda_batch_norm_job spread = spread_job(*job, ADD);
    spread.partial = partial_row<ROWS<ADD>>(*job, sums.count, 0);
    LAUNCH_BLOCK((sum_chunk<T, N, ADD>), sums.groups * sums.count, CHUNK_THREADS, stream, *job,
                 sums);
    if (job->input_gradient == NULL) return;
    LAUNCH((backward_chunk<T, N>), values.groups * values.count, CHUNK_THREADS, stream, spread,
           values);
}

template <typename T, int N, adding ADD>
static void launch_backward(const cuda_batch_norm_job *job, cudaStream_t stream) {
    if (fits_one_launch<N>(job, CUDA_NORM_WHOLE_BACKWARD))
        LAUNCH_BLOCK((backward_whole<T, N, ADD>), whole_blocks<N>(job), whole_threads(job), stream,
                     *job);
    else
        launch_chunks<T, N, ADD>(job, stream);
}

template <typename T, int N>
static void backward(const cuda_batch_norm_job *job, cudaStream_t stream) {
    if (job->applied)
        launch_applied<T, N>(*job, stream);
    else if (job->second != NULL)
        launch_chunks<T, N, NORMED>(job, stream);
    else if (job->added != NULL)
        launch_backward<T, N, ADDED>(job, stream);
    else
        launch_backward<T, N, ALONE>(job, stream);
}

/* With and without a sum it launches as many blocks, so that both add in the same order. */
template <typename T, int N> static cudaError_t fit(cuda_batch_norm_job *job, int processors) {
    const void *kernels[] = {
        (const void *)sum_chunk<T, N, ALONE>, (const void *)sum_chunk<T, N, ADDED>,
        (const void *)sum_chunk<T, N, NORMED>, (const void *)backward_chunk<T, N>};
    unsigned resident[4], least;
    for (int i = 0; i < 4; i++) {
        cudaError_t error = find_resident(kernels[i], processors, &resident[i]);
        if (error != cudaSuccess) return error;
    }
    least = resident[0] < resident[1] ? resident[0] : resident[1];
    job->resident = {least < resident[2] ? least : resident[2], resident[3]};
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
