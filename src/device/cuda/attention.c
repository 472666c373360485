/* SPDX-License-Identifier: Apache-2.0 */
/* Multi-head attention over the packed projections [q | k | v]. */
#include "device/cuda/kernel_plan.h"

typedef struct attention_plan {
    yoke_plan base;
    cuda_kernel_input input;
    cuda_attention_job job;
} attention_plan;

static yoke_status forward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const attention_plan *attention = (const attention_plan *)plan;
    cuda_device *device = cuda_of(plan->device);
    TRY(cuda_kernel_input_read(&attention->input, device));
    TRY_CUDA(device, cuda_run_attention(&attention->job, cuda_compute(plan)));
    return YOKE_OK;
}

static yoke_status backward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const attention_plan *attention = (const attention_plan *)plan;
    cuda_device *device = cuda_of(plan->device);
    if (attention->input.gradient == NULL) return YOKE_OK;
    TRY(cuda_kernel_input_read(&attention->input, device));
    TRY_CUDA(device, cuda_run_attention_backward(&attention->job, cuda_compute(plan)));
    return cuda_kernel_input_return(&attention->input, device);
}

static yoke_status bind(yoke_plan *plan, const yoke_plan_binding *binding) {
    attention_plan *attention = (attention_plan *)plan;
    cuda_kernel_input_bind(&attention->input, binding, 0, binding->scratch);
    attention->job.input = attention->input.value;
    attention->job.output = binding->output;
    attention->job.log_sum = plan->needs.saved_bytes > 0 ? binding->saved : NULL;
    attention->job.output_gradient = binding->output_gradient;
    attention->job.input_gradient = attention->input.gradient;
    attention->job.product = (float *)((char *)binding->scratch + 2 * attention->input.bytes);
    return YOKE_OK;
}

yoke_status cuda_plan_attention(yoke_plan **plan, cuda_device *device,
                                const yoke_plan_request *request) {
    static const yoke_plan_calls calls = {bind, forward, backward, NULL};
    const yoke_operation *operation = request->operation;
    int size = operation->output.channels / operation->heads;
    if (size > CUDA_ATTENTION_SIZE)
        return FAIL(YOKE_ERROR_DEVICE, "heads of %d features; on a GPU they have at most %d", size,
                    CUDA_ATTENTION_SIZE);
    TRY(yoke_plan_allocate(plan, sizeof(attention_plan), &device->base, request, &calls));
    attention_plan *attention = (attention_plan *)*plan;
    attention->input = cuda_kernel_input_of(request, 0);
    attention->job = (cuda_attention_job){.rows = request->rows,
                                          .heads = operation->heads,
                                          .positions = operation->output.height,
                                          .size = size,
                                          .half = cuda_is_half(request),
                                          .causal = operation->causal};
    yoke_plan_needs *needs = &attention->base.needs;
    cuda_kernel_output(&needs->output, request);
    needs->scratch_bytes = 2 * attention->input.bytes;
    if (!request->training || !request->input_gradient) return YOKE_OK;
    needs->saved_bytes = sizeof(float) * (size_t)request->rows * (size_t)operation->heads *
                         (size_t)operation->output.height;
    needs->scratch_bytes += needs->saved_bytes;
    needs->backward_reads_input = needs->backward_reads_output = true;
    return YOKE_OK;
}
