/* SPDX-License-Identifier: Apache-2.0 */
/* Batch norm over the rows of several participants, as torch.nn.SyncBatchNorm. Each describes its
 * own rows on its GPU; the hosts gather the numbers of all and combine them alike (norm_group.c).
 * Then it normalises as with given statistics, and in backward takes from the gradient what the
 * statistics cost. A host waits for its GPU once in each pass. */
#include <math.h>
#include <stdlib.h>

#include "device/cuda/batch_norm_plan.h"
#include "device/cuda/sync_norm.h"

typedef struct sync_plan {
    cuda_batch_norm_plan norm; /* with fixed statistics: those of all */
    yoke_norm_group *group;
    yoke_status (*forward)(yoke_plan *plan, const yoke_plan_step *step);
    yoke_status (*backward)(yoke_plan *plan, const yoke_plan_step *step);
    const yoke_plan_step *step;            /* of the pass that runs */
    double total;                          /* values of a channel in the latest forward */
    size_t partial_offset, message_offset; /* in scratch */
    size_t given_offset;                   /* in `saved` */
    /* Pinned; forward and backward have coefficients of their own, since copies may still read. */
    double *message;                 /* [1 + 2 * channels] */
    float *statistics, *corrections; /* [2, channels] */
} sync_plan;

static sync_plan *sync_of(const cuda_kernel_plan *plan) {
    return (sync_plan *)(uintptr_t)plan;
}

static size_t channels_of(const sync_plan *sync) {
    return (size_t)sync->norm.kernel.base.operation.input.channels;
}

/* In `saved`, behind what any batch norm saves: what all participants have, mean and variance, or
 * in backward offset and slope. */
static float *given(const sync_plan *sync, bool backward) {
    char *saved = sync->norm.kernel.base.binding.saved;
    float *statistics = (float *)(void *)(saved + sync->given_offset);
    return backward ? statistics + 2 * channels_of(sync) : statistics;
}

static cuda_sync_norm_job sync_job(const sync_plan *sync, const cuda_batch_norm_job *norm) {
    char *scratch = sync->norm.kernel.base.binding.scratch;
    size_t channels = channels_of(sync);
    const float *statistics = given(sync, false), *corrections = given(sync, true);
    return (cuda_sync_norm_job){.pixels = norm->pixels,
                                .channels = norm->channels,
                                .type = norm->type,
                                .input = norm->input,
                                .partial = (float *)(void *)(scratch + sync->partial_offset),
                                .message = (double *)(void *)(scratch + sync->message_offset),
                                .mean = statistics,
                                .variance = statistics + channels,
                                .running_mean = norm->running_mean,
                                .running_variance = norm->running_variance,
                                .momentum = norm->momentum,
                                .unbiased = sync->total > 1 ? sync->total / (sync->total - 1) : 0,
                                .gradient = norm->input_gradient,
                                .weight = norm->weight,
                                .reciprocal = norm->reciprocal,
                                .offset = corrections,
                                .slope = corrections + channels};
}

/* Numbers of this participant go to the others, who wait for them. */
static yoke_status fetch(const sync_plan *sync, double *to, const double *from, size_t count) {
    yoke_device *device = sync->norm.kernel.base.device;
    TRY(yoke_device_download(device, YOKE_STREAM_COMPUTE, to, from, count * sizeof *to));
    TRY_CUDA(cuda_of(device), cudaStreamSynchronize(cuda_of(device)->streams[YOKE_STREAM_COMPUTE]));
    return YOKE_OK;
}

static yoke_status give(const sync_plan *sync, bool backward, const float *values) {
    return yoke_device_upload(sync->norm.kernel.base.device, YOKE_STREAM_COMPUTE,
                              given(sync, backward), values,
                              2 * channels_of(sync) * sizeof *values);
}

/* Forward. */

static bool is_finite(const float *values, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (!isfinite(values[i])) return false;
    return true;
}

