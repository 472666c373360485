/* SPDX-License-Identifier: Apache-2.0 */
/* Batch normalisation with an optional ReLU, or with a sum and its ReLU. Forward saves mean and
 * reciprocal deviation for backward. Backward computes the ReLU's mask from its input, or reads it
 * from the sum's output. Running statistics follow torch.nn.BatchNorm2d. */
#include <stdio.h>

#include "device/cuda/kernel_plan.h"

typedef struct batch_norm_plan {
    yoke_plan base;
    cuda_kernel_input input, added; /* added: zero without a sum */
    cuda_batch_norm_job job;        /* with the cut of forward */
    cuda_batch_norm_cut backward_cut;
    bool training;
} batch_norm_plan;

static yoke_status forward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const batch_norm_plan *norm = (const batch_norm_plan *)plan;
    cuda_device *device = cuda_of(plan->device);
    TRY(cuda_kernel_input_read(&norm->input, device));
    TRY(cuda_kernel_input_read(&norm->added, device));
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
    TRY(cuda_kernel_input_read(&norm->input, device));
    cuda_batch_norm_job job = norm->job;
    job.cut = norm->backward_cut;
    TRY_CUDA(device, cuda_run_batch_norm_backward(&job, cuda_compute(plan)));
    TRY(cuda_kernel_input_return(&norm->added, device));
    return cuda_kernel_input_return(&norm->input, device);
}

static yoke_status bind(yoke_plan *plan, const yoke_plan_binding *binding) {
    batch_norm_plan *norm = (batch_norm_plan *)plan;
    cuda_batch_norm_job *job = &norm->job;
    char *scratch = binding->scratch;
    cuda_kernel_input_bind(&norm->input, binding, 0, scratch);
    scratch += 2 * norm->input.bytes;
    cuda_kernel_input_bind(&norm->added, binding, 1, scratch);
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
    size_t bytes = cuda_aligned(elements * (job->half ? 2 : 4));
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
    TRY_CUDA(trial->device, cuda_run_probe(base, job->half, rows / (job->half ? 2 : 4),
                                           trial->device->streams[YOKE_STREAM_COMPUTE]));
    return YOKE_OK;
}

static yoke_status measure(cuda_tuning *tuning, cut_trial *trial, bool add, int *best) {
    void *memory = NULL;
    yoke_status status = provide_operands(trial, add, &memory);
    tuning->context = trial;
    if (status == YOKE_OK) status = cuda_measure(tuning, best);
    yoke_device_free(&trial->device->base, memory);
    return status;
}

static yoke_status choose_cut(batch_norm_plan *norm, const yoke_plan_request *request,
                              bool backward, cuda_batch_norm_cut *cut) {
    const yoke_operation *operation = request->operation;
    cuda_candidate candidates[CUTS];
    char key[96];
    int best;
    bool settled;
    *cut = cuts[0].cut;
    if (norm->job.pixels <= (backward ? CUDA_NORM_WHOLE_BACKWARD : CUDA_NORM_WHOLE_FORWARD))
        return YOKE_OK;
    list_cuts(&norm->job, candidates);
    snprintf(key, sizeof key, "batch norm %dx%dx%d%s%s %s", operation->input.channels,
             operation->input.height, operation->input.width, operation->add ? " sum" : "",
             operation->relu ? " relu" : "", backward ? "backward" : "forward");
    cuda_tuning tuning = {cuda_of(norm->base.device), request, key, candidates, CUTS, NULL};
    cut_trial trial = {tuning.device, norm->job, backward};
    TRY(cuda_settled(&tuning, &settled, &best));
    if (!settled) TRY(measure(&tuning, &trial, operation->add, &best));
    *cut = cuts[best].cut;
    norm->base.ways[backward ? YOKE_BACKWARD_DATA : YOKE_FORWARD] = cuts[best].name;
    return YOKE_OK;
}

static yoke_status choose_cuts(batch_norm_plan *norm, const yoke_plan_request *request) {
    norm->job.cut = cuts[0].cut;
    if (!norm->training) return YOKE_OK; /* it sums nothing */
    TRY(choose_cut(norm, request, false, &norm->job.cut));
    return choose_cut(norm, request, true, &norm->backward_cut);
}

static size_t partial_bytes(const batch_norm_plan *norm) {
    size_t forward = cuda_batch_norm_partial_bytes(&norm->job);
    size_t backward = bytes_with(&norm->job, norm->backward_cut);
    return forward > backward ? forward : backward;
}

static yoke_status describe_needs(batch_norm_plan *norm, const yoke_plan_request *request) {
    const cuda_batch_norm_job *job = &norm->job;
    yoke_plan_needs *needs = &norm->base.needs;
    int64_t channels = job->channels;
    cuda_kernel_output(&needs->output, request);
    for (int i = 0; i < YOKE_PLAN_PARAMETERS; i++)
        TRY(yoke_layout_plain(norm->base.device, &channels, 1, &needs->parameters[i]));
    needs->scratch_bytes = 2 * (norm->input.bytes + norm->added.bytes);
    needs->forward_in_place = !request->training && !norm->input.reordered;
    if (!request->training) return YOKE_OK;
    needs->scratch_bytes += partial_bytes(norm);
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
    static const yoke_plan_calls calls = {bind, forward, backward, NULL};
    const yoke_operation *operation = request->operation;
    size_t pixels =
        (size_t)request->rows * (size_t)operation->input.height * (size_t)operation->input.width;
    TRY(yoke_plan_allocate(plan, sizeof(batch_norm_plan), &device->base, request, &calls));
    batch_norm_plan *norm = (batch_norm_plan *)*plan;
    norm->training = request->training;
    norm->input = cuda_kernel_input_of(request, 0);
    if (operation->add) norm->added = cuda_kernel_input_of(request, 1);
    norm->job = (cuda_batch_norm_job){.pixels = pixels,
                                      .channels = operation->input.channels,
                                      .half = cuda_is_half(request),
                                      .relu = operation->relu,
                                      .epsilon = (float)operation->epsilon,
                                      .momentum = operation->momentum};
    TRY(choose_cuts(norm, request));
    return describe_needs(norm, request);
}
