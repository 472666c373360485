/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that only copy a value. Flatten and output convert it to plain, in the compute type or
 * in float32; sequence, and an operation that is the identity (dropout in evaluation), convert it
 * to channels last. One reorder for each pass; none where the layouts are equal. */
#include "device/cuda/kernel_plan.h"

typedef struct reshape_plan {
    yoke_plan base;
    cuda_layout from, to; /* of one shape, the input's */
    yoke_plan_binding binding;
} reshape_plan;

static yoke_status forward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const reshape_plan *reshape = (const reshape_plan *)plan;
    return cuda_reorder(cuda_of(plan->device), &reshape->to, reshape->binding.output,
                        &reshape->from, reshape->binding.inputs[0]);
}

static yoke_status backward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const reshape_plan *reshape = (const reshape_plan *)plan;
    if (reshape->binding.input_gradients[0] == NULL) return YOKE_OK;
    return cuda_reorder(cuda_of(plan->device), &reshape->from, reshape->binding.input_gradients[0],
                        &reshape->to, reshape->binding.output_gradient);
}

static yoke_status bind(yoke_plan *plan, const yoke_plan_binding *binding) {
    ((reshape_plan *)plan)->binding = *binding;
    return YOKE_OK;
}

yoke_status cuda_plan_reshape(yoke_plan **plan, cuda_device *device,
                              const yoke_plan_request *request) {
    static const yoke_plan_calls calls = {bind, forward, backward, NULL};
    const yoke_operation *operation = request->operation;
    TRY(yoke_plan_allocate(plan, sizeof(reshape_plan), &device->base, request, &calls));
    reshape_plan *reshape = (reshape_plan *)*plan;
    reshape->from = *cuda_layout_of(&request->inputs[0]);
    reshape->to = cuda_value_layout(request->rows, operation->input, request->precision);
    cuda_layout output = cuda_value_layout(request->rows, operation->output, request->precision);
    if (operation->kind == YOKE_OP_OUTPUT) reshape->to.type = output.type = CUDA_FLOAT32;
    if (operation->kind == YOKE_OP_OUTPUT || operation->kind == YOKE_OP_FLATTEN)
        reshape->to.channels_last = output.channels_last = false;
    yoke_plan_needs *needs = &reshape->base.needs;
    cuda_layout_store(&needs->output, &output);
    needs->forward_in_place = reshape->from.type == reshape->to.type &&
                              reshape->from.channels_last == reshape->to.channels_last;
    needs->backward_in_place = needs->forward_in_place;
    return YOKE_OK;
}
