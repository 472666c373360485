/* SPDX-License-Identifier: Apache-2.0 */
/* A linear layer with the cross-entropy of many classes behind it. */
#ifndef DEVICE_CUDA_CLASSIFIER_H
#define DEVICE_CUDA_CLASSIFIER_H

#include "device/cuda/cuda.h"

/* Whether cuda_plan_classifier serves the request, which is a linear layer's. */
bool cuda_takes_classifier(const yoke_plan_request *request);
cuda_planner cuda_plan_classifier;
/* How linear layers keep their weight. */
cuda_layout cuda_linear_weight(const yoke_operation *operation);

/* Logits, whose gradient may take their place: loss.c runs the plan of a loss over them. */
typedef struct cuda_logits {
    void *values;
    cuda_type type;
    size_t stride; /* elements from row to row */
    bool gradient; /* it is written */
} cuda_logits;
yoke_status cuda_loss_over(const yoke_plan *loss, const cuda_logits *logits);

#endif
