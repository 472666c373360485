/* SPDX-License-Identifier: Apache-2.0 */
/* Layer norm: a block for each position. The gradients of weight and bias are sums over positions:
 * a thread adds those of one part and one feature, and a second kernel adds the parts in order. */
#include <math.h>

#include "device/cuda/kernel.h"
#include "device/cuda/kernels.h"

constexpr int PARTS = 64;
constexpr size_t PART_POSITIONS = 8; /* at least, in each part but the last */

/* Adjacent ranges of positions. */
typedef struct division {
    size_t positions; /* of each but the last */
    int parts;
} division;

static division divide(size_t positions) {
    size_t each = (positions + PARTS - 1) / PARTS;
    if (each < PART_POSITIONS) each = PART_POSITIONS;
    return {each, (int)((positions + each - 1) / each)};
}

template <typename T> static __global__ void normalise(cuda_layer_norm_job job) {
    __shared__ float part[CUDA_WARP];
    size_t features = (size_t)job.features;
    for (size_t position = blockIdx.x; position < job.positions; position += gridDim.x) {
        const T *x = (const T *)job.input + position * features;
        T *y = (T *)job.output + position * features;
        float sum = 0, square = 0;
        for (size_t i = threadIdx.x; i < features; i += blockDim.x)
            sum += cuda_widen(x[i]);
        float mean = cuda_block_sum(sum, part) / (float)job.features;
        for (size_t i = threadIdx.x; i < features; i += blockDim.x) {
            float off = cuda_widen(x[i]) - mean;
            square += off * off;
        }
        float variance = cuda_block_sum(square, part) / (float)job.features;
        float reciprocal = 1 / sqrtf(variance + job.epsilon);
        for (size_t i = threadIdx.x; i < features; i += blockDim.x) {
            float value = (cuda_widen(x[i]) - mean) * reciprocal;
            cuda_narrow(value * job.weight[i] + job.bias[i], &y[i]);
        }
        if (threadIdx.x == 0 && job.saved != NULL) job.saved[position] = {mean, reciprocal};
    }
}

/* dx = reciprocal * (g - mean(g) - xhat * mean(g * xhat)) with g = dy * weight; dx may be dy. */
template <typename T> static __global__ void differentiate(cuda_layer_norm_job job) {
    __shared__ float part[CUDA_WARP];
    size_t features = (size_t)job.features;
    for (size_t position = blockIdx.x; position < job.positions; position += gridDim.x) {
        const T *x = (const T *)job.input + position * features;
        const T *dy = (const T *)job.output_gradient + position * features;
        T *dx = (T *)job.input_gradient + position * features;
        cuda_layer_norm_moments m = job.saved[position];
        float sum = 0, projection = 0;
        for (size_t i = threadIdx.x; i < features; i += blockDim.x) {
            float g = cuda_widen(dy[i]) * job.weight[i];
            sum += g;
            projection += g * (cuda_widen(x[i]) - m.mean) * m.reciprocal;
        }
        sum = cuda_block_sum(sum, part) / (float)job.features;
        projection = cuda_block_sum(projection, part) / (float)job.features;
        for (size_t i = threadIdx.x; i < features; i += blockDim.x) {
            float g = cuda_widen(dy[i]) * job.weight[i];
            float xhat = (cuda_widen(x[i]) - m.mean) * m.reciprocal;
            cuda_narrow(m.reciprocal * (g - sum - xhat * projection), &dx[i]);
        }
    }
}

/* partial: [parts, 2, features]. */
template <typename T> static __global__ void sum_part(cuda_layer_norm_job job, division cut) {
    size_t features = (size_t)job.features;
    GRID_STRIDE(k, (size_t)cut.parts * features) {
        size_t part = k / features, i = k % features;
        size_t begin = part * cut.positions, end = begin + cut.positions;
        if (end > job.positions) end = job.positions;
        float weight = 0, bias = 0;
        for (size_t position = begin; position < end; position++) {
            cuda_layer_norm_moments m = job.saved[position];
            size_t at = position * features + i;
            float dy = cuda_widen(((const T *)job.output_gradient)[at]);
            weight += dy * (cuda_widen(((const T *)job.input)[at]) - m.mean) * m.reciprocal;
            bias += dy;
        }
        job.partial[2 * part * features + i] = weight;
        job.partial[(2 * part + 1) * features + i] = bias;
    }
}

static __global__ void add_parts(cuda_layer_norm_job job, int parts) {
    size_t features = (size_t)job.features;
    GRID_STRIDE(k, 2 * features) {
        float sum = 0;
        for (int part = 0; part < parts; part++)
            sum += job.partial[2 * (size_t)part * features + k];
        float *gradient = k < features ? job.weight_gradient : job.bias_gradient;
        if (gradient != NULL) gradient[k % features] = sum;
    }
}

template <typename T> static void forward(const cuda_layer_norm_job *job, cudaStream_t stream) {
    LAUNCH_BLOCK(normalise<T>, cuda_position_blocks(job->positions), CUDA_POSITION_THREADS, stream,
                 *job);
}

/* The sums come first: dx may overwrite dy. */
template <typename T> static void backward(const cuda_layer_norm_job *job, cudaStream_t stream) {
    if (job->weight_gradient != NULL || job->bias_gradient != NULL) {
        division cut = divide(job->positions);
        size_t sums = (size_t)cut.parts * (size_t)job->features;
        LAUNCH(sum_part<T>, cuda_blocks(sums), CUDA_THREADS, stream, *job, cut);
        LAUNCH(add_parts, cuda_blocks(2 * (size_t)job->features), CUDA_THREADS, stream, *job,
               cut.parts);
    }
    if (job->input_gradient == NULL) return;
    LAUNCH_BLOCK(differentiate<T>, cuda_position_blocks(job->positions), CUDA_POSITION_THREADS,
                 stream, *job);
}

extern "C" size_t cuda_layer_norm_partial_bytes(size_t positions, int features) {
    return (size_t)divide(positions).parts * 2 * (size_t)features * sizeof(float);
}

extern "C" cudaError_t cuda_run_layer_norm(const cuda_layer_norm_job *job, cudaStream_t stream) {
    cuda_by_type(job->type, [&](auto of) { forward<typename decltype(of)::type>(job, stream); });
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_run_layer_norm_backward(const cuda_layer_norm_job *job,
                                                    cudaStream_t stream) {
    cuda_by_type(job->type, [&](auto of) { backward<typename decltype(of)::type>(job, stream); });
    return cudaGetLastError();
}
