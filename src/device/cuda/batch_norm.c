/* SPDX-License-Identifier: Apache-2.0 */
/* Batch normalisation with an optional ReLU, or with a sum and its ReLU. Forward saves mean and
 * reciprocal deviation for backward. Backward computes the ReLU's mask from its input, or reads it
 * from the sum's output. Running statistics follow torch.nn.BatchNorm2d. */
#include "device/cuda/kernel_plan.h"

typedef struct batch_norm_plan {
    yoke_plan base;
    cuda_kernel_input input, added; /* added: zero without a sum */
    cuda_batch_norm_job job;
    bool training;
} batch_norm_plan;

static yoke_status forward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const batch_norm_plan *norm = (const batch_norm_plan *)plan;
    cuda_device *device = cuda_of(plan->device);
    TRY(cuda_kernel_input_read(&norm->input, device));
    TRY(cuda_kernel_input_read(&norm->added, device));
    if (norm->training)
        TRY_CUDA(device, cuda_run_batch_norm(&norm->job, cuda_compute(plan)));
    else
        TRY_CUDA(device, cuda_run_batch_norm_evaluation(&norm->job, cuda_compute(plan)));
    return YOKE_OK;
}

static yoke_status backward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const batch_norm_plan *norm = (const batch_norm_plan *)plan;
    cuda_device *device = cuda_of(plan->device);
    TRY(cuda_kernel_input_read(&norm->input, device));
    TRY_CUDA(device, cuda_run_batch_norm_backward(&norm->job, cuda_compute(plan)));
    TRY(cuda_kernel_input_return(&norm->added, device));
    return cuda_kernel_input_return(&norm->input, device);
}

static yoke_status bind(yoke_plan *plan, const yoke_plan_binding *binding) {
    batch_norm_plan *norm = (batch_norm_plan *)plan;
    cuda_batch_norm_job *job = &norm->job;
    char *scratch = binding->scratch;
    cuda_kernel_input_bind(&norm->input, binding, 0, scratch);
    scratch += 2 * norm->input.bytes;
    cuda_kernel_input_bind(&norm->added, binding, 1, scratch);
    scratch += 2 * norm->added.bytes;
    job->input = norm->input.value;
    job->added = norm->added.value;
    job->output = binding->output;
    job->weight = binding->parameters[0];
    job->bias = binding->parameters[1];
    job->running_mean = binding->buffers[0];
    job->running_variance = binding->buffers[1];
    if (!norm->training) return YOKE_OK;
    job->mean = binding->saved;
    job->reciprocal = job->mean + job->channels;
    job->partial = (float *)(void *)scratch;
    job->output_gradient = binding->output_gradient;
    job->input_gradient = norm->input.gradient;
    job->added_gradient = norm->added.gradient;
    job->weight_gradient = binding->parameter_gradients[0];
    job->bias_gradient = binding->parameter_gradients[1];
    return YOKE_OK;
}

static yoke_status describe_needs(batch_norm_plan *norm, const yoke_plan_request *request) {
    const cuda_batch_norm_job *job = &norm->job;
    yoke_plan_needs *needs = &norm->base.needs;
    int64_t channels = job->channels;
    cuda_kernel_output(&needs->output, request);
    for (int i = 0; i < YOKE_PLAN_PARAMETERS; i++)
        TRY(yoke_layout_plain(norm->base.device, &channels, 1, &needs->parameters[i]));
    needs->scratch_bytes = 2 * (norm->input.bytes + norm->added.bytes);
    needs->forward_in_place = !request->training && !norm->input.reordered;
    if (!request->training) return YOKE_OK;
    needs->scratch_bytes += cuda_batch_norm_partial_bytes(job);
    needs->saved_bytes = 2 * (size_t)channels * sizeof(float);
    needs->backward_reads_input = true;
    needs->backward_reads_output = request->operation->add;
    bool in_place = !norm->input.reordered && !norm->added.reordered;
    needs->backward_in_place = in_place && !request->operation->add;
    needs->joined_in_place = in_place && request->operation->add;
    return YOKE_OK;
}

yoke_status cuda_plan_batch_norm(yoke_plan **plan, cuda_device *device,
                                 const yoke_plan_request *request) {
    static const yoke_plan_calls calls = {bind, forward, backward, NULL};
    const yoke_operation *operation = request->operation;
    size_t pixels =
        (size_t)request->rows * (size_t)operation->input.height * (size_t)operation->input.width;
    TRY(yoke_plan_allocate(plan, sizeof(batch_norm_plan), &device->base, request, &calls));
    batch_norm_plan *norm = (batch_norm_plan *)*plan;
    norm->training = request->training;
    norm->input = cuda_kernel_input_of(request, 0);
    if (operation->add) norm->added = cuda_kernel_input_of(request, 1);
    norm->job = (cuda_batch_norm_job){.pixels = pixels,
                                      .channels = operation->input.channels,
                                      .half = cuda_is_half(request),
                                      .relu = operation->relu,
                                      .even = cuda_takes(device, YOKE_WAY_WAVES),
                                      .epsilon = (float)operation->epsilon,
                                      .momentum = operation->momentum};
    return describe_needs(norm, request);
}
