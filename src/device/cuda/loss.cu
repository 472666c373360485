/* SPDX-License-Identifier: Apache-2.0 */
/* Losses over plain float32 rows, one warp for each row, sums in double: torch.nn.CrossEntropyLoss
 * with label smoothing, class weights, ignore_index and mixed labels, MSELoss, BCEWithLogitsLoss
 * with pos_weight, and HuberLoss. classifier.cu has cross-entropy of many classes. */
#include <limits.h>
#include <math.h>

#include "device/cuda/loss_rows.h"
#include "device/device.h"

constexpr unsigned MOST_THREADS = 1024;
constexpr size_t ONE_BLOCK = (size_t)1
                             << 15; /* elements up to which one block is faster than two launches */
constexpr size_t MOST_BLOCKS = 256;

static __device__ unsigned lane_of_warp() {
    return threadIdx.x % CUDA_WARP;
}

static __device__ size_t first_row() {
    return ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / CUDA_WARP;
}

static __device__ size_t row_stride() {
    return (size_t)gridDim.x * blockDim.x / CUDA_WARP;
}

template <typename T> static __device__ T warp_sum(T value) {
    for (int lane = CUDA_WARP / 2; lane > 0; lane /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, lane);
    return value;
}

static __device__ const float *values_of(const cuda_loss_job &job, size_t row) {
    return (const float *)job.values + row * (size_t)job.outputs;
}

/* The first maximum of a row, returned to every lane. */
static __device__ cuda_place first_largest(const float *values, int count) {
    cuda_place best = {-INFINITY, INT_MAX};
    for (int j = (int)lane_of_warp(); j < count; j += CUDA_WARP)
        if (values[j] > best.value || best.index == INT_MAX) best = {values[j], j};
    return cuda_first_of_warp(best);
}

/* row() returns the row's loss to every lane, with what its gradient needs, and adds 1 to *correct
 * if the prediction is right. gradient() writes the row's gradient. */
struct cross_entropy {
    /* (1 - s) * the labels' loss + s / classes * sum_j -log p_j. */
    static __device__ double row(const cuda_loss_job &job, size_t row, int *correct,
                                 cuda_loss_row *saved) {
        const float *logits = values_of(job, row);
        cuda_row_labels labels(job, row);
        cuda_place best = first_largest(logits, job.outputs);
        double sum = 0, distance = 0;
        for (int j = (int)lane_of_warp(); j < job.outputs; j += CUDA_WARP) {
            float below = logits[j] - best.value;
            sum += (double)expf(below);
            distance -= (double)below;
        }
        sum = warp_sum(sum);
        distance = warp_sum(distance);
        *saved = {best.value, (float)(1 / sum)};
        if (job.saved != NULL && lane_of_warp() == 0) job.saved[row] = *saved;
        *correct += best.index == labels.larger();
        double log_sum = log(sum);
        double label_loss =
            labels.loss(job, logits[labels.own], logits[labels.second], log_sum, best.value);
        if (job.smoothing == 0) return label_loss; /* a logit of -infinity is then no loss */
        double mean_loss = log_sum + distance / job.outputs;
        return (1 - job.smoothing) * label_loss + job.smoothing * mean_loss;
    }

    /* d loss / d x_j = p_j - (1 - s) [j = label] - s / classes, the label's part by the shares of
     * both. */
    static __device__ void gradient(const cuda_loss_job &job, size_t row, cuda_loss_row saved) {
        float everywhere = (float)(job.smoothing / job.outputs);
        float at_label = (float)(1 - job.smoothing), scale = job.step->loss_scale;
        cuda_row_labels labels(job, row);
        float at_own = at_label * labels.share, at_second = at_label * labels.rest;
        const float *logits = values_of(job, row);
        float *to = (float *)job.gradient + row * (size_t)job.outputs;
        for (int j = (int)lane_of_warp(); j < job.outputs; j += CUDA_WARP) {
            float p = expf(logits[j] - saved.largest) * saved.reciprocal_sum;
            float target = (j == labels.own ? at_own : 0) + (j == labels.second ? at_second : 0);
            to[j] = (p - (target + everywhere)) * scale;
        }
    }
};

