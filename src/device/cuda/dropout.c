/* Dropout. The mask of an element depends on seed, step, layer, global row and the element's index
 * in its row alone. It is drawn on the device from what the device knows of the step, once in each
 * pass: a recorded step draws anew at every replay, and nothing is kept. */
#include "device/cuda/own.h"

typedef struct dropout_plan {
    yoke_plan base;
    cuda_own_input input;
    cuda_dropout_job forward, backward;
} dropout_plan;

static yoke_status forward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const dropout_plan *dropout = (const dropout_plan *)plan;
    cuda_device *device = cuda_of(plan->device);
    TRY(cuda_own_input_read(&dropout->input, device));
    TRY_CUDA(device, cuda_run_dropout(&dropout->forward, cuda_compute(plan)));
    return YOKE_OK;
}

static yoke_status backward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const dropout_plan *dropout = (const dropout_plan *)plan;
    cuda_device *device = cuda_of(plan->device);
    if (dropout->input.gradient == NULL) return YOKE_OK;
    TRY_CUDA(device, cuda_run_dropout(&dropout->backward, cuda_compute(plan)));
    return cuda_own_input_return(&dropout->input, device);
}

static yoke_status bind(yoke_plan *plan, const yoke_plan_binding *binding) {
    dropout_plan *dropout = (dropout_plan *)plan;
    cuda_own_input_bind(&dropout->input, binding, 0, binding->scratch);
    dropout->forward.from = dropout->input.value;
    dropout->forward.to = binding->output;
    dropout->backward.from = binding->output_gradient;
    dropout->backward.to = dropout->input.gradient;
    return YOKE_OK;
}

yoke_status cuda_plan_dropout(yoke_plan **plan, cuda_device *device,
                              const yoke_plan_request *request) {
    static const cuda_own_calls calls = {bind, forward, backward};
    const yoke_operation *operation = request->operation;
    if (!request->training || operation->probability == 0)
        return cuda_plan_reshape(plan, device, request);
    TRY(cuda_own_plan_create(plan, sizeof(dropout_plan), device, request, &calls));
    dropout_plan *dropout = (dropout_plan *)*plan;
    dropout->input = cuda_own_input_of(request, 0);
    dropout->forward = (cuda_dropout_job){.rows = (size_t)request->rows,
                                          .channels = (uint32_t)operation->input.channels,
                                          .pixels = (uint32_t)operation->input.height *
                                                    (uint32_t)operation->input.width,
                                          .half = cuda_is_half(request),
                                          .layer = operation->layer,
                                          .threshold = (uint32_t)(operation->probability * 0x1p32),
                                          .scale = (float)(1 / (1 - operation->probability)),
                                          .step = device->step};
    dropout->backward = dropout->forward;
    yoke_plan_needs *needs = &dropout->base.needs;
    cuda_own_output(&needs->output, request);
    needs->scratch_bytes = 2 * dropout->input.bytes;
    needs->forward_in_place = needs->backward_in_place = !dropout->input.reordered;
    return YOKE_OK;
}