/* Statistics that are not finite do not end forward: the others wait at the next batch norm. */
static yoke_status share_statistics(sync_plan *sync, const yoke_plan_step *step) {
    yoke_norm_gathered gathered;
    size_t channels = channels_of(sync);
    float *mean = sync->statistics, *variance = mean + channels;
    TRY(yoke_norm_gather(sync->group, step->alone, step->idle, sync->message, 1 + 2 * channels,
                         &gathered));
    TRY(yoke_norm_total(&gathered, step->alone, &sync->total));
    if (sync->total == 0) return YOKE_OK;
    yoke_norm_combine(&gathered, sync->total, mean, variance);
    if (!is_finite(mean, 2 * channels)) sync->group->found_nonfinite = true;
    return YOKE_OK;
}

static yoke_status keep_running(sync_plan *sync, const cuda_batch_norm_job *norm) {
    const cuda_sync_norm_job job = sync_job(sync, norm);
    if (sync->total == 0) return YOKE_OK;
    TRY(give(sync, false, sync->statistics));
    TRY_CUDA(sync->norm.kernel.device,
             cuda_run_sync_norm_keep(&job, cuda_compute(&sync->norm.kernel.base)));
    return YOKE_OK;
}

static yoke_status normalise(const cuda_kernel_plan *plan, cudaStream_t stream) {
    sync_plan *sync = sync_of(plan);
    size_t channels = channels_of(sync);
    cuda_batch_norm_job norm = cuda_batch_norm_job_of(plan, false);
    cuda_sync_norm_job job = sync_job(sync, &norm);
    sync->message[0] = (double)norm.pixels;
    TRY_CUDA(plan->device, cuda_run_sync_norm_describe(&job, stream));
    TRY(fetch(sync, sync->message + 1, job.message, 2 * channels));
    TRY(share_statistics(sync, sync->step));
    TRY(keep_running(sync, &norm));
    norm.running_mean = given(sync, false);
    norm.running_variance = norm.running_mean + channels;
    TRY_CUDA(plan->device, cuda_run_batch_norm_evaluation(&norm, stream));
    return YOKE_OK;
}

static yoke_status sync_forward(yoke_plan *plan, const yoke_plan_step *step) {
    sync_plan *sync = (sync_plan *)plan;
    sync->step = step;
    if (!step->idle) return sync->forward(plan, step);
    /* The upload of the last step may still read what now changes. */
    TRY_CUDA(cuda_of(plan->device), cudaStreamSynchronize(cuda_compute(plan)));
    TRY(share_statistics(sync, step));
    const cuda_batch_norm_job norm = cuda_batch_norm_job_of(&sync->norm.kernel, false);
    return keep_running(sync, &norm);
}

/* Backward. With means over all rows, dx = scale / std * (dy - mean(dy) - normal * mean(dy *
 * normal)), normal = (x - mean) / std. The first term is there already. */

static yoke_status share_gradients(sync_plan *sync, const yoke_plan_step *step,
                                   yoke_norm_gathered *gathered) {
    return yoke_norm_gather(sync->group, step->alone, step->idle, sync->message,
                            2 * channels_of(sync), gathered);
}

/* The two sums of a channel are floats on the GPU; they lie apart. */
static yoke_status fetch_gradients(const sync_plan *sync, const cuda_batch_norm_job *norm) {
    yoke_device *device = sync->norm.kernel.base.device;
    size_t channels = channels_of(sync), bytes = channels * sizeof(float);
    float *sums = sync->corrections;
    TRY(yoke_device_download(device, YOKE_STREAM_COMPUTE, sums, norm->bias_gradient, bytes));
    TRY(yoke_device_download(device, YOKE_STREAM_COMPUTE, sums + channels, norm->weight_gradient,
                             bytes));
    TRY_CUDA(cuda_of(device), cudaStreamSynchronize(cuda_of(device)->streams[YOKE_STREAM_COMPUTE]));
    for (size_t i = 0; i < 2 * channels; i++)
        sync->message[i] = (double)sums[i];
    return YOKE_OK;
}

static void set_corrections(sync_plan *sync, const yoke_norm_gathered *gathered, float epsilon) {
    size_t channels = channels_of(sync);
    for (size_t c = 0; c < channels; c++) {
        double variance = (double)sync->statistics[channels + c];
        double inverse = 1 / sqrt(variance + (double)epsilon);
        sync->corrections[c] = (float)(yoke_norm_sum(gathered, c) / sync->total);
        sync->corrections[channels + c] =
            (float)(inverse * yoke_norm_sum(gathered, channels + c) / sync->total);
    }
}