/* sum_j q_j * -log p_j, with q_j = (1 - s) w_label [j = label] + s / classes * w_j; 0 where the
 * label is ignored. */
struct weighted_cross_entropy {
    static __device__ double row(const cuda_loss_job &job, size_t row, int *correct,
                                 cuda_loss_row *saved) {
        const float *logits = values_of(job, row);
        if (cuda_ignores_row(job, row)) return 0;
        if (job.weights == NULL) return cross_entropy::row(job, row, correct, saved);
        cuda_row_labels labels(job, row);
        cuda_place best = first_largest(logits, job.outputs);
        double sum = 0, distance = 0;
        for (int j = (int)lane_of_warp(); j < job.outputs; j += CUDA_WARP) {
            float below = logits[j] - best.value;
            sum += (double)expf(below);
            if (job.smoothing > 0) distance -= (double)job.weights[j] * (double)below;
        }
        sum = warp_sum(sum);
        distance = warp_sum(distance);
        *saved = {best.value, (float)(1 / sum)};
        if (job.saved != NULL && lane_of_warp() == 0) job.saved[row] = *saved;
        *correct += best.index == labels.larger();
        double log_sum = log(sum);
        double label_loss =
            labels.loss(job, logits[labels.own], logits[labels.second], log_sum, best.value);
        if (job.smoothing == 0) return label_loss;
        double mean_loss = (job.weight_sum * log_sum + distance) / job.outputs;
        return (1 - job.smoothing) * label_loss + job.smoothing * mean_loss;
    }

    /* d loss / d x_j = p_j * sum_k q_k - q_j. */
    static __device__ void gradient(const cuda_loss_job &job, size_t row, cuda_loss_row saved) {
        double each = job.smoothing / job.outputs, at_label = 1 - job.smoothing;
        double weights = job.weights != NULL ? job.weight_sum : job.outputs;
        float scale = job.step->loss_scale;
        cuda_row_labels labels(job, row);
        bool ignored = cuda_ignores_row(job, row);
        double at_own = 0, at_second = 0;
        if (!ignored) {
            at_own = at_label * (double)cuda_class_weight(job, labels.own) * (double)labels.share;
            at_second =
                at_label * (double)cuda_class_weight(job, labels.second) * (double)labels.rest;
        }
        float all = (float)(at_own + at_second + each * weights);
        const float *logits = values_of(job, row);
        float *to = (float *)job.gradient + row * (size_t)job.outputs;
        for (int j = (int)lane_of_warp(); j < job.outputs; j += CUDA_WARP) {
            float p = expf(logits[j] - saved.largest) * saved.reciprocal_sum;
            double target = (j == labels.own ? at_own : 0) + (j == labels.second ? at_second : 0);
            target += each * (double)cuda_class_weight(job, j);
            to[j] = ignored ? 0 : (p * all - (float)target) * scale;
        }
    }
};

/* Losses of targets: the mean over a row's outputs of term(); slope() is its derivative, to be
 * multiplied by FACTOR. */
struct mean_square {
    static constexpr float FACTOR = 2;
    static __device__ double term(const cuda_loss_job &, int, double value, double target) {
        return (value - target) * (value - target);
    }
    static __device__ float slope(const cuda_loss_job &, int, float value, float target) {
        return value - target;
    }
};

struct output_itself {
    static constexpr float FACTOR = 1;
    static __device__ double term(const cuda_loss_job &, int, double value, double) {
        return value;
    }
    static __device__ float slope(const cuda_loss_job &, int, float, float) { return 1; }
};

struct binary_cross_entropy {
    static constexpr float FACTOR = 1;
    /* (1 - t) x + (1 + (w - 1) t) log(1 + exp(-x)), without overflow. */
    static __device__ double term(const cuda_loss_job &job, int output, double value,
                                  double target) {
        double softplus = log1p(exp(-fabs(value))) + (value < 0 ? -value : 0);
        double weight = (double)cuda_class_weight(job, output);
        return (1 - target) * value + (1 + (weight - 1) * target) * softplus;
    }
    /* (1 - t) sigmoid(x) - w t sigmoid(-x). */
    static __device__ float slope(const cuda_loss_job &job, int output, float value, float target) {
        float small = expf(-fabsf(value)), large = 1 / (1 + small);
        float up = value < 0 ? small * large : large, down = value < 0 ? large : small * large;
        return (1 - target) * up - cuda_class_weight(job, output) * target * down;
    }
};

