/* SPDX-License-Identifier: Apache-2.0 */
/* Max and average pooling. Max pooling saves the positions of the maxima for backward; average
 * pooling counts padding, and with a kernel of 0 its windows are adaptive. */
#include "device/cuda/kernel_plan.h"

typedef struct pooling_plan {
    yoke_plan base;
    cuda_kernel_input input;
    cuda_pooling_job job;
} pooling_plan;

static yoke_status forward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const pooling_plan *pooling = (const pooling_plan *)plan;
    cuda_device *device = cuda_of(plan->device);
    TRY(cuda_kernel_input_read(&pooling->input, device));
    cudaError_t (*run)(const cuda_pooling_job *, cudaStream_t) =
        pooling->job.adaptive ? cuda_run_adaptive_pool : cuda_run_pooling;
    TRY_CUDA(device, run(&pooling->job, cuda_compute(plan)));
    return YOKE_OK;
}

static yoke_status backward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const pooling_plan *pooling = (const pooling_plan *)plan;
    cuda_device *device = cuda_of(plan->device);
    if (pooling->job.input_gradient == NULL) return YOKE_OK;
    cudaError_t (*run)(const cuda_pooling_job *, cudaStream_t) =
        pooling->job.adaptive ? cuda_run_adaptive_pool_backward : cuda_run_pooling_backward;
    TRY_CUDA(device, run(&pooling->job, cuda_compute(plan)));
    return cuda_kernel_input_return(&pooling->input, device);
}

static yoke_status bind(yoke_plan *plan, const yoke_plan_binding *binding) {
    pooling_plan *pooling = (pooling_plan *)plan;
    cuda_kernel_input_bind(&pooling->input, binding, 0, binding->scratch);
    pooling->job.input = pooling->input.value;
    pooling->job.output = binding->output;
    pooling->job.winners = plan->needs.saved_bytes > 0 ? binding->saved : NULL;
    pooling->job.output_gradient = binding->output_gradient;
    pooling->job.input_gradient = pooling->input.gradient;
    return YOKE_OK;
}

static cuda_pooling_job job_of(const yoke_plan_request *request) {
    const yoke_operation *operation = request->operation;
    yoke_dims in = operation->input, out = operation->output;
    bool whole = operation->kernel == 0;
    return (cuda_pooling_job){
        .rows = request->rows,
        .channels = in.channels,
        .height = in.height,
        .width = in.width,
        .out_height = out.height,
        .out_width = out.width,
        .window_height = whole ? in.height : operation->kernel,
        .window_width = whole ? in.width : operation->kernel,
        .stride = operation->stride > 0 ? operation->stride : 1,
        .padding = operation->padding,
        .half = cuda_is_half(request),
        .maximum = operation->kind == YOKE_OP_MAX_POOL,
        .adaptive = whole && (out.height > 1 || out.width > 1),
    };
}

static bool is_identity(const cuda_pooling_job *job) {
    return !job->adaptive && job->window_height == 1 && job->window_width == 1 &&
           job->stride == 1 && job->padding == 0;
}

yoke_status cuda_plan_pooling(yoke_plan **plan, cuda_device *device,
                              const yoke_plan_request *request) {
    static const yoke_plan_calls calls = {bind, forward, backward, NULL};
    cuda_pooling_job job = job_of(request);
    if (is_identity(&job)) return cuda_plan_reshape(plan, device, request);
    TRY(yoke_plan_allocate(plan, sizeof(pooling_plan), &device->base, request, &calls));
    pooling_plan *pooling = (pooling_plan *)*plan;
    pooling->job = job;
    pooling->input = cuda_kernel_input_of(request, 0);
    yoke_plan_needs *needs = &pooling->base.needs;
    cuda_kernel_output(&needs->output, request);
    needs->scratch_bytes = 2 * pooling->input.bytes;
    if (job.maximum && request->training && request->input_gradient)
        needs->saved_bytes =
            cuda_elements(cuda_layout_of(&needs->output)) * cuda_pooling_winner_bytes(&job);
    return YOKE_OK;
}
