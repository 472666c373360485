/* Batch normalisation with an optional ReLU, or a sum and its ReLU, behind it. Mean and reciprocal
 * deviation are kept for backward, which finds out from its input, or from the output of the sum,
 * what the ReLU let through; running statistics follow torch.nn.BatchNorm2d. */
#include "device/cuda/own.h"

typedef struct batch_norm_plan {
    yoke_plan base;
    cuda_own_input input, added; /* added: zeroed without a sum */
    cuda_batch_norm_job job;
    bool training;
} batch_norm_plan;

static yoke_status forward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const batch_norm_plan *norm = (const batch_norm_plan *)plan;
    cuda_device *device = cuda_of(plan->device);
    TRY(cuda_own_input_read(&norm->input, device));
    TRY(cuda_own_input_read(&norm->added, device));
    if (norm->training)
        TRY_CUDA(device, cuda_run_batch_norm(&norm->job, cuda_compute(plan)));
    else
        TRY_CUDA(device, cuda_run_batch_norm_evaluation(&norm->job, cuda_compute(plan)));
    return YOKE_OK;
}

static yoke_status backward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const batch_norm_plan *norm = (const batch_norm_plan *)plan;
    cuda_device *device = cuda_of(plan->device);
    TRY(cuda_own_input_read(&norm->input, device));
    TRY_CUDA(device, cuda_run_batch_norm_backward(&norm->job, cuda_compute(plan)));
    TRY(cuda_own_input_return(&norm->added, device));
    return cuda_own_input_return(&norm->input, device);
}

static yoke_status bind(yoke_plan *plan, const yoke_plan_binding *binding) {
    batch_norm_plan *norm = (batch_norm_plan *)plan;
    cuda_batch_norm_job *job = &norm->job;
    char *scratch = binding->scratch;
    cuda_own_input_bind(&norm->input, binding, 0, scratch);
    scratch += 2 * norm->input.bytes;
    cuda_own_input_bind(&norm->added, binding, 1, scratch);
    scratch += 2 * norm->added.bytes;
    job->input = norm->input.value;
    job->added = norm->added.value;
    job->output = binding->output;
    job->weight = binding->parameters[0];
    job->bias = binding->parameters[1];
    job->running_mean = binding->buffers[0];
    job->running_variance = binding->buffers[1];
    if (!norm->training) return YOKE_OK;
    job->mean = binding->saved;
    job->reciprocal = job->mean + job->channels;
    job->partial = (float *)(void *)scratch;
    job->output_gradient = binding->output_gradient;
    job->input_gradient = norm->input.gradient;
    job->added_gradient = norm->added.gradient;
    job->weight_gradient = binding->parameter_gradients[0];
    job->bias_gradient = binding->parameter_gradients[1];
    return YOKE_OK;
}

static yoke_status describe_needs(batch_norm_plan *norm, const yoke_plan_request *request) {
    const cuda_batch_norm_job *job = &norm->job;
    yoke_plan_needs *needs = &norm->base.needs;
    int64_t channels = job->channels;
    cuda_own_output(&needs->output, request);
    for (int i = 0; i < YOKE_PLAN_PARAMETERS; i++)
        TRY(yoke_layout_plain(norm->base.device, &channels, 1, &needs->parameters[i]));
    needs->scratch_bytes = 2 * (norm->input.bytes + norm->added.bytes);
    needs->forward_in_place = !request->training && !norm->input.reordered;
    if (!request->training) return YOKE_OK;
    needs->scratch_bytes += cuda_batch_norm_partial_bytes(job->pixels, job->channels, job->half);
    needs->saved_bytes = 2 * (size_t)channels * sizeof(float);
    needs->backward_reads_input = true;
    needs->backward_reads_output = request->operation->add;
    bool in_place = !norm->input.reordered && !norm->added.reordered;
    needs->backward_in_place = in_place && !request->operation->add;
    needs->joined_in_place = in_place && request->operation->add;
    return YOKE_OK;
}

yoke_status cuda_plan_batch_norm(yoke_plan **plan, cuda_device *device,
                                 const yoke_plan_request *request) {
    static const cuda_own_calls calls = {bind, forward, backward};
    const yoke_operation *operation = request->operation;
    size_t pixels =
        (size_t)request->rows * (size_t)operation->input.height * (size_t)operation->input.width;
    if (request->training && pixels == 1)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "batch norm in training needs more than 1 value per channel, got 1 row of "
                    "[%d, 1, 1]; give every device at least 2 rows",
                    operation->input.channels);
    TRY(cuda_own_plan_create(plan, sizeof(batch_norm_plan), device, request, &calls));
    batch_norm_plan *norm = (batch_norm_plan *)*plan;
    norm->training = request->training;
    norm->input = cuda_own_input_of(request, 0);
    if (operation->add) norm->added = cuda_own_input_of(request, 1);
    norm->job = (cuda_batch_norm_job){.pixels = pixels,
                                      .channels = operation->input.channels,
                                      .half = cuda_is_half(request),
                                      .relu = operation->relu,
                                      .epsilon = (float)operation->epsilon,
                                      .momentum = operation->momentum};
    return describe_needs(norm, request);
}
