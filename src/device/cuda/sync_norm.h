/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of batch norm over the rows of several participants: sync_norm.cu. */
#ifndef DEVICE_CUDA_SYNC_NORM_H
#define DEVICE_CUDA_SYNC_NORM_H

#include <cuda_runtime_api.h>
#include <stddef.h>

#include "device/cuda/cuda_type.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Values [pixels, channels]. */
typedef struct cuda_sync_norm_job {
    size_t pixels; /* of all rows */
    int channels;
    cuda_type type;
    const void *input;
    float *partial;  /* [cuda_sync_norm_partial_bytes] */
    double *message; /* [2, channels]: means, and sums of squared deviations from them */

    const float *mean, *variance; /* [channels], of all participants' rows */
    float *running_mean, *running_variance;
    double momentum, unbiased; /* n / (n - 1) */

    void *gradient; /* of the input, as if mean and variance were constants */
    const float *weight, *reciprocal;
    const float *offset, *slope; /* [channels], of what they take from it */
} cuda_sync_norm_job;
size_t cuda_sync_norm_partial_bytes(size_t pixels, int channels);
/* message from input. */
cudaError_t cuda_run_sync_norm_describe(const cuda_sync_norm_job *job, cudaStream_t stream);
/* running = (1 - momentum) * running + momentum * the batch's; what is not finite is ignored. */
cudaError_t cuda_run_sync_norm_keep(const cuda_sync_norm_job *job, cudaStream_t stream);
/* gradient -= weight * reciprocal * (offset + slope * (input - mean)). */
cudaError_t cuda_run_sync_norm_correct(const cuda_sync_norm_job *job, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