struct huber {
    static constexpr float FACTOR = 1;
    static __device__ double term(const cuda_loss_job &job, int, double value, double target) {
        double error = value - target, size = fabs(error);
        return size < job.delta ? 0.5 * error * error : job.delta * (size - 0.5 * job.delta);
    }
    /* NaN stays NaN. */
    static __device__ float slope(const cuda_loss_job &job, int, float value, float target) {
        float error = value - target, delta = (float)job.delta;
        return error > delta ? delta : error < -delta ? -delta : error;
    }
};

template <typename Loss> struct row_mean {
    static __device__ double row(const cuda_loss_job &job, size_t row, int *, cuda_loss_row *) {
        const float *values = values_of(job, row);
        const float *targets = job.targets + row * (size_t)job.outputs;
        double sum = 0;
        for (int j = (int)lane_of_warp(); j < job.outputs; j += CUDA_WARP)
            sum += Loss::term(job, j, (double)values[j], (double)targets[j]);
        return warp_sum(sum) / job.outputs;
    }
};

static __device__ void write_scalars(const cuda_loss_job &job, double loss, int correct) {
    *job.scalars = {loss, correct};
    if (job.on_host != NULL) *job.on_host = {loss, correct};
}

/* Each block sums its rows. A single block writes the result; of several, each writes one part. */
template <typename Loss, bool Joined>
static __global__ void __launch_bounds__(MOST_THREADS) sum_rows(cuda_loss_job job) {
    __shared__ double loss_part[CUDA_WARP];
    __shared__ int correct_part[CUDA_WARP];
    double loss = 0;
    int correct = 0;
    for (size_t row = first_row(); row < job.rows; row += row_stride()) {
        cuda_loss_row saved = {0, 0};
        loss += Loss::row(job, row, &correct, &saved);
        if constexpr (Joined) Loss::gradient(job, row, saved);
    }
    bool counts = lane_of_warp() == 0;
    loss = cuda_block_sum(counts ? loss : 0, loss_part);
    correct = cuda_block_sum(counts ? correct : 0, correct_part);
    if (threadIdx.x != 0) return;
    if (gridDim.x == 1) {
        write_scalars(job, loss, correct);
        return;
    }
    job.loss_parts[blockIdx.x] = loss;
    job.correct_parts[blockIdx.x] = correct;
}

static __global__ void __launch_bounds__(MOST_THREADS) sum_parts(cuda_loss_job job, size_t count) {
    __shared__ double loss_part[CUDA_WARP];
    __shared__ int correct_part[CUDA_WARP];
    double loss = 0;
    int correct = 0;
    for (size_t i = threadIdx.x; i < count; i += blockDim.x) {
        loss += job.loss_parts[i];
        correct += job.correct_parts[i];
    }
    loss = cuda_block_sum(loss, loss_part);
    correct = cuda_block_sum(correct, correct_part);
    if (threadIdx.x == 0) write_scalars(job, loss, correct);
}

void cuda_sum_loss_parts(const cuda_loss_job *job, size_t count, cudaStream_t stream) {
    unsigned threads = count <= MOST_BLOCKS ? (unsigned)MOST_BLOCKS : MOST_THREADS;
    LAUNCH_BLOCK(sum_parts, 1, threads, stream, *job, count);
}

/* A warp for each row, as in sum_rows. An ignored row has saved nothing. */
template <typename Loss> static __global__ void rows_backward(cuda_loss_job job) {
    for (size_t row = first_row(); row < job.rows; row += row_stride()) {
        bool ignored = cuda_ignores_row(job, row);
        Loss::gradient(job, row, ignored ? cuda_loss_row{0, 0} : job.saved[row]);
    }
}

template <typename Loss>
static __global__ void targets_backward(cuda_loss_job job, size_t elements) {
    float factor = Loss::FACTOR * job.step->loss_scale / (float)job.outputs;
    const float *values = (const float *)job.values;
    GRID_STRIDE(i, elements)
    ((float *)job.gradient)[i] =
        Loss::slope(job, (int)(i % (size_t)job.outputs), values[i], job.targets[i]) * factor;
}

