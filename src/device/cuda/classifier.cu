/* SPDX-License-Identifier: Apache-2.0 */
/* Cross-entropy over many classes, as of a vocabulary: a block for each row reads the logits twice,
 * the second time out of the cache: first their maximum and, relative to it, the sum of their
 * exponentials, then the gradient, which may take their place (llm.c's fused classifier). Logits
 * come in the compute type. A thread adds 8 logits at a time in float32, in an order that the
 * number of classes alone decides; threads and rows are added in double. So every type, whether one
 * kernel or two, gives the bits of the others. */
#include <limits.h>
#include <math.h>

#include "device/cuda/loss_rows.h"

constexpr int GROUP = 8; /* adjacent logits */
constexpr unsigned MOST_THREADS = 512;

/* -infinity behind the last, where a row has padding. */
template <typename T, bool PACKS>
static __device__ void load_group(const T *row, int first, int outputs, float (&x)[GROUP]) {
    if constexpr (PACKS) {
        constexpr int N = 16 / sizeof(T);
        for (int k = 0; k < GROUP; k += N) {
            cuda_pack<T, N> some = cuda_load<N>(row + first + k);
            for (int c = 0; c < N; c++)
                x[k + c] = cuda_widen(some.at[c]);
        }
        if (first + GROUP <= outputs) return;
        for (int k = 0; k < GROUP; k++)
            x[k] = first + k < outputs ? x[k] : -INFINITY;
    } else {
        for (int k = 0; k < GROUP; k++)
            x[k] = first + k < outputs ? cuda_widen(row[first + k]) : -INFINITY;
    }
}

template <typename T, bool PACKS>
static __device__ void store_group(T *row, int first, int stride, const float (&x)[GROUP]) {
    if constexpr (PACKS) {
        constexpr int N = 16 / sizeof(T);
        for (int k = 0; k < GROUP; k += N) {
            float some[N];
            for (int c = 0; c < N; c++)
                some[c] = x[k + c];
            cuda_store(row + first + k, some);
        }
    } else {
        for (int k = 0; k < GROUP; k++)
            if (first + k < stride) cuda_narrow(x[k], &row[first + k]);
    }
}

/* Of the logits so far: the first maximum, the sum of exp(x - maximum), and with smoothing the sum
 * of weight * -x. A logit of -infinity adds nothing, NaN and infinity make the sum NaN. */
struct logits_sum {
    cuda_place best;
    float sum;
    double negated;

    __device__ void add(const cuda_loss_job &job, int first, const float (&x)[GROUP]) {
        float top = x[0];
        for (int k = 1; k < GROUP; k++)
            top = fmaxf(top, x[k]);
        if (top > best.value) {
            sum *= expf(best.value - top);
            best.value = top;
            for (int k = GROUP - 1; k >= 0; k--)
                if (x[k] == top) best.index = first + k;
        }
        for (int k = 0; k < GROUP; k++)
            sum += x[k] == -INFINITY ? 0 : expf(x[k] - best.value);
        if (job.smoothing == 0) return;
        for (int k = 0; k < GROUP; k++)
            if (first + k < job.outputs)
                negated -= (double)cuda_class_weight(job, first + k) * (double)x[k];
    }
};

/* Of the block, in every thread. */
static __device__ cuda_place first_of_block(cuda_place best) {
    __shared__ cuda_place places[CUDA_WARP];
    best = cuda_first_of_warp(best);
    if (threadIdx.x % CUDA_WARP == 0) places[threadIdx.x / CUDA_WARP] = best;
    __syncthreads();
    best = places[0];
    for (unsigned warp = 1; warp < blockDim.x / CUDA_WARP; warp++) {
        cuda_place other = places[warp];
        bool first = other.value == best.value && other.index < best.index;
        if (other.value > best.value || first) best = other;
    }
    return best;
}

