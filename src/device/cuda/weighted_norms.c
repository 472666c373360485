/* SPDX-License-Identifier: Apache-2.0 */
/* A convolution may compute parts of the batch norms beside it: the statistics of the one behind,
 * and, in all three passes, the one before it. Measures whether that is faster than the convolution
 * and the norms apart. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/weighted_plan.h"

enum { APART, TOGETHER, CHOICES };

typedef struct norm_trial {
    weighted_planner *planner;
    cuda_norm_parts parts[CHOICES];
    cuda_pass *passes[CHOICES][CUDA_DIRECTIONS];
    weighted_trial with; /* operands of forward, and all memory */
    cuda_operands operands[CUDA_DIRECTIONS];
    cuda_batch_norm_job forward, backward; /* of the norm that `parts` are of */
    char *results;                         /* [result_bytes] what two runs must repeat */
    size_t result_bytes;
} norm_trial;

/* Passes that the choice changes. */
static bool changes(const norm_trial *trial, int direction) {
    return direction == CUDA_FORWARD || trial->parts[TOGETHER].applies;
}

/* The norm's own kernels beside the passes. */
static yoke_status run_norm(const norm_trial *trial, cuda_batch_norm_job job, bool backward,
                            int choice) {
    cuda_device *device = trial->planner->problem.device;
    cudaStream_t stream = device->streams[YOKE_STREAM_COMPUTE];
    bool applies = trial->parts[TOGETHER].applies;
    job.summed = applies || choice == TOGETHER;
    job.applied = applies && choice == TOGETHER;
    TRY_CUDA(device, backward ? cuda_run_batch_norm_backward(&job, stream)
                              : cuda_run_batch_norm(&job, stream));
    return YOKE_OK;
}

static yoke_status run_choice(void *context, int choice) {
    const norm_trial *trial = context;
    bool applies = trial->parts[TOGETHER].applies;
    if (applies) TRY(run_norm(trial, trial->forward, false, choice));
    for (int i = 0; i < CUDA_DIRECTIONS; i++)
        if (trial->passes[choice][i] != NULL)
            TRY(cuda_weighted_run(trial->planner->self, trial->passes[choice][i],
                                  &trial->operands[i]));
    if (!applies) return run_norm(trial, trial->forward, false, choice);
    return run_norm(trial, trial->backward, true, choice);
}

/* Opening. */

/* The norm's size. */
static cuda_batch_norm_job norm_of(const norm_trial *trial) {
    const cuda_problem *problem = &trial->planner->problem;
    bool applies = trial->parts[TOGETHER].applies;
    yoke_dims dims = applies ? problem->operation->input : problem->operation->output;
    return (cuda_batch_norm_job){.pixels = (size_t)problem->rows * (size_t)dims.height *
                                           (size_t)dims.width,
                                 .channels = dims.channels,
                                 .type = problem->type,
                                 .relu = true};
}

static yoke_status choose_passes(norm_trial *trial, size_t *scratch_bytes) {
    weighted_planner *planner = trial->planner;
    yoke_status status = YOKE_OK;
    for (int k = 0; k < CHOICES; k++) {
        planner->problem.norms = trial->parts[k];
        for (int i = 0; i < CUDA_DIRECTIONS && status == YOKE_OK; i++) {
            if (!changes(trial, i)) continue;
            status = cuda_weighted_choose(planner, (cuda_direction)i, &trial->passes[k][i]);
            if (status == YOKE_OK)
                *scratch_bytes = cuda_larger(*scratch_bytes, trial->passes[k][i]->scratch_bytes);
        }
    }
    return status;
}

enum { PARAMETERS = 6 }; /* rows: weight and bias, running statistics, gradients */

