/* SPDX-License-Identifier: Apache-2.0 */
/* Activations: functions of one element, and their slopes. */
#include "device/cuda/kernel_plan.h"

typedef struct activation_plan {
    yoke_plan base;
    cuda_kernel_input input;
    cuda_activation_job forward, backward;
} activation_plan;

static yoke_status forward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const activation_plan *activation = (const activation_plan *)plan;
    cuda_device *device = cuda_of(plan->device);
    TRY(cuda_kernel_input_read(&activation->input, device));
    TRY_CUDA(device, cuda_run_activation(&activation->forward, cuda_compute(plan)));
    return YOKE_OK;
}

static yoke_status backward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const activation_plan *activation = (const activation_plan *)plan;
    cuda_device *device = cuda_of(plan->device);
    if (activation->input.gradient == NULL) return YOKE_OK;
    if (plan->needs.backward_reads_input) TRY(cuda_kernel_input_read(&activation->input, device));
    TRY_CUDA(device, cuda_run_activation_backward(&activation->backward, cuda_compute(plan)));
    return cuda_kernel_input_return(&activation->input, device);
}

static yoke_status bind(yoke_plan *plan, const yoke_plan_binding *binding) {
    activation_plan *activation = (activation_plan *)plan;
    cuda_kernel_input_bind(&activation->input, binding, 0, binding->scratch);
    activation->forward.to = binding->output;
    activation->forward.from = activation->input.value;
    activation->backward.to = activation->input.gradient;
    activation->backward.from = binding->output_gradient;
    activation->backward.kept =
        plan->needs.backward_reads_output ? binding->output : activation->input.value;
    return YOKE_OK;
}

yoke_status cuda_plan_activation(yoke_plan **plan, cuda_device *device,
                                 const yoke_plan_request *request) {
    static const yoke_plan_calls calls = {bind, forward, backward, NULL};
    TRY(yoke_plan_allocate(plan, sizeof(activation_plan), &device->base, request, &calls));
    activation_plan *activation = (activation_plan *)*plan;
    activation->input = cuda_kernel_input_of(request, 0);
    activation->forward = (cuda_activation_job){.activation = request->operation->activation,
                                                .half = cuda_is_half(request),
                                                .elements = cuda_elements(&activation->input.own)};
    activation->backward = activation->forward;
    bool gradient = request->training && request->input_gradient;
    bool output = cuda_activation_reads_output(request->operation->activation);
    yoke_plan_needs *needs = &activation->base.needs;
    cuda_kernel_output(&needs->output, request);
    needs->scratch_bytes = 2 * activation->input.bytes;
    needs->forward_in_place = !activation->input.reordered;
    needs->backward_reads_output = gradient && output;
    needs->backward_reads_input = gradient && !output;
    needs->backward_in_place = gradient && !activation->input.reordered;
    return YOKE_OK;
}