/* d loss / d x_j = p_j * sum_k q_k - q_j, with q_j = (1 - s) w_label [j = label] + s / classes *
 * w_j and the label's part by the shares of both. */
template <typename T, bool PACKS>
static __device__ void write_gradient(const cuda_loss_job &job, size_t row, cuda_loss_row saved) {
    const T *from = (const T *)job.values + row * job.stride;
    T *to = (T *)job.gradient + row * job.stride;
    int stride = (int)job.stride;
    double at_label = 1 - job.smoothing, share = job.smoothing / job.outputs;
    float scale = job.step->loss_scale, each = (float)share, all = 1;
    cuda_row_labels labels(job, row);
    double own = at_label * (double)cuda_class_weight(job, labels.own) * (double)labels.share;
    double second = at_label * (double)cuda_class_weight(job, labels.second) * (double)labels.rest;
    if (job.weights != NULL) all = (float)(own + second + share * job.weight_sum);
    float at_own = (float)own, at_second = (float)second;
    for (int first = (int)threadIdx.x * GROUP; first < stride; first += (int)blockDim.x * GROUP) {
        float x[GROUP];
        load_group<T, PACKS>(from, first, job.outputs, x);
        for (int k = 0; k < GROUP; k++) {
            int j = first + k;
            bool counts = j < job.outputs;
            float p = expf(x[k] - saved.largest) * saved.reciprocal_sum;
            float target = job.weights != NULL && counts ? each * job.weights[j] : each;
            target += (j == labels.own ? at_own : 0) + (j == labels.second ? at_second : 0);
            x[k] = counts ? (p * all - target) * scale : 0;
        }
        store_group<T, PACKS>(to, first, stride, x);
    }
}

template <typename T> static __device__ void clear_gradient(const cuda_loss_job &job, size_t row) {
    for (size_t j = threadIdx.x; j < job.stride; j += blockDim.x)
        cuda_narrow(0, (T *)job.gradient + row * job.stride + j);
}

/* Writes the row's part of the loss; in thread 0. */
static __device__ void write_part(const cuda_loss_job &job, size_t row, double loss, bool correct) {
    job.loss_parts[row] = loss;
    job.correct_parts[row] = correct;
}

/* (1 - s) * the labels' loss + s / classes * sum_j w_j * -log p_j. */
template <typename T, bool PACKS>
static __global__ void __launch_bounds__(MOST_THREADS, 2) classify(cuda_loss_job job) {
    __shared__ double part[CUDA_WARP];
    size_t row = blockIdx.x;
    if (cuda_ignores_row(job, row)) {
        if (threadIdx.x == 0) write_part(job, row, 0, false);
        if (job.joined) clear_gradient<T>(job, row);
        return;
    }
    const T *logits = (const T *)job.values + row * job.stride;
    cuda_row_labels labels(job, row);
    float own = cuda_widen(logits[labels.own]), second = cuda_widen(logits[labels.second]);
    logits_sum of = {{-INFINITY, INT_MAX}, 0, 0};
#pragma unroll 2
    for (int first = (int)threadIdx.x * GROUP; first < job.outputs;
         first += (int)blockDim.x * GROUP) {
        float x[GROUP];
        load_group<T, PACKS>(logits, first, job.outputs, x);
        of.add(job, first, x);
    }
    cuda_place best = first_of_block(of.best);
    double sum = cuda_block_sum((double)(of.sum * expf(of.best.value - best.value)), part);
    double distance = job.smoothing > 0 ? cuda_block_sum(of.negated, part) : 0;
    cuda_loss_row saved = {best.value, (float)(1 / sum)};
    if (threadIdx.x == 0) {
        double log_sum = log(sum);
        double loss = labels.loss(job, own, second, log_sum, best.value);
        if (job.smoothing > 0) { /* otherwise a logit of -infinity is no loss */
            double weights = job.weights != NULL ? job.weight_sum : job.outputs;
            double mean = (weights * (log_sum + (double)best.value) + distance) / job.outputs;
            loss = (1 - job.smoothing) * loss + job.smoothing * mean;
        }
        write_part(job, row, loss, best.index == labels.larger());
        if (job.saved != NULL) job.saved[row] = saved;
    }
    if (job.joined) write_gradient<T, PACKS>(job, row, saved);
}

