/* SPDX-License-Identifier: Apache-2.0 */
/* Losses over plain float32 rows: torch.nn.CrossEntropyLoss with label smoothing, class weights,
 * ignore_index and mixed labels, MSELoss, BCEWithLogitsLoss with pos_weight, and HuberLoss. Sums
 * are in double. Backward multiplies the gradient by the step's loss_scale in device memory. */
#include <stdio.h>
#include <stdlib.h>

#include "device/cuda/classifier.h"
#include "device/cuda/kernel_plan.h"

typedef struct loss_plan {
    cuda_kernel_plan kernel;
    float *weights;    /* on the device, or NULL */
    cuda_loss_job job; /* without addresses */
} loss_plan;

static cuda_loss_job loss_job(const cuda_kernel_plan *plan) {
    const yoke_plan_binding *at = &plan->base.binding;
    cuda_loss_job job = ((const loss_plan *)plan)->job;
    job.values = at->inputs[0];
    job.labels = at->labels;
    job.mixes = at->mixes;
    /* A model whose output is the loss has none: its functions ignore what they get. */
    job.targets = at->targets != NULL ? at->targets : at->inputs[0];
    job.saved = plan->base.needs.saved_bytes > 0 ? at->saved : NULL;
    job.scalars = at->scalars;
    if (cuda_takes(plan->device, YOKE_VARIANT_MAPPED)) job.on_host = at->on_host;
    job.loss_parts = at->scratch;
    job.correct_parts = (int32_t *)(job.loss_parts + cuda_loss_parts(&job));
    job.gradient = at->input_gradients[0];
    return job;
}

static yoke_status loss_forward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    const cuda_loss_job job = loss_job(plan);
    TRY_CUDA(plan->device, cuda_run_loss(&job, stream));
    return YOKE_OK;
}

static yoke_status loss_backward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    const cuda_loss_job job = loss_job(plan);
    if (job.joined) return YOKE_OK;
    TRY_CUDA(plan->device, cuda_run_loss_backward(&job, stream));
    return YOKE_OK;
}

yoke_status cuda_loss_over(const yoke_plan *loss, const cuda_logits *logits) {
    const cuda_kernel_plan *plan = (const cuda_kernel_plan *)loss;
    cuda_loss_job job = loss_job(plan);
    job.values = job.gradient = logits->values;
    job.type = logits->type;
    job.stride = logits->stride;
    job.joined = logits->gradient;
    TRY_CUDA(plan->device, cuda_run_loss(&job, cuda_compute(loss)));
    return YOKE_OK;
}

static void loss_destroy(yoke_plan *plan) {
    loss_plan *loss = (loss_plan *)plan;
    if (loss->weights != NULL) yoke_device_free(plan->device, loss->weights);
    yoke_free(loss);
}

static yoke_status upload_weights(loss_plan *loss, const float *weights) {
    yoke_device *device = loss->kernel.base.device;
    size_t bytes = (size_t)loss->job.outputs * sizeof *weights;
    if (weights == NULL) return YOKE_OK;
    TRY(yoke_device_allocate(device, bytes, "the weights of a loss", (void **)&loss->weights));
    TRY(yoke_device_upload(device, YOKE_STREAM_COMPUTE, loss->weights, weights, bytes));
    loss->job.weights = loss->weights;
    for (int j = 0; j < loss->job.outputs; j++)
        loss->job.weight_sum += (double)weights[j];
    return yoke_device_synchronize(device); /* `weights` is the caller's */
}

static cuda_loss_kind kind_of(const yoke_operation *operation) {
    bool counted = operation->weights != NULL || operation->ignores;
    switch (operation->kind) {
    case YOKE_OP_MSE:
        return CUDA_LOSS_MSE;
    case YOKE_OP_BCE:
        return CUDA_LOSS_BCE;
    case YOKE_OP_HUBER:
        return CUDA_LOSS_HUBER;
    case YOKE_OP_OUTPUT_LOSS:
        return CUDA_LOSS_OUTPUT;
    default:
        return counted ? CUDA_LOSS_WEIGHTED_CROSS_ENTROPY : CUDA_LOSS_CROSS_ENTROPY;
    }
}

/* Cross-entropy and its gradient: in two kernels, or in one, which reads the logits once less. */

static const char *const kernels[] = {"two kernels", "one kernel"};
enum { TWO_KERNELS, ONE_KERNEL, VARIANTS };

typedef struct loss_trial {
    cuda_device *device;
    cuda_loss_job job;
} loss_trial;

static yoke_status run_trial(void *context, int candidate) {
    const loss_trial *trial = context;
    cudaStream_t stream = trial->device->streams[YOKE_STREAM_COMPUTE];
    cuda_loss_job job = trial->job;
    job.joined = candidate == ONE_KERNEL;
    TRY_CUDA(trial->device, cuda_run_loss(&job, stream));
    if (!job.joined) TRY_CUDA(trial->device, cuda_run_loss_backward(&job, stream));
    return YOKE_OK;
}

