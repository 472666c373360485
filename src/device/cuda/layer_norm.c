/* SPDX-License-Identifier: Apache-2.0 */
/* Layer norm: torch.nn.LayerNorm over the features of each position of a sequence, or of each row
 * of a flat value. Forward saves each position's mean and reciprocal deviation. */
#include "device/cuda/kernel_plan.h"

typedef struct layer_norm_plan {
    yoke_plan base;
    cuda_kernel_input input;
    cuda_layer_norm_job job;
} layer_norm_plan;

static yoke_status forward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const layer_norm_plan *norm = (const layer_norm_plan *)plan;
    cuda_device *device = cuda_of(plan->device);
    TRY(cuda_kernel_input_read(&norm->input, device));
    TRY_CUDA(device, cuda_run_layer_norm(&norm->job, cuda_compute(plan)));
    return YOKE_OK;
}

static yoke_status backward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const layer_norm_plan *norm = (const layer_norm_plan *)plan;
    cuda_device *device = cuda_of(plan->device);
    TRY(cuda_kernel_input_read(&norm->input, device));
    TRY_CUDA(device, cuda_run_layer_norm_backward(&norm->job, cuda_compute(plan)));
    return cuda_kernel_input_return(&norm->input, device);
}

static yoke_status bind(yoke_plan *plan, const yoke_plan_binding *binding) {
    layer_norm_plan *norm = (layer_norm_plan *)plan;
    cuda_layer_norm_job *job = &norm->job;
    cuda_kernel_input_bind(&norm->input, binding, 0, binding->scratch);
    job->input = norm->input.value;
    job->output = binding->output;
    job->weight = binding->parameters[0];
    job->bias = binding->parameters[1];
    if (plan->backward == NULL) return YOKE_OK;
    job->saved = binding->saved;
    job->partial = (float *)(void *)((char *)binding->scratch + 2 * norm->input.bytes);
    job->output_gradient = binding->output_gradient;
    job->input_gradient = norm->input.gradient;
    job->weight_gradient = binding->parameter_gradients[0];
    job->bias_gradient = binding->parameter_gradients[1];
    return YOKE_OK;
}

yoke_status cuda_plan_layer_norm(yoke_plan **plan, cuda_device *device,
                                 const yoke_plan_request *request) {
    static const yoke_plan_calls calls = {bind, forward, backward, NULL};
    const yoke_operation *operation = request->operation;
    TRY(yoke_plan_allocate(plan, sizeof(layer_norm_plan), &device->base, request, &calls));
    layer_norm_plan *norm = (layer_norm_plan *)*plan;
    int64_t features = operation->input.channels;
    size_t positions = (size_t)request->rows * (size_t)operation->input.height;
    norm->input = cuda_kernel_input_of(request, 0);
    norm->job = (cuda_layer_norm_job){.positions = positions,
                                      .features = operation->input.channels,
                                      .half = cuda_is_half(request),
                                      .epsilon = (float)operation->epsilon};
    yoke_plan_needs *needs = &norm->base.needs;
    cuda_kernel_output(&needs->output, request);
    for (int i = 0; i < YOKE_PLAN_PARAMETERS; i++)
        TRY(yoke_layout_plain(&device->base, &features, 1, &needs->parameters[i]));
    needs->scratch_bytes = 2 * norm->input.bytes;
    needs->forward_in_place = !norm->input.reordered;
    if (!request->training) return YOKE_OK;
    needs->scratch_bytes += cuda_layer_norm_partial_bytes(positions, operation->input.channels);
    needs->saved_bytes = positions * sizeof(cuda_layer_norm_moments);
    needs->backward_reads_input = true;
    needs->backward_in_place = !norm->input.reordered;
    return YOKE_OK;
}
