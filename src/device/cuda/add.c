/* The sum of two values with an optional ReLU behind it. Its gradient is one for both: backward
 * writes it once. */
#include "device/cuda/own.h"

typedef struct add_plan {
    yoke_plan base;
    cuda_own_input inputs[YOKE_PLAN_INPUTS];
    cuda_elementwise_job forward, backward;
} add_plan;

static yoke_status forward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const add_plan *add = (const add_plan *)plan;
    cuda_device *device = cuda_of(plan->device);
    for (int i = 0; i < YOKE_PLAN_INPUTS; i++)
        TRY(cuda_own_input_read(&add->inputs[i], device));
    TRY_CUDA(device, cuda_run_add(&add->forward, cuda_compute(plan)));
    return YOKE_OK;
}

/* Without a ReLU the gradient is the output's own: where it lies there already nothing runs. */
static yoke_status backward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const add_plan *add = (const add_plan *)plan;
    cuda_device *device = cuda_of(plan->device);
    const void *gradient = add->backward.from;
    if (add->forward.relu && add->backward.to != NULL) {
        TRY_CUDA(device, cuda_run_relu_backward(&add->backward, cuda_compute(plan)));
        gradient = add->backward.to;
    }
    for (int i = 0; i < YOKE_PLAN_INPUTS; i++) {
        const cuda_own_input *input = &add->inputs[i];
        if (input->given_gradient != NULL)
            TRY(cuda_reorder(device, &input->given, input->given_gradient, &input->own, gradient));
    }
    return YOKE_OK;
}

static yoke_status bind(yoke_plan *plan, const yoke_plan_binding *binding) {
    add_plan *add = (add_plan *)plan;
    char *scratch = binding->scratch;
    for (int i = 0; i < YOKE_PLAN_INPUTS; i++) {
        cuda_own_input_bind(&add->inputs[i], binding, i, scratch);
        scratch += 2 * add->inputs[i].bytes;
    }
    add->forward.to = binding->output;
    add->forward.from = add->inputs[0].value;
    add->forward.second = add->inputs[1].value;
    add->backward.to = add->inputs[0].gradient;
    add->backward.from = binding->output_gradient;
    add->backward.second = binding->output;
    return YOKE_OK;
}

yoke_status cuda_plan_add(yoke_plan **plan, cuda_device *device, const yoke_plan_request *request) {
    static const cuda_own_calls calls = {bind, forward, backward};
    TRY(cuda_own_plan_create(plan, sizeof(add_plan), device, request, &calls));
    add_plan *add = (add_plan *)*plan;
    for (int i = 0; i < YOKE_PLAN_INPUTS; i++)
        add->inputs[i] = cuda_own_input_of(request, i);
    const cuda_own_input *left = &add->inputs[0], *right = &add->inputs[1];
    add->forward = (cuda_elementwise_job){.half = cuda_is_half(request),
                                          .relu = request->operation->relu,
                                          .elements = cuda_elements(&left->own)};
    add->backward = add->forward;
    bool gradient = request->training && request->input_gradient;
    yoke_plan_needs *needs = &add->base.needs;
    cuda_own_output(&needs->output, request);
    needs->scratch_bytes = 2 * (left->bytes + right->bytes);
    needs->forward_in_place = !left->reordered;
    needs->backward_reads_output = gradient && request->operation->relu;
    needs->backward_in_place = gradient && !left->reordered;
    needs->shared_input_gradient = gradient && !left->reordered && !right->reordered;
    return YOKE_OK;
}
