/* SPDX-License-Identifier: Apache-2.0 */
/* Batch normalisation with an optional ReLU, or with a sum and its ReLU. Forward saves mean and
 * reciprocal standard deviation for backward. Backward computes the ReLU's mask from its input, or
 * reads it from the sum's output. Running statistics follow torch.nn.BatchNorm2d. */
#include <stdio.h>

#include "device/cuda/batch_norm_plan.h"

cuda_batch_norm_job cuda_batch_norm_job_of(const cuda_kernel_plan *plan, bool backward) {
    const cuda_batch_norm_plan *norm = (const cuda_batch_norm_plan *)plan;
    const yoke_operation *operation = &plan->base.operation;
    const yoke_plan_binding *at = &plan->base.binding;
    size_t pixels =
        plan->base.rows * (size_t)operation->input.height * (size_t)operation->input.width;
    cuda_batch_norm_job job = {.pixels = pixels,
                               .channels = operation->input.channels,
                               .type = plan->type,
                               .relu = operation->relu,
                               .fixed = norm->fixed,
                               .cut = backward ? norm->backward_cut : norm->forward_cut,
                               .epsilon = (float)operation->epsilon,
                               .momentum = plan->again ? 0 : operation->momentum,
                               .input = at->inputs[0],
                               .added = operation->add ? at->inputs[1] : NULL,
                               .output = at->output,
                               .weight = at->parameters[0],
                               .bias = at->parameters[1],
                               .running_mean = at->buffers[0],
                               .running_variance = at->buffers[1]};
    if (plan->base.backward == NULL || at->saved == NULL) return job;
    job.mean = at->saved;
    job.reciprocal = job.mean + job.channels;
    job.partial = at->scratch;
    job.output_gradient = at->output_gradient;
    job.input_gradient = at->input_gradients[0];
    job.added_gradient = operation->add ? at->input_gradients[1] : NULL;
    job.weight_gradient = at->parameter_gradients[0];
    job.bias_gradient = at->parameter_gradients[1];
    return job;
}

static yoke_status batch_norm_forward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    const cuda_batch_norm_job job = cuda_batch_norm_job_of(plan, false);
    if (plan->base.backward != NULL && !job.fixed)
        TRY_CUDA(plan->device, cuda_run_batch_norm(&job, stream));
    else
        TRY_CUDA(plan->device, cuda_run_batch_norm_evaluation(&job, stream));
    return YOKE_OK;
}

static yoke_status batch_norm_backward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    const cuda_batch_norm_job job = cuda_batch_norm_job_of(plan, true);
    TRY_CUDA(plan->device, cuda_run_batch_norm_backward(&job, stream));
    return YOKE_OK;
}

/* Cuts. Which one is fastest depends on the GPU: two blocks run on a multiprocessor at once, and
 * blocks beyond those of all multiprocessors run alone behind the others. 264 are two for each of
 * an H200's 132 multiprocessors, 216 for each of an A100's 108. */

static const struct {
    const char *name;
    cuda_batch_norm_cut cut;
} cuts[] = {
    {"264 blocks or more", {264, false}}, /* the fixed rule's */
    {"264 blocks at most", {264, true}},
    {"216 blocks at most", {216, true}},
};
enum { CUTS = sizeof cuts / sizeof cuts[0] };

typedef struct cut_trial {
    cuda_device *device;
    cuda_batch_norm_job job;
    bool backward;
} cut_trial;

static yoke_status run_cut(void *context, int candidate) {
    const cut_trial *trial = context;
    cudaStream_t stream = trial->device->streams[YOKE_STREAM_COMPUTE];
    cuda_batch_norm_job job = trial->job;
    job.cut = cuts[candidate].cut;
    TRY_CUDA(trial->device, trial->backward ? cuda_run_batch_norm_backward(&job, stream)
                                            : cuda_run_batch_norm(&job, stream));
    return YOKE_OK;
}

static size_t bytes_with(const cuda_batch_norm_job *job, cuda_batch_norm_cut cut) {
    cuda_batch_norm_job with = *job;
    with.cut = cut;
    return cuda_batch_norm_partial_bytes(&with);
}

/* Two cuts that give the same chunks compute the same sums, so only the first of them races. */
static void list_cuts(const cuda_batch_norm_job *job, cuda_candidate candidates[CUTS]) {
    for (int i = 0; i < CUTS; i++) {
        bool repeats = false;
        for (int k = 0; k < i; k++)
            repeats = repeats || bytes_with(job, cuts[k].cut) == bytes_with(job, cuts[i].cut);
        candidates[i] = (cuda_candidate){cuts[i].name, repeats ? NULL : run_cut};
    }
}

static size_t most_partial_bytes(const cuda_batch_norm_job *job) {
    size_t most = 0;
    for (int i = 0; i < CUTS; i++) {
        size_t bytes = bytes_with(job, cuts[i].cut);
        if (bytes > most) most = bytes;
    }
    return most;
}

/* Three values, eight rows of [channels], and partial sums. Passes write over what they have read:
 * their time does not depend on it. */