/* What the norm's kernels read and write: `values` in, `other` out, and back. */
static yoke_status describe_norm(norm_trial *trial, const void *values, void *other, float *saved,
                                 float *parameters) {
    const weighted_planner *planner = trial->planner;
    cuda_device *device = planner->problem.device;
    cuda_batch_norm_job job = norm_of(trial);
    size_t channels = (size_t)job.channels;
    job.arrivals = device->arrivals;
    job.epsilon = 1e-5f;
    job.momentum = 0.1;
    job.input = values;
    job.output = job.input_gradient = other;
    job.output_gradient = other;
    job.mean = saved;
    job.reciprocal = saved + channels;
    job.weight = parameters;
    job.bias = parameters + channels;
    job.running_mean = parameters + 2 * channels;
    job.running_variance = parameters + 3 * channels;
    job.weight_gradient = parameters + 4 * channels;
    job.bias_gradient = parameters + 5 * channels;
    job.partial = trial->with.operands.scratch;
    trial->forward = trial->backward = job;
    TRY_CUDA(device, cuda_fit_batch_norm(&trial->forward, device->processors));
    TRY_CUDA(device, cuda_fit_batch_norm_backward(&trial->backward, device->processors));
    return YOKE_OK;
}

/* The norms' partial sums are a part of the scratch. */
static yoke_status find_partial_bytes(const norm_trial *trial, size_t *bytes) {
    cuda_device *device = trial->planner->problem.device;
    cuda_batch_norm_job job = norm_of(trial);
    TRY_CUDA(device, cuda_fit_batch_norm(&job, device->processors));
    *bytes = cuda_batch_norm_partial_bytes(&job);
    TRY_CUDA(device, cuda_fit_batch_norm_backward(&job, device->processors));
    *bytes = cuda_larger(*bytes, cuda_batch_norm_partial_bytes(&job));
    return YOKE_OK;
}

/* One allocation: forward's operands, scratch, a gradient of the input; what two runs must repeat:
 * a gradient of the weights and what the norms save; the norm's parameters. */
static yoke_status open_operands(norm_trial *trial, size_t scratch_bytes) {
    const weighted_planner *planner = trial->planner;
    const yoke_operation *operation = planner->problem.operation;
    cuda_device *device = planner->problem.device;
    bool applies = trial->parts[TOGETHER].applies;
    size_t rows = (size_t)planner->problem.rows, type = cuda_type_bytes(planner->problem.type);
    size_t row = CUDA_NORM_ROWS * sizeof(float), partial_bytes = 0;
    TRY(find_partial_bytes(trial, &partial_bytes));
    size_t scratch = cuda_aligned(cuda_larger(scratch_bytes, partial_bytes));
    size_t gradient = cuda_aligned(rows * cuda_dims_count(operation->input) * type);
    size_t weights = cuda_aligned(cuda_elements(&planner->request->weights) * sizeof(float));
    size_t before = cuda_aligned(row * (size_t)operation->input.channels);
    size_t behind = cuda_aligned(row * (size_t)operation->output.channels);
    size_t parameters = PARAMETERS * sizeof(float) * (size_t)norm_of(trial).channels;
    trial->result_bytes = weights + before + behind;
    TRY(cuda_weighted_operands(planner, CUDA_FORWARD, &trial->with,
                               scratch + gradient + trial->result_bytes + parameters));
    cuda_operands *forward = &trial->with.operands;
    char *other = (char *)forward->scratch + scratch;
    trial->results = other + gradient;
    forward->norm_before = trial->results + weights;
    forward->norm_behind = trial->results + weights + before;
    trial->operands[CUDA_FORWARD] = *forward;
    trial->operands[CUDA_BACKWARD_DATA] = (cuda_operands){.input = other,
                                                          .weights = forward->weights,
                                                          .output = forward->output,
                                                          .scratch = forward->scratch,
                                                          .norm_before = forward->norm_before,
                                                          .norm_input = forward->input};
    trial->operands[CUDA_BACKWARD_WEIGHTS] = (cuda_operands){.input = forward->input,
                                                             .weights = trial->results,
                                                             .output = forward->output,
                                                             .scratch = forward->scratch,
                                                             .norm_before = forward->norm_before};
    TRY_CUDA(device, cuda_run_probe(trial->results, CUDA_FLOAT32,
                                    (trial->result_bytes + parameters) / sizeof(float),
                                    device->streams[YOKE_STREAM_COMPUTE]));
    return describe_norm(trial, applies ? forward->input : forward->output,
                         applies ? (void *)other : forward->output,
                         applies ? forward->norm_before : forward->norm_behind,
                         (float *)(void *)(trial->results + trial->result_bytes));
}

