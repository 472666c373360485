/* SPDX-License-Identifier: Apache-2.0 */
/* Addition, with an optional ReLU behind the sum, and multiplication. */
#include "device/cuda/kernel_plan.h"

/* The sum of two values. Both inputs have the same gradient: backward writes it once. */

typedef struct add_plan {
    yoke_plan base;
    cuda_kernel_input inputs[YOKE_PLAN_INPUTS];
    cuda_elementwise_job forward;
    cuda_activation_job backward; /* of the ReLU */
} add_plan;

static yoke_status add_forward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const add_plan *add = (const add_plan *)plan;
    cuda_device *device = cuda_of(plan->device);
    for (int i = 0; i < YOKE_PLAN_INPUTS; i++)
        TRY(cuda_kernel_input_read(&add->inputs[i], device));
    TRY_CUDA(device, cuda_run_add(&add->forward, cuda_compute(plan)));
    return YOKE_OK;
}

/* Without a ReLU the inputs' gradient is the output's: copies it where an input has its own
 * memory. */
static yoke_status add_backward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const add_plan *add = (const add_plan *)plan;
    cuda_device *device = cuda_of(plan->device);
    const void *gradient = add->backward.from;
    if (add->forward.relu && add->backward.to != NULL) {
        TRY_CUDA(device, cuda_run_activation_backward(&add->backward, cuda_compute(plan)));
        gradient = add->backward.to;
    }
    for (int i = 0; i < YOKE_PLAN_INPUTS; i++) {
        const cuda_kernel_input *input = &add->inputs[i];
        if (input->given_gradient != NULL)
            TRY(cuda_reorder(device, &input->given, input->given_gradient, &input->own, gradient));
    }
    return YOKE_OK;
}

static yoke_status add_bind(yoke_plan *plan, const yoke_plan_binding *binding) {
    add_plan *add = (add_plan *)plan;
    char *scratch = binding->scratch;
    for (int i = 0; i < YOKE_PLAN_INPUTS; i++) {
        cuda_kernel_input_bind(&add->inputs[i], binding, i, scratch);
        scratch += 2 * add->inputs[i].bytes;
    }
    add->forward.to = binding->output;
    add->forward.from = add->inputs[0].value;
    add->forward.second = add->inputs[1].value;
    add->backward.to = add->inputs[0].gradient;
    add->backward.from = binding->output_gradient;
    add->backward.kept = binding->output;
    return YOKE_OK;
}

yoke_status cuda_plan_add(yoke_plan **plan, cuda_device *device, const yoke_plan_request *request) {
    static const yoke_plan_calls calls = {add_bind, add_forward, add_backward, NULL};
    TRY(yoke_plan_allocate(plan, sizeof(add_plan), &device->base, request, &calls));
    add_plan *add = (add_plan *)*plan;
    for (int i = 0; i < YOKE_PLAN_INPUTS; i++)
        add->inputs[i] = cuda_kernel_input_of(request, i);
    const cuda_kernel_input *left = &add->inputs[0], *right = &add->inputs[1];
    add->forward = (cuda_elementwise_job){.half = cuda_is_half(request),
                                          .relu = request->operation->relu,
                                          .elements = cuda_elements(&left->own)};
    add->backward = (cuda_activation_job){
        .activation = YOKE_RELU, .half = add->forward.half, .elements = add->forward.elements};
    bool gradient = request->training && request->input_gradient;
    yoke_plan_needs *needs = &add->base.needs;
    cuda_kernel_output(&needs->output, request);
    needs->scratch_bytes = 2 * (left->bytes + right->bytes);
    needs->forward_in_place = !left->reordered;
    needs->backward_reads_output = gradient && request->operation->relu;
    needs->backward_in_place = gradient && !left->reordered;
    needs->shared_input_gradient = gradient && !left->reordered && !right->reordered;
    return YOKE_OK;
}

/* The product of two values. Each input's gradient is the output's times the other input. */

typedef struct multiply_plan {
    yoke_plan base;
    cuda_kernel_input inputs[YOKE_PLAN_INPUTS];
    cuda_elementwise_job forward, gradients[YOKE_PLAN_INPUTS];
} multiply_plan;

static yoke_status multiply_forward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const multiply_plan *multiply = (const multiply_plan *)plan;
    cuda_device *device = cuda_of(plan->device);
    for (int i = 0; i < YOKE_PLAN_INPUTS; i++)
        TRY(cuda_kernel_input_read(&multiply->inputs[i], device));
    TRY_CUDA(device, cuda_run_multiply(&multiply->forward, cuda_compute(plan)));
    return YOKE_OK;
}

static yoke_status multiply_backward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const multiply_plan *multiply = (const multiply_plan *)plan;
    cuda_device *device = cuda_of(plan->device);
    for (int i = 0; i < YOKE_PLAN_INPUTS; i++)
        TRY(cuda_kernel_input_read(&multiply->inputs[i], device));
    for (int i = 0; i < YOKE_PLAN_INPUTS; i++) {
        if (multiply->gradients[i].to == NULL) continue;
        TRY_CUDA(device, cuda_run_multiply(&multiply->gradients[i], cuda_compute(plan)));
        TRY(cuda_kernel_input_return(&multiply->inputs[i], device));
    }
    return YOKE_OK;
}

static yoke_status multiply_bind(yoke_plan *plan, const yoke_plan_binding *binding) {
    multiply_plan *multiply = (multiply_plan *)plan;
    char *scratch = binding->scratch;
    for (int i = 0; i < YOKE_PLAN_INPUTS; i++) {
        cuda_kernel_input_bind(&multiply->inputs[i], binding, i, scratch);
        scratch += 2 * multiply->inputs[i].bytes;
    }
    multiply->forward.to = binding->output;
    multiply->forward.from = multiply->inputs[0].value;
    multiply->forward.second = multiply->inputs[1].value;
    for (int i = 0; i < YOKE_PLAN_INPUTS; i++) {
        multiply->gradients[i].to = multiply->inputs[i].gradient;
        multiply->gradients[i].from = binding->output_gradient;
        multiply->gradients[i].second = multiply->inputs[1 - i].value;
    }
    return YOKE_OK;
}

yoke_status cuda_plan_multiply(yoke_plan **plan, cuda_device *device,
                               const yoke_plan_request *request) {
    static const yoke_plan_calls calls = {multiply_bind, multiply_forward, multiply_backward, NULL};
    TRY(yoke_plan_allocate(plan, sizeof(multiply_plan), &device->base, request, &calls));
    multiply_plan *multiply = (multiply_plan *)*plan;
    for (int i = 0; i < YOKE_PLAN_INPUTS; i++)
        multiply->inputs[i] = cuda_kernel_input_of(request, i);
    multiply->forward = (cuda_elementwise_job){.half = cuda_is_half(request),
                                               .elements = cuda_elements(&multiply->inputs[0].own)};
    for (int i = 0; i < YOKE_PLAN_INPUTS; i++)
        multiply->gradients[i] = multiply->forward;
    bool gradient = request->training && request->input_gradient;
    yoke_plan_needs *needs = &multiply->base.needs;
    cuda_kernel_output(&needs->output, request);
    needs->scratch_bytes = 2 * (multiply->inputs[0].bytes + multiply->inputs[1].bytes);
    needs->forward_in_place = !multiply->inputs[0].reordered;
    needs->backward_reads_input = needs->backward_reads_second = gradient;
    return YOKE_OK;
}
