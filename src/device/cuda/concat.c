/* SPDX-License-Identifier: Apache-2.0 */
/* Concatenation of the channels of two values. Channels lie side by side at each pixel or position:
 * each input is a range of columns of the output. */
#include "device/cuda/kernel_plan.h"

typedef struct concat_plan {
    yoke_plan base;
    cuda_kernel_input inputs[YOKE_PLAN_INPUTS];
    cuda_columns_job forward[YOKE_PLAN_INPUTS], backward[YOKE_PLAN_INPUTS];
} concat_plan;

static yoke_status forward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const concat_plan *concat = (const concat_plan *)plan;
    cuda_device *device = cuda_of(plan->device);
    for (int i = 0; i < YOKE_PLAN_INPUTS; i++) {
        TRY(cuda_kernel_input_read(&concat->inputs[i], device));
        TRY_CUDA(device, cuda_run_copy_columns(&concat->forward[i], cuda_compute(plan)));
    }
    return YOKE_OK;
}

static yoke_status backward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const concat_plan *concat = (const concat_plan *)plan;
    cuda_device *device = cuda_of(plan->device);
    for (int i = 0; i < YOKE_PLAN_INPUTS; i++) {
        if (concat->inputs[i].gradient == NULL) continue;
        TRY_CUDA(device, cuda_run_copy_columns(&concat->backward[i], cuda_compute(plan)));
        TRY(cuda_kernel_input_return(&concat->inputs[i], device));
    }
    return YOKE_OK;
}

static yoke_status bind(yoke_plan *plan, const yoke_plan_binding *binding) {
    concat_plan *concat = (concat_plan *)plan;
    char *scratch = binding->scratch;
    char *output = binding->output, *gradient = binding->output_gradient;
    for (int i = 0; i < YOKE_PLAN_INPUTS; i++) {
        cuda_kernel_input *input = &concat->inputs[i];
        cuda_kernel_input_bind(input, binding, i, scratch);
        scratch += 2 * input->bytes;
        concat->forward[i].from = input->value;
        concat->forward[i].to = output;
        concat->backward[i].from = gradient;
        concat->backward[i].to = input->gradient;
        size_t bytes = concat->forward[i].columns * cuda_type_bytes(input->own.type);
        output += bytes;
        if (gradient != NULL) gradient += bytes;
    }
    return YOKE_OK;
}

yoke_status cuda_plan_concat(yoke_plan **plan, cuda_device *device,
                             const yoke_plan_request *request) {
    static const yoke_plan_calls calls = {bind, forward, backward, NULL};
    TRY(yoke_plan_allocate(plan, sizeof(concat_plan), &device->base, request, &calls));
    concat_plan *concat = (concat_plan *)*plan;
    const yoke_operation *operation = request->operation;
    yoke_dims output = operation->output;
    size_t all = (size_t)output.channels;
    size_t pixels = (size_t)request->rows * (size_t)output.height * (size_t)output.width;
    for (int i = 0; i < YOKE_PLAN_INPUTS; i++) {
        yoke_operation part = *operation;
        if (i == 1) part.input.channels = output.channels - operation->input.channels;
        yoke_plan_request own = *request;
        own.operation = &part;
        concat->inputs[i] = cuda_kernel_input_of(&own, i);
        size_t columns = (size_t)part.input.channels;
        concat->forward[i] = (cuda_columns_job){.to_stride = all,
                                                .from_stride = columns,
                                                .rows = pixels,
                                                .columns = columns,
                                                .half = cuda_is_half(request)};
        concat->backward[i] = concat->forward[i];
        concat->backward[i].to_stride = columns;
        concat->backward[i].from_stride = all;
    }
    cuda_kernel_output(&concat->base.needs.output, request);
    concat->base.needs.scratch_bytes = 2 * (concat->inputs[0].bytes + concat->inputs[1].bytes);
    return YOKE_OK;
}