/* A contest needs no more rows than these: a language model has gigabytes of logits. */
#define TRIAL_LOGITS ((size_t)1 << 25)

/* Zeroed: labels of class 0, and a step that mixes none. */
static yoke_status provide_operands(loss_trial *trial, void **memory) {
    cuda_loss_job *job = &trial->job;
    size_t logits = cuda_aligned(job->rows * (size_t)job->outputs * sizeof(float));
    size_t labels = 2 * logits, saved = labels + cuda_aligned(job->rows * sizeof(int32_t));
    size_t scalars = saved + cuda_aligned(job->rows * sizeof(cuda_loss_row));
    size_t step = scalars + cuda_aligned(sizeof(yoke_loss_scalars));
    size_t parts = step + cuda_aligned(sizeof(cuda_step));
    size_t part_count = cuda_loss_parts(job);
    size_t bytes = parts + part_count * (sizeof(double) + sizeof(int32_t));
    TRY(yoke_device_allocate(&trial->device->base, bytes, "measuring", memory));
    char *base = *memory;
    job->values = (float *)(void *)base;
    job->gradient = (float *)(void *)(base + logits);
    job->labels = (int32_t *)(void *)(base + labels);
    job->saved = (cuda_loss_row *)(void *)(base + saved);
    job->scalars = (yoke_loss_scalars *)(void *)(base + scalars);
    job->step = (cuda_step *)(void *)(base + step);
    job->loss_parts = (double *)(void *)(base + parts);
    job->correct_parts = (int32_t *)(job->loss_parts + part_count);
    TRY_CUDA(trial->device, cuda_run_probe(base, false, logits / sizeof(float),
                                           trial->device->streams[YOKE_STREAM_COMPUTE]));
    return YOKE_OK;
}

static yoke_status measure_kernels(const cuda_tuning *tuning, const cuda_loss_job *job, int *best) {
    loss_trial trial = {tuning->device, *job};
    cuda_tuning own = *tuning;
    void *memory = NULL;
    own.context = &trial;
    size_t most = TRIAL_LOGITS / (size_t)trial.job.outputs;
    if (most < 1) most = 1;
    if (trial.job.rows > most) trial.job.rows = most;
    yoke_status status = provide_operands(&trial, &memory);
    if (status == YOKE_OK) status = cuda_measure(&own, best);
    yoke_device_free(&trial.device->base, memory);
    return status;
}

static yoke_status loss_prepare(cuda_kernel_plan *plan, const yoke_plan_request *request) {
    loss_plan *loss = (loss_plan *)plan;
    const yoke_operation *operation = request->operation;
    bool by_label = operation->kind == YOKE_OP_CROSS_ENTROPY;
    yoke_dims dims = operation->input;
    bool by_position = by_label && dims.sequence;
    plan->base.destroy = loss_destroy;
    loss->job =
        (cuda_loss_job){.kind = kind_of(operation),
                        .rows = plan->base.rows * (size_t)(by_position ? dims.height : 1),
                        .outputs = dims.channels * (by_position ? 1 : dims.height * dims.width),
                        .smoothing = operation->label_smoothing,
                        .ignores = operation->ignores,
                        .ignored = operation->ignored,
                        .delta = operation->delta,
                        .step = plan->device->step};
    loss->job.stride = (size_t)loss->job.outputs;
    TRY(upload_weights(loss, operation->weights));
    if (by_label && request->training) {
        const cuda_loss_job *job = &loss->job;
        const cuda_candidate candidates[VARIANTS] = {{kernels[TWO_KERNELS], run_trial},
                                                     {kernels[ONE_KERNEL], run_trial}};
        char key[96];
        int best;
        bool settled;
        snprintf(key, sizeof key, "cross-entropy of %d%s%s", job->outputs,
                 job->kind == CUDA_LOSS_WEIGHTED_CROSS_ENTROPY ? " weighted" : "",
                 job->smoothing > 0 ? " smoothed" : "");
        const cuda_tuning tuning = {loss->kernel.device, request, key, candidates, VARIANTS, NULL};
        TRY(cuda_settled(&tuning, &settled, &best));
        if (!settled) TRY(measure_kernels(&tuning, job, &best));
        loss->job.joined = best == ONE_KERNEL;
        loss->kernel.base.algorithms[YOKE_FORWARD] = kernels[best];
    }
    yoke_plan_needs *needs = &plan->base.needs;
    needs->output = (yoke_layout){0};
    needs->scratch_bytes = cuda_loss_parts(&loss->job) * (sizeof(double) + sizeof(int32_t));
    needs->backward_reads[0] = request->training && !loss->job.joined;
    if (request->training && by_label && !loss->job.joined)
        needs->saved_bytes = loss->job.rows * sizeof(cuda_loss_row);
    return YOKE_OK;
}

yoke_status cuda_plan_loss(yoke_plan **plan, cuda_device *device,
                           const yoke_plan_request *request) {
    static const cuda_kernel_operation calls = {0, 0, loss_prepare, loss_forward, loss_backward};
    return cuda_kernel_plan_create(plan, sizeof(loss_plan), device, request, &calls);
}
