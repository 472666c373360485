/* SPDX-License-Identifier: Apache-2.0 */
/* Dropout. The mask of an element depends only on seed, step, layer, global row and the element's
 * index in its row. Each pass draws the mask on the device, from the step's values in device
 * memory: a recorded step draws a new mask at every replay, and nothing is saved. */
#include "device/cuda/kernel_plan.h"

typedef struct dropout_plan {
    yoke_plan base;
    cuda_kernel_input input;
    cuda_dropout_job forward, backward;
} dropout_plan;

static yoke_status forward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const dropout_plan *dropout = (const dropout_plan *)plan;
    cuda_device *device = cuda_of(plan->device);
    TRY(cuda_kernel_input_read(&dropout->input, device));
    TRY_CUDA(device, cuda_run_dropout(&dropout->forward, cuda_compute(plan)));
    return YOKE_OK;
}

static yoke_status backward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const dropout_plan *dropout = (const dropout_plan *)plan;
    cuda_device *device = cuda_of(plan->device);
    if (dropout->input.gradient == NULL) return YOKE_OK;
    TRY_CUDA(device, cuda_run_dropout(&dropout->backward, cuda_compute(plan)));
    return cuda_kernel_input_return(&dropout->input, device);
}

static yoke_status bind(yoke_plan *plan, const yoke_plan_binding *binding) {
    dropout_plan *dropout = (dropout_plan *)plan;
    cuda_kernel_input_bind(&dropout->input, binding, 0, binding->scratch);
    dropout->forward.from = dropout->input.value;
    dropout->forward.to = binding->output;
    dropout->backward.from = binding->output_gradient;
    dropout->backward.to = dropout->input.gradient;
    return YOKE_OK;
}

yoke_status cuda_plan_dropout(yoke_plan **plan, cuda_device *device,
                              const yoke_plan_request *request) {
    static const yoke_plan_calls calls = {bind, forward, backward, NULL};
    const yoke_operation *operation = request->operation;
    if (!request->training || operation->probability == 0)
        return cuda_plan_reshape(plan, device, request);
    TRY(yoke_plan_allocate(plan, sizeof(dropout_plan), &device->base, request, &calls));
    dropout_plan *dropout = (dropout_plan *)*plan;
    dropout->input = cuda_kernel_input_of(request, 0);
    uint32_t channels = (uint32_t)operation->input.channels;
    uint32_t pixels = (uint32_t)operation->input.height * (uint32_t)operation->input.width;
    if (operation->input.sequence) channels *= pixels, pixels = 1; /* its memory has plain order */
    dropout->forward = (cuda_dropout_job){.rows = (size_t)request->rows,
                                          .channels = channels,
                                          .pixels = pixels,
                                          .half = cuda_is_half(request),
                                          .layer = operation->layer,
                                          .threshold = (uint32_t)(operation->probability * 0x1p32),
                                          .scale = (float)(1 / (1 - operation->probability)),
                                          .step = device->step};
    dropout->backward = dropout->forward;
    yoke_plan_needs *needs = &dropout->base.needs;
    cuda_kernel_output(&needs->output, request);
    needs->scratch_bytes = 2 * dropout->input.bytes;
    needs->forward_in_place = needs->backward_in_place = !dropout->input.reordered;
    return YOKE_OK;
}
