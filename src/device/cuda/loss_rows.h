/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernels of losses share, for .cu files. */
#ifndef DEVICE_CUDA_LOSS_ROWS_H
#define DEVICE_CUDA_LOSS_ROWS_H

#include "device/cuda/kernel.h"
#include "device/cuda/kernels.h"

static inline __device__ float cuda_class_weight(const cuda_loss_job &job, int output) {
    return job.weights != NULL ? job.weights[output] : 1.0f;
}

static inline __device__ bool cuda_ignores_row(const cuda_loss_job &job, size_t row) {
    return job.ignores && job.labels[row] == job.ignored;
}

/* The labels of a row; the second has no share unless the step is mixed. */
struct cuda_row_labels {
    int own, second;
    float share, rest;
    __device__ cuda_row_labels(const cuda_loss_job &job, size_t row)
        : own(job.labels[row]), second(own), share(1), rest(0) {
        if (!job.step->mixed) return;
        second = job.mixes[row].label;
        share = job.mixes[row].share;
        rest = 1 - share;
    }
    __device__ int larger() const { return share >= rest ? own : second; }

    /* w_label * -log p_label, with -log p_j = log_sum - (x_j - largest): of both labels, by their
     * shares. A label without a share is no loss, even where its logit is -infinity. */
    __device__ double loss(const cuda_loss_job &job, float own_logit, float second_logit,
                           double log_sum, float largest) const {
        double first =
            (double)cuda_class_weight(job, own) * (log_sum - (double)(own_logit - largest));
        if (rest == 0) return first;
        double other =
            (double)cuda_class_weight(job, second) * (log_sum - (double)(second_logit - largest));
        if (share == 0) return other;
        return (double)share * first + (double)rest * other;
    }
};

/* The first maximum of a row. */
struct cuda_place {
    float value;
    int index;
};

/* Of a warp, in every lane. */
static inline __device__ cuda_place cuda_first_of_warp(cuda_place best) {
    for (int lane = CUDA_WARP / 2; lane > 0; lane /= 2) {
        cuda_place other = {__shfl_xor_sync(0xffffffffu, best.value, lane),
                            __shfl_xor_sync(0xffffffffu, best.index, lane)};
        bool first = other.value == best.value && other.index < best.index;
        if (other.value > best.value || first) best = other;
    }
    return best;
}

/* loss.cu: adds up job's parts, in an order that only their number decides. */
void cuda_sum_loss_parts(const cuda_loss_job *job, size_t count, cudaStream_t stream);
/* classifier.cu: a block for each row of a loss with many classes. */
bool cuda_is_classifier(const cuda_loss_job *job);
cudaError_t cuda_run_classifier(const cuda_loss_job *job, cudaStream_t stream);
cudaError_t cuda_run_classifier_backward(const cuda_loss_job *job, cudaStream_t stream);

#endif