static yoke_status take_back(const cuda_kernel_plan *plan, cudaStream_t stream) {
    sync_plan *sync = sync_of(plan);
    yoke_norm_gathered gathered;
    const cuda_batch_norm_job norm = cuda_batch_norm_job_of(plan, true);
    const cuda_sync_norm_job job = sync_job(sync, &norm);
    TRY_CUDA(plan->device, cuda_run_batch_norm_backward(&norm, stream));
    TRY(fetch_gradients(sync, &norm));
    TRY(share_gradients(sync, sync->step, &gathered));
    if (norm.input_gradient == NULL) return YOKE_OK;
    set_corrections(sync, &gathered, norm.epsilon);
    TRY(give(sync, true, sync->corrections));
    TRY_CUDA(plan->device, cuda_run_sync_norm_correct(&job, stream));
    return YOKE_OK;
}

static yoke_status sync_backward(yoke_plan *plan, const yoke_plan_step *step) {
    sync_plan *sync = (sync_plan *)plan;
    yoke_norm_gathered gathered;
    sync->step = step;
    return step->idle ? share_gradients(sync, step, &gathered) : sync->backward(plan, step);
}

/* Planning. */

static void sync_destroy(yoke_plan *plan) {
    yoke_device_free_host(plan->device, ((sync_plan *)plan)->message);
    yoke_free(plan);
}

static yoke_status allocate_pinned(sync_plan *sync) {
    size_t channels = channels_of(sync), doubles = 1 + 2 * channels;
    void *memory = NULL;
    TRY(yoke_device_allocate_host(sync->norm.kernel.base.device,
                                  doubles * sizeof(double) + 4 * channels * sizeof(float),
                                  "synchronised batch norm", &memory));
    sync->message = memory;
    sync->statistics = (float *)(sync->message + doubles);
    sync->corrections = sync->statistics + 2 * channels;
    return YOKE_OK;
}

static yoke_status sync_prepare(cuda_kernel_plan *plan, const yoke_plan_request *request) {
    sync_plan *sync = sync_of(plan);
    yoke_plan_needs *needs = &plan->base.needs;
    size_t channels = (size_t)request->operation->input.channels;
    yoke_plan_request fixed = *request;
    fixed.fixed_statistics = true;
    plan->base.destroy = sync_destroy;
    sync->group = request->norm_group;
    size_t before = needs->scratch_bytes; /* of copies, behind which scratch begins */
    TRY(cuda_batch_norm_prepare(plan, &fixed));
    needs->backward_over_input = false; /* cuda_run_sync_norm_correct reads both */
    sync->given_offset = cuda_aligned(needs->saved_bytes);
    needs->saved_bytes = sync->given_offset + 4 * channels * sizeof(float);
    const cuda_batch_norm_job norm = cuda_batch_norm_job_of(plan, false);
    sync->partial_offset = cuda_aligned(needs->scratch_bytes - before);
    sync->message_offset = sync->partial_offset +
                           cuda_aligned(cuda_sync_norm_partial_bytes(norm.pixels, norm.channels));
    needs->scratch_bytes = before + sync->message_offset + 2 * channels * sizeof(double);
    sync->forward = plan->base.forward;
    sync->backward = plan->base.backward;
    plan->base.forward = sync_forward;
    plan->base.backward = sync_backward;
    return allocate_pinned(sync);
}

yoke_status cuda_plan_sync_batch_norm(yoke_plan **plan, cuda_device *device,
                                      const yoke_plan_request *request) {
    enum { FLAGS = YOKE_IN_PLACE | YOKE_READS_INPUT | YOKE_HAS_PARAMETERS };
    static const cuda_kernel_operation alone = {1, FLAGS, sync_prepare, normalise, take_back};
    static const cuda_kernel_operation of_sum = {2, FLAGS, sync_prepare, normalise, take_back};
    return cuda_kernel_plan_create(plan, sizeof(sync_plan), device, request,
                                   request->operation->add ? &of_sum : &alone);
}