/* Blocks of `threads` threads, with one warp for each row. */
static unsigned blocks_for(size_t rows, unsigned threads) {
    size_t blocks = (rows * CUDA_WARP + threads - 1) / threads;
    return (unsigned)(blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS);
}

static unsigned sum_threads(size_t rows) {
    unsigned threads = CUDA_WARP;
    while (threads < MOST_THREADS && threads < rows * CUDA_WARP)
        threads *= 2;
    return threads;
}

static bool fits_one_block(size_t rows, int outputs) {
    return rows * (size_t)outputs <= ONE_BLOCK;
}

template <typename Loss, bool Joined = false>
static cudaError_t forward(const cuda_loss_job *job, cudaStream_t stream) {
    if (fits_one_block(job->rows, job->outputs)) {
        LAUNCH_BLOCK((sum_rows<Loss, Joined>), 1, sum_threads(job->rows), stream, *job);
        return cudaGetLastError();
    }
    unsigned blocks = blocks_for(job->rows, CUDA_THREADS);
    LAUNCH_BLOCK((sum_rows<Loss, Joined>), blocks, CUDA_THREADS, stream, *job);
    if (blocks > 1) cuda_sum_loss_parts(job, blocks, stream);
    return cudaGetLastError();
}

extern "C" size_t cuda_loss_parts(const cuda_loss_job *job) {
    if (cuda_is_classifier(job)) return job->rows;
    return fits_one_block(job->rows, job->outputs) ? 0 : blocks_for(job->rows, CUDA_THREADS);
}

extern "C" cudaError_t cuda_run_loss(const cuda_loss_job *job, cudaStream_t stream) {
    if (cuda_is_classifier(job)) return cuda_run_classifier(job, stream);
    switch (job->kind) {
    case CUDA_LOSS_CROSS_ENTROPY:
        return job->joined ? forward<cross_entropy, true>(job, stream)
                           : forward<cross_entropy>(job, stream);
    case CUDA_LOSS_WEIGHTED_CROSS_ENTROPY:
        return job->joined ? forward<weighted_cross_entropy, true>(job, stream)
                           : forward<weighted_cross_entropy>(job, stream);
    case CUDA_LOSS_MSE:
        return forward<row_mean<mean_square>>(job, stream);
    case CUDA_LOSS_BCE:
        return forward<row_mean<binary_cross_entropy>>(job, stream);
    case CUDA_LOSS_HUBER:
        return forward<row_mean<huber>>(job, stream);
    case CUDA_LOSS_OUTPUT:
        return forward<row_mean<output_itself>>(job, stream);
    }
    return cudaErrorInvalidValue;
}

template <typename Loss>
static cudaError_t backward_of_targets(const cuda_loss_job *job, cudaStream_t stream) {
    size_t elements = job->rows * (size_t)job->outputs;
    LAUNCH(targets_backward<Loss>, cuda_blocks(elements), CUDA_THREADS, stream, *job, elements);
    return cudaGetLastError();
}

extern "C" cudaError_t cuda_run_loss_backward(const cuda_loss_job *job, cudaStream_t stream) {
    unsigned blocks = blocks_for(job->rows, CUDA_THREADS);
    if (cuda_is_classifier(job)) return cuda_run_classifier_backward(job, stream);
    switch (job->kind) {
    case CUDA_LOSS_CROSS_ENTROPY:
        LAUNCH(rows_backward<cross_entropy>, blocks, CUDA_THREADS, stream, *job);
        return cudaGetLastError();
    case CUDA_LOSS_WEIGHTED_CROSS_ENTROPY:
        LAUNCH(rows_backward<weighted_cross_entropy>, blocks, CUDA_THREADS, stream, *job);
        return cudaGetLastError();
    case CUDA_LOSS_MSE:
        return backward_of_targets<mean_square>(job, stream);
    case CUDA_LOSS_BCE:
        return backward_of_targets<binary_cross_entropy>(job, stream);
    case CUDA_LOSS_HUBER:
        return backward_of_targets<huber>(job, stream);
    case CUDA_LOSS_OUTPUT:
        return backward_of_targets<output_itself>(job, stream);
    }
    return cudaErrorInvalidValue;
}