/* An ignored row has saved nothing. */
template <typename T, bool PACKS>
static __global__ void __launch_bounds__(MOST_THREADS, 2) classify_backward(cuda_loss_job job) {
    size_t row = blockIdx.x;
    if (cuda_ignores_row(job, row))
        clear_gradient<T>(job, row);
    else
        write_gradient<T, PACKS>(job, row, job.saved[row]);
}

static unsigned threads_for(const cuda_loss_job *job) {
    unsigned threads = CUDA_WARP;
    while (threads < MOST_THREADS && threads * GROUP < (unsigned)job->outputs)
        threads *= 2;
    return threads;
}

template <typename T, bool PACKS>
static void launch(const cuda_loss_job *job, bool backward, cudaStream_t stream) {
    if (backward)
        LAUNCH((classify_backward<T, PACKS>), (unsigned)job->rows, threads_for(job), stream, *job);
    else
        LAUNCH_BLOCK((classify<T, PACKS>), (unsigned)job->rows, threads_for(job), stream, *job);
}

static void launch_by_type(const cuda_loss_job *job, bool backward, cudaStream_t stream) {
    cuda_by_type(job->type, [&](auto of) {
        using T = typename decltype(of)::type;
        job->stride % GROUP == 0 ? launch<T, true>(job, backward, stream)
                                 : launch<T, false>(job, backward, stream);
    });
}

bool cuda_is_classifier(const cuda_loss_job *job) {
    bool by_label =
        job->kind == CUDA_LOSS_CROSS_ENTROPY || job->kind == CUDA_LOSS_WEIGHTED_CROSS_ENTROPY;
    return by_label && job->outputs >= CUDA_CLASSIFIER_OUTPUTS;
}

cudaError_t cuda_run_classifier(const cuda_loss_job *job, cudaStream_t stream) {
    launch_by_type(job, false, stream);
    cuda_sum_loss_parts(job, job->rows, stream);
    return cudaGetLastError();
}

cudaError_t cuda_run_classifier_backward(const cuda_loss_job *job, cudaStream_t stream) {
    launch_by_type(job, true, stream);
    return cudaGetLastError();
}

/* Logits that somebody reads, or whose gradient somebody gives. */

template <typename T> static __global__ void read_logits(cuda_logits_job job) {
    for (size_t row = blockIdx.x; row < job.rows; row += gridDim.x)
        for (size_t j = threadIdx.x; j < job.outputs; j += blockDim.x)
            job.plain[row * job.outputs + j] =
                cuda_widen(((const T *)job.logits)[row * job.stride + j]);
}

template <typename T> static __global__ void write_logits(cuda_logits_job job) {
    for (size_t row = blockIdx.x; row < job.rows; row += gridDim.x)
        for (size_t j = threadIdx.x; j < job.stride; j += blockDim.x)
            cuda_narrow(j < job.outputs ? job.plain[row * job.outputs + j] : 0,
                        (T *)job.logits + row * job.stride + j);
}

extern "C" cudaError_t cuda_run_read_logits(const cuda_logits_job *job, cudaStream_t stream) {
    LAUNCH_BY_TYPE(LAUNCH, read_logits, job->type, cuda_position_blocks(job->rows), CUDA_THREADS,
                   stream, *job);
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_run_write_logits(const cuda_logits_job *job, cudaStream_t stream) {
    LAUNCH_BY_TYPE(LAUNCH, write_logits, job->type, cuda_position_blocks(job->rows), CUDA_THREADS,
                   stream, *job);
    return cudaGetLastError();
}
