/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax over the channels of each position. Backward reads the output instead of the input, so
 * that both passes may run in place. */
#include "device/cuda/kernel_plan.h"

typedef struct softmax_plan {
    yoke_plan base;
    cuda_kernel_input input;
    cuda_softmax_job forward, backward;
} softmax_plan;

static yoke_status forward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const softmax_plan *softmax = (const softmax_plan *)plan;
    cuda_device *device = cuda_of(plan->device);
    TRY(cuda_kernel_input_read(&softmax->input, device));
    TRY_CUDA(device, cuda_run_softmax(&softmax->forward, cuda_compute(plan)));
    return YOKE_OK;
}

static yoke_status backward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const softmax_plan *softmax = (const softmax_plan *)plan;
    cuda_device *device = cuda_of(plan->device);
    if (softmax->input.gradient == NULL) return YOKE_OK;
    TRY_CUDA(device, cuda_run_softmax_backward(&softmax->backward, cuda_compute(plan)));
    return cuda_kernel_input_return(&softmax->input, device);
}

static yoke_status bind(yoke_plan *plan, const yoke_plan_binding *binding) {
    softmax_plan *softmax = (softmax_plan *)plan;
    cuda_kernel_input_bind(&softmax->input, binding, 0, binding->scratch);
    softmax->forward.from = softmax->input.value;
    softmax->forward.to = binding->output;
    softmax->backward.from = binding->output_gradient;
    softmax->backward.output = binding->output;
    softmax->backward.to = softmax->input.gradient;
    return YOKE_OK;
}

yoke_status cuda_plan_softmax(yoke_plan **plan, cuda_device *device,
                              const yoke_plan_request *request) {
    static const yoke_plan_calls calls = {bind, forward, backward, NULL};
    const yoke_operation *operation = request->operation;
    TRY(yoke_plan_allocate(plan, sizeof(softmax_plan), &device->base, request, &calls));
    softmax_plan *softmax = (softmax_plan *)*plan;
    softmax->input = cuda_kernel_input_of(request, 0);
    softmax->forward =
        (cuda_softmax_job){.positions = (size_t)request->rows * (size_t)operation->input.height,
                           .features = operation->input.channels,
                           .half = cuda_is_half(request)};
    softmax->backward = softmax->forward;
    bool gradient = request->training && request->input_gradient;
    yoke_plan_needs *needs = &softmax->base.needs;
    cuda_kernel_output(&needs->output, request);
    needs->scratch_bytes = 2 * softmax->input.bytes;
    needs->forward_in_place = !softmax->input.reordered;
    needs->backward_reads_output = gradient;
    needs->backward_in_place = gradient && !softmax->input.reordered;
    return YOKE_OK;
}
