/* SPDX-License-Identifier: Apache-2.0 */
/* Batch normalisation with an optional ReLU, or with a sum and its ReLU. Forward saves mean and
 * reciprocal standard deviation for backward, and of a sum the ReLU's mask. Without a sum backward
 * computes the mask from its input. Running statistics follow torch.nn.BatchNorm2d. */
#include "device/cuda/batch_norm_plan.h"

cuda_batch_norm_job cuda_batch_norm_job_of(const cuda_kernel_plan *plan, bool backward) {
    const cuda_batch_norm_plan *norm = (const cuda_batch_norm_plan *)plan;
    const yoke_operation *operation = &plan->base.operation;
    const yoke_plan_binding *at = &plan->base.binding;
    size_t pixels =
        plan->base.rows * (size_t)operation->input.height * (size_t)operation->input.width;
    cuda_batch_norm_job job = {.pixels = pixels,
                               .channels = operation->input.channels,
                               .type = plan->type,
                               .relu = operation->relu,
                               .fixed = norm->fixed,
                               .resident = backward ? norm->backward : norm->forward,
                               .arrivals = plan->device->arrivals,
                               .epsilon = (float)operation->epsilon,
                               .momentum = plan->again ? 0 : operation->momentum,
                               .input = at->inputs[0],
                               .added = operation->add ? at->inputs[1] : NULL,
                               .output = at->output,
                               .weight = at->parameters[0],
                               .bias = at->parameters[1],
                               .running_mean = at->buffers[0],
                               .running_variance = at->buffers[1]};
    if (plan->base.backward == NULL || at->saved == NULL) return job;
    job.mean = at->saved;
    job.reciprocal = job.mean + job.channels;
    if (operation->add)
        job.mask = (unsigned char *)CUDA_NORM_ROW(at->saved, CUDA_NORM_ROWS, job.channels);
    job.second = at->norm_before;
    job.summed = norm->summed;
    job.applied = at->output == NULL;
    job.partial = at->scratch;
    job.output_gradient = at->output_gradient;
    job.input_gradient = at->input_gradients[0];
    job.added_gradient = operation->add ? at->input_gradients[1] : NULL;
    job.weight_gradient = at->parameter_gradients[0];
    job.bias_gradient = at->parameter_gradients[1];
    return job;
}

static yoke_status batch_norm_forward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    const cuda_batch_norm_job job = cuda_batch_norm_job_of(plan, false);
    if (plan->base.backward != NULL && !job.fixed)
        TRY_CUDA(plan->device, cuda_run_batch_norm(&job, stream));
    else
        TRY_CUDA(plan->device, cuda_run_batch_norm_evaluation(&job, stream));
    return YOKE_OK;
}

static yoke_status batch_norm_backward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    const cuda_batch_norm_job job = cuda_batch_norm_job_of(plan, true);
    TRY_CUDA(plan->device, cuda_run_batch_norm_backward(&job, stream));
    return YOKE_OK;
}

/* How many blocks its passes launch, and the scratch for their partial sums. */
static yoke_status fit_passes(cuda_batch_norm_plan *norm, bool training, size_t *partial_bytes) {
    cuda_device *device = norm->kernel.device;
    cuda_batch_norm_job job = cuda_batch_norm_job_of(&norm->kernel, false);
    job.added = norm->kernel.base.operation.add ? &job : NULL; /* it has no address yet */
    TRY_CUDA(device, cuda_fit_batch_norm(&job, device->processors));
    norm->forward = job.resident;
    *partial_bytes = cuda_batch_norm_partial_bytes(&job);
    if (!training) return YOKE_OK;
    TRY_CUDA(device, cuda_fit_batch_norm_backward(&job, device->processors));
    norm->backward = job.resident;
    size_t backward = cuda_batch_norm_partial_bytes(&job);
    if (backward > *partial_bytes) *partial_bytes = backward;
    return YOKE_OK;
}

yoke_status cuda_batch_norm_prepare(cuda_kernel_plan *plan, const yoke_plan_request *request) {
    cuda_batch_norm_plan *norm = (cuda_batch_norm_plan *)plan;
    yoke_plan_needs *needs = &plan->base.needs;
    const int64_t channels = request->operation->input.channels;
    for (int i = 0; i < YOKE_PLAN_PARAMETERS; i++)
        TRY(yoke_layout_plain(plan->base.device, &channels, 1, &needs->parameters[i]));
    size_t partial_bytes = 0;
    TRY(fit_passes(norm, request->training, &partial_bytes));
    norm->fixed = request->training && request->fixed_statistics;
    needs->forward_in_place = needs->forward_in_place && !request->training;
    if (!request->training) return YOKE_OK;
    needs->scratch_bytes += partial_bytes;
    const cuda_batch_norm_job job = cuda_batch_norm_job_of(plan, false);
    bool large = cuda_batch_norm_is_large(&job);
    norm->summed = request->sums_given;
    needs->shares_saved = !norm->fixed && !request->operation->add && !plan->inputs[0].reordered &&
                          (large || norm->summed);
    needs->applies_norm = request->norm_before && large && !plan->inputs[1].reordered;
    needs->saved_bytes = CUDA_NORM_ROWS * (size_t)channels * sizeof(float);
    needs->backward_over_input = needs->backward_in_place;
    if (!request->operation->add) return YOKE_OK;
    needs->saved_bytes += cuda_batch_norm_mask_bytes(&job);
    needs->joined_in_place = needs->backward_in_place && !plan->inputs[1].reordered;
    needs->backward_in_place = false;
    return YOKE_OK;
}

yoke_status cuda_plan_batch_norm(yoke_plan **plan, cuda_device *device,
                                 const yoke_plan_request *request) {
    if (request->training && request->norm_group != NULL && !request->fixed_statistics)
        return cuda_plan_sync_batch_norm(plan, device, request);
    enum { FLAGS = YOKE_IN_PLACE | YOKE_READS_INPUT | YOKE_HAS_PARAMETERS };
    static const cuda_kernel_operation alone = {1, FLAGS, cuda_batch_norm_prepare,
                                                batch_norm_forward, batch_norm_backward};
    static const cuda_kernel_operation of_sum = {2, FLAGS, cuda_batch_norm_prepare,
                                                 batch_norm_forward, batch_norm_backward};
    return cuda_kernel_plan_create(plan, sizeof(cuda_batch_norm_plan), device, request,
                                   request->operation->add ? &of_sum : &alone);
}
