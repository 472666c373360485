/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of batch norm, for the files that extend it. */
#ifndef DEVICE_CUDA_BATCH_NORM_PLAN_H
#define DEVICE_CUDA_BATCH_NORM_PLAN_H

#include "device/cuda/kernel_plan.h"

typedef struct cuda_batch_norm_plan {
    cuda_kernel_plan kernel; /* input 1: of a sum */
    cuda_batch_norm_resident forward, backward;
    bool fixed;  /* training computes with the running statistics, which stay */
    bool summed; /* the plan before sums up the input */
} cuda_batch_norm_plan;

cuda_batch_norm_job cuda_batch_norm_job_of(const cuda_kernel_plan *plan, bool backward);
yoke_status cuda_batch_norm_prepare(cuda_kernel_plan *plan, const yoke_plan_request *request);
/* With a norm group, in training: sync_batch_norm.c. */
cuda_planner cuda_plan_sync_batch_norm;

#endif
