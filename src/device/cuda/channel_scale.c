/* SPDX-License-Identifier: Apache-2.0 */
/* An image times a factor for each channel of a row. */
#include "device/cuda/kernel_plan.h"

typedef struct scale_plan {
    yoke_plan base;
    cuda_kernel_input inputs[YOKE_PLAN_INPUTS];
    cuda_channel_scale_job forward, backward;
} scale_plan;

static yoke_status read_inputs(const scale_plan *scale, cuda_device *device) {
    for (int i = 0; i < YOKE_PLAN_INPUTS; i++)
        TRY(cuda_kernel_input_read(&scale->inputs[i], device));
    return YOKE_OK;
}

static yoke_status forward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const scale_plan *scale = (const scale_plan *)plan;
    cuda_device *device = cuda_of(plan->device);
    TRY(read_inputs(scale, device));
    TRY_CUDA(device, cuda_run_channel_scale(&scale->forward, cuda_compute(plan)));
    return YOKE_OK;
}

/* The sums come first: the image's gradient may overwrite the output's. */
static yoke_status backward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const scale_plan *scale = (const scale_plan *)plan;
    const cuda_channel_scale_job *job = &scale->backward;
    cuda_device *device = cuda_of(plan->device);
    TRY(read_inputs(scale, device));
    if (job->factors_gradient != NULL)
        TRY_CUDA(device, cuda_run_channel_scale_sums(job, cuda_compute(plan)));
    if (job->to != NULL) TRY_CUDA(device, cuda_run_channel_scale(job, cuda_compute(plan)));
    for (int i = 0; i < YOKE_PLAN_INPUTS; i++)
        TRY(cuda_kernel_input_return(&scale->inputs[i], device));
    return YOKE_OK;
}

static yoke_status bind(yoke_plan *plan, const yoke_plan_binding *binding) {
    scale_plan *scale = (scale_plan *)plan;
    char *scratch = binding->scratch;
    for (int i = 0; i < YOKE_PLAN_INPUTS; i++) {
        cuda_kernel_input_bind(&scale->inputs[i], binding, i, scratch);
        scratch += 2 * scale->inputs[i].bytes;
    }
    scale->forward.to = binding->output;
    scale->forward.from = scale->inputs[0].value;
    scale->forward.factors = scale->inputs[1].value;
    scale->backward = scale->forward;
    scale->backward.to = scale->inputs[0].gradient;
    scale->backward.from = binding->output_gradient;
    scale->backward.image = scale->inputs[0].value;
    scale->backward.factors_gradient = scale->inputs[1].gradient;
    return YOKE_OK;
}

yoke_status cuda_plan_channel_scale(yoke_plan **plan, cuda_device *device,
                                    const yoke_plan_request *request) {
    static const yoke_plan_calls calls = {bind, forward, backward, NULL};
    TRY(yoke_plan_allocate(plan, sizeof(scale_plan), &device->base, request, &calls));
    scale_plan *scale = (scale_plan *)*plan;
    const yoke_dims image = request->operation->input;
    yoke_operation factors = *request->operation;
    factors.input.height = factors.input.width = 1;
    yoke_plan_request of_factors = *request;
    of_factors.operation = &factors;
    scale->inputs[0] = cuda_kernel_input_of(request, 0);
    scale->inputs[1] = cuda_kernel_input_of(&of_factors, 1);
    scale->forward = (cuda_channel_scale_job){.rows = (size_t)request->rows,
                                              .pixels = (size_t)image.height * (size_t)image.width,
                                              .channels = (size_t)image.channels,
                                              .half = cuda_is_half(request)};
    bool gradient = request->training && request->input_gradient;
    yoke_plan_needs *needs = &scale->base.needs;
    cuda_kernel_output(&needs->output, request);
    needs->scratch_bytes = 2 * (scale->inputs[0].bytes + scale->inputs[1].bytes);
    needs->forward_in_place = !scale->inputs[0].reordered;
    needs->backward_reads_input = needs->backward_reads_second = gradient;
    needs->backward_in_place = gradient && !scale->inputs[0].reordered;
    return YOKE_OK;
}
