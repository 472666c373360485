/* SPDX-License-Identifier: Apache-2.0 */
/* Losses over plain float32 rows: torch.nn.CrossEntropyLoss with label smoothing, class weights,
 * ignore_index and mixed labels, MSELoss, BCEWithLogitsLoss with pos_weight, and HuberLoss. Sums
 * are in double. Backward multiplies the gradient by the step's loss_scale in device memory. */
#include <stdlib.h>

#include "device/cuda/kernel_plan.h"

typedef struct loss_plan {
    yoke_plan base;
    size_t parts;
    float *weights; /* on the device, or NULL */
    cuda_loss_job job;
} loss_plan;

static yoke_status forward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const loss_plan *loss = (const loss_plan *)plan;
    TRY_CUDA(cuda_of(plan->device), cuda_run_loss(&loss->job, cuda_compute(plan)));
    return YOKE_OK;
}

static yoke_status backward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const loss_plan *loss = (const loss_plan *)plan;
    if (loss->job.joined) return YOKE_OK;
    TRY_CUDA(cuda_of(plan->device), cuda_run_loss_backward(&loss->job, cuda_compute(plan)));
    return YOKE_OK;
}

static void destroy(yoke_plan *plan) {
    loss_plan *loss = (loss_plan *)plan;
    if (loss->weights != NULL) yoke_device_free(plan->device, loss->weights);
    free(loss);
}

static yoke_status bind(yoke_plan *plan, const yoke_plan_binding *binding) {
    loss_plan *loss = (loss_plan *)plan;
    cuda_loss_job *job = &loss->job;
    job->values = binding->inputs[0];
    job->labels = binding->labels;
    job->mixes = binding->mixes;
    job->targets = binding->targets;
    job->saved = plan->needs.saved_bytes > 0 ? binding->saved : NULL;
    job->scalars = binding->scalars;
    if (cuda_takes(cuda_of(plan->device), YOKE_WAY_MAPPED)) job->on_host = binding->on_host;
    job->loss_parts = binding->scratch;
    job->correct_parts = (int32_t *)(job->loss_parts + loss->parts);
    job->gradient = binding->input_gradients[0];
    return YOKE_OK;
}

static yoke_status upload_weights(loss_plan *loss, const float *weights) {
    yoke_device *device = loss->base.device;
    size_t bytes = (size_t)loss->job.outputs * sizeof *weights;
    if (weights == NULL) return YOKE_OK;
    TRY(yoke_device_allocate(device, bytes, "the weights of a loss", (void **)&loss->weights));
    TRY(yoke_device_upload(device, YOKE_STREAM_COMPUTE, loss->weights, weights, bytes));
    loss->job.weights = loss->weights;
    for (int j = 0; j < loss->job.outputs; j++)
        loss->job.weight_sum += (double)weights[j];
    return yoke_device_synchronize(device); /* `weights` is the caller's */
}

static cuda_loss_kind kind_of(const yoke_operation *operation) {
    bool counted = operation->weights != NULL || operation->ignores;
    switch (operation->kind) {
    case YOKE_OP_MSE:
        return CUDA_LOSS_MSE;
    case YOKE_OP_BCE:
        return CUDA_LOSS_BCE;
    case YOKE_OP_HUBER:
        return CUDA_LOSS_HUBER;
    default:
        return counted ? CUDA_LOSS_WEIGHTED_CROSS_ENTROPY : CUDA_LOSS_CROSS_ENTROPY;
    }
}

/* On failure the caller destroys what *plan holds. */
yoke_status cuda_plan_loss(yoke_plan **plan, cuda_device *device,
                           const yoke_plan_request *request) {
    static const yoke_plan_calls calls = {bind, forward, backward, destroy};
    const yoke_operation *operation = request->operation;
    bool by_label = operation->kind == YOKE_OP_CROSS_ENTROPY;
    TRY(yoke_plan_allocate(plan, sizeof(loss_plan), &device->base, request, &calls));
    loss_plan *loss = (loss_plan *)*plan;
    yoke_dims dims = operation->input;
    bool by_position = by_label && dims.sequence;
    loss->job = (cuda_loss_job){
        .kind = kind_of(operation),
        .rows = (size_t)request->rows * (size_t)(by_position ? dims.height : 1),
        .outputs = dims.channels * (by_position ? 1 : dims.height * dims.width),
        .smoothing = operation->label_smoothing,
        .ignores = operation->ignores,
        .ignored = operation->ignored,
        .delta = operation->delta,
        .step = device->step,
        .joined = by_label && request->training && cuda_takes(device, YOKE_WAY_LOSS)};
    loss->parts = cuda_loss_parts(loss->job.rows, loss->job.outputs);
    yoke_plan_needs *needs = &loss->base.needs;
    needs->scratch_bytes = loss->parts * (sizeof(double) + sizeof(int32_t));
    needs->backward_reads_input = request->training && !loss->job.joined;
    if (request->training && by_label && !loss->job.joined)
        needs->saved_bytes = loss->job.rows * sizeof(cuda_loss_row);
    return upload_weights(loss, operation->weights);
}
