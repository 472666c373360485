/* ReLU. Backward reads the output instead of the input, so that both passes may run in place. */
#include "device/cuda/own.h"

typedef struct relu_plan {
    yoke_plan base;
    cuda_own_input input;
    cuda_elementwise_job forward, backward;
} relu_plan;

static yoke_status forward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const relu_plan *relu = (const relu_plan *)plan;
    cuda_device *device = cuda_of(plan->device);
    TRY(cuda_own_input_read(&relu->input, device));
    TRY_CUDA(device, cuda_run_relu(&relu->forward, cuda_compute(plan)));
    return YOKE_OK;
}

static yoke_status backward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const relu_plan *relu = (const relu_plan *)plan;
    cuda_device *device = cuda_of(plan->device);
    if (relu->input.gradient == NULL) return YOKE_OK;
    TRY_CUDA(device, cuda_run_relu_backward(&relu->backward, cuda_compute(plan)));
    return cuda_own_input_return(&relu->input, device);
}

static yoke_status bind(yoke_plan *plan, const yoke_plan_binding *binding) {
    relu_plan *relu = (relu_plan *)plan;
    cuda_own_input_bind(&relu->input, binding, 0, binding->scratch);
    relu->forward.to = binding->output;
    relu->forward.from = relu->input.value;
    relu->backward.to = relu->input.gradient;
    relu->backward.from = binding->output_gradient;
    relu->backward.second = binding->output;
    return YOKE_OK;
}

yoke_status cuda_plan_relu(yoke_plan **plan, cuda_device *device,
                           const yoke_plan_request *request) {
    static const cuda_own_calls calls = {bind, forward, backward};
    TRY(cuda_own_plan_create(plan, sizeof(relu_plan), device, request, &calls));
    relu_plan *relu = (relu_plan *)*plan;
    relu->input = cuda_own_input_of(request, 0);
    relu->forward = (cuda_elementwise_job){.half = cuda_is_half(request),
                                           .elements = cuda_elements(&relu->input.own)};
    relu->backward = relu->forward;
    yoke_plan_needs *needs = &relu->base.needs;
    cuda_own_output(&needs->output, request);
    needs->scratch_bytes = 2 * relu->input.bytes;
    needs->forward_in_place = !relu->input.reordered;
    needs->backward_reads_output = request->training && request->input_gradient;
    needs->backward_in_place = needs->backward_reads_output && !relu->input.reordered;
    return YOKE_OK;
}