/* Whether two runs give the same bits: cuDNN's plans for these graphs do not say it. */
static yoke_status compare_runs(norm_trial *trial, char *once, char *again, bool *same) {
    yoke_device *device = &trial->planner->problem.device->base;
    char *results[] = {once, again};
    for (int i = 0; i < 2; i++) {
        TRY(run_choice(trial, TOGETHER));
        TRY(yoke_device_download(device, YOKE_STREAM_COMPUTE, results[i], trial->results,
                                 trial->result_bytes));
    }
    *same = memcmp(once, again, trial->result_bytes) == 0;
    return YOKE_OK;
}

static yoke_status repeats(norm_trial *trial, bool *same) {
    char *results = yoke_malloc(2 * trial->result_bytes);
    if (results == NULL) return FAIL_MEMORY(2 * trial->result_bytes, "results to compare");
    yoke_status status = compare_runs(trial, results, results + trial->result_bytes, same);
    yoke_free(results);
    bool refused = status == YOKE_ERROR_DEVICE && !cuda_poisoned(trial->planner->problem.device);
    if (refused) *same = false;
    return refused ? YOKE_OK : status;
}

/* Deciding. */

static yoke_status compare(norm_trial *trial, cuda_tuning *tuning, cuda_candidate *candidates,
                           int *best) {
    size_t scratch_bytes = 0;
    yoke_status status = choose_passes(trial, &scratch_bytes);
    bool same = true;
    if (status == YOKE_OK) status = open_operands(trial, scratch_bytes);
    if (status == YOKE_OK && !trial->planner->problem.atomics) status = repeats(trial, &same);
    candidates[APART].run = run_choice;
    if (same) candidates[TOGETHER].run = run_choice;
    tuning->context = trial;
    if (status == YOKE_OK) status = cuda_measure(tuning, best);
    yoke_device_free(&trial->planner->problem.device->base, trial->with.memory);
    for (int i = 0; i < CHOICES * CUDA_DIRECTIONS; i++) {
        cuda_pass *pass = trial->passes[i / CUDA_DIRECTIONS][i % CUDA_DIRECTIONS];
        if (pass != NULL) pass->destroy(pass);
    }
    return status;
}

/* Whether the library has a plan for each pass that computes these parts. */
static yoke_status exist(weighted_planner *planner, bool *exist) {
    *exist = true;
    for (int i = 0; *exist && i < CUDA_DIRECTIONS; i++) {
        cuda_pass *pass = NULL;
        if (!cuda_joins_norms(&planner->problem, (cuda_direction)i)) continue;
        TRY(cuda_weighted_try_any(planner, (cuda_direction)i, &pass));
        *exist = pass != NULL;
        if (pass != NULL) pass->destroy(pass);
    }
    return YOKE_OK;
}

/* Between the parts that the problem has so far, and `parts`. */
static yoke_status decide(weighted_planner *planner, cuda_norm_parts parts) {
    norm_trial trial = {.planner = planner, .parts = {planner->problem.norms, parts}};
    cuda_candidate candidates[CHOICES] = {
        [APART] = {.name = "batch norm apart"}, [TOGETHER] = {.name = "with batch norm"}};
    char key[256];
    snprintf(key, sizeof key, "%s %s", planner->request->key,
             parts.applies ? "behind a batch norm" : "before a batch norm");
    cuda_tuning tuning = {.device = planner->problem.device,
                          .request = planner->request->plan,
                          .key = key,
                          .candidates = candidates,
                          .count = CHOICES};
    int best = APART;
    bool settled, there;
    planner->problem.norms = parts;
    TRY(exist(planner, &there));
    if (there) TRY(cuda_settled(&tuning, &settled, &best));
    if (there && !settled) TRY(compare(&trial, &tuning, candidates, &best));
    planner->problem.norms = trial.parts[best];
    return YOKE_OK;
}

/* cuDNN has such plans for 16-bit floats without a bias. A plan that applies a norm sums up its
 * output in any case. */
yoke_status cuda_weighted_join_norms(weighted_planner *planner) {
    const yoke_plan_request *request = planner->request->plan;
    if (planner->problem.type == CUDA_FLOAT32 || planner->problem.operation->bias ||
        planner->self->reordered || planner->self->weights.padded > 0)
        return YOKE_OK;
    if (request->norm_behind) TRY(decide(planner, (cuda_norm_parts){.sums = true}));
    if (!request->norm_before) return YOKE_OK;
    return decide(planner, (cuda_norm_parts){planner->problem.norms.sums, true});
}