static yoke_status provide_operands(cut_trial *trial, bool add, void **memory) {
    cuda_batch_norm_job *job = &trial->job;
    size_t elements = job->pixels * (size_t)job->channels;
    size_t bytes = cuda_aligned(elements * cuda_type_bytes(job->type));
    size_t row = cuda_aligned((size_t)job->channels * sizeof(float));
    size_t rows = 3 * bytes, partial = rows + 8 * row;
    TRY(yoke_device_allocate(&trial->device->base, partial + most_partial_bytes(job), "measuring",
                             memory));
    char *base = *memory;
    float *floats[8];
    for (size_t i = 0; i < 8; i++)
        floats[i] = (float *)(void *)(base + rows + i * row);
    job->weight = floats[0];
    job->bias = floats[1];
    job->weight_gradient = floats[2];
    job->bias_gradient = floats[3];
    job->mean = floats[4];
    job->reciprocal = floats[5];
    job->running_mean = floats[6];
    job->running_variance = floats[7];
    job->partial = (float *)(void *)(base + partial);
    job->input = base;
    job->output_gradient = job->added_gradient = base + bytes;
    job->output = job->input_gradient = base + 2 * bytes;
    if (add) job->added = base + bytes;
    TRY_CUDA(trial->device, cuda_run_probe(base, job->type, rows / cuda_type_bytes(job->type),
                                           trial->device->streams[YOKE_STREAM_COMPUTE]));
    return YOKE_OK;
}

static yoke_status measure_cuts(cuda_tuning *tuning, cut_trial *trial, bool add, int *best) {
    void *memory = NULL;
    yoke_status status = provide_operands(trial, add, &memory);
    tuning->context = trial;
    if (status == YOKE_OK) status = cuda_measure(tuning, best);
    yoke_device_free(&trial->device->base, memory);
    return status;
}

static yoke_status choose_cut(cuda_batch_norm_plan *norm, const yoke_plan_request *request,
                              bool backward, cuda_batch_norm_cut *cut) {
    const yoke_operation *operation = request->operation;
    cuda_candidate candidates[CUTS];
    char key[96];
    int best;
    bool settled;
    cut_trial trial = {norm->kernel.device, cuda_batch_norm_job_of(&norm->kernel, backward),
                       backward};
    if (trial.job.pixels <= (backward ? CUDA_NORM_WHOLE_BACKWARD : CUDA_NORM_WHOLE_FORWARD))
        return YOKE_OK;
    list_cuts(&trial.job, candidates);
    snprintf(key, sizeof key, "batch norm %dx%dx%d%s%s %s", operation->input.channels,
             operation->input.height, operation->input.width, operation->add ? " sum" : "",
             operation->relu ? " relu" : "", backward ? "backward" : "forward");
    cuda_tuning tuning = {trial.device, request, key, candidates, CUTS, NULL};
    TRY(cuda_settled(&tuning, &settled, &best));
    if (!settled) TRY(measure_cuts(&tuning, &trial, operation->add, &best));
    *cut = cuts[best].cut;
    norm->kernel.base.algorithms[backward ? YOKE_BACKWARD_DATA : YOKE_FORWARD] = cuts[best].name;
    return YOKE_OK;
}

yoke_status cuda_batch_norm_prepare(cuda_kernel_plan *plan, const yoke_plan_request *request) {
    cuda_batch_norm_plan *norm = (cuda_batch_norm_plan *)plan;
    yoke_plan_needs *needs = &plan->base.needs;
    const int64_t channels = request->operation->input.channels;
    for (int i = 0; i < YOKE_PLAN_PARAMETERS; i++)
        TRY(yoke_layout_plain(plan->base.device, &channels, 1, &needs->parameters[i]));
    norm->forward_cut = norm->backward_cut = cuts[0].cut;
    norm->fixed = request->training && request->fixed_statistics;
    needs->forward_in_place = needs->forward_in_place && !request->training;
    if (!request->training) return YOKE_OK;
    TRY(choose_cut(norm, request, false, &norm->forward_cut));
    TRY(choose_cut(norm, request, true, &norm->backward_cut));
    const cuda_batch_norm_job job = cuda_batch_norm_job_of(plan, false);
    size_t forward = cuda_batch_norm_partial_bytes(&job);
    size_t backward = bytes_with(&job, norm->backward_cut);
    needs->scratch_bytes += forward > backward ? forward : backward;
    needs->saved_bytes = 2 * (size_t)channels * sizeof(float);
    if (!request->operation->add) return YOKE_OK;
    needs->backward_reads_output = true;
    needs->joined_in_place = needs->backward_in_place && !plan->inputs[1].reordered;
    needs->backward_in_place = false;
    return YOKE_OK;
}

yoke_status cuda_plan_batch_norm(yoke_plan **plan, cuda_device *device,
                                 const yoke_plan_request *request) {
    if (request->training && request->norm_group != NULL && !request->fixed_statistics)
        return cuda_plan_sync_batch_norm(plan, device, request);
    enum { FLAGS = YOKE_IN_PLACE | YOKE_READS_INPUT | YOKE_HAS_PARAMETERS };
    static const cuda_kernel_operation alone = {1, FLAGS, cuda_batch_norm_prepare,
                                                batch_norm_forward, batch_norm_backward};
    static const cuda_kernel_operation of_sum = {2, FLAGS, cuda_batch_norm_prepare,
                                                 batch_norm_forward, batch_norm_backward};
    return cuda_kernel_plan_create(plan, sizeof(cuda_batch_norm_plan), device, request,
                                   request->operation->add ? &of_sum : &alone);
}
