/* SPDX-License-Identifier: Apache-2.0 */
/* The passes of convolution and linear: measures which algorithm is the fastest for a direction. */
#include <stdio.h>
#include <string.h>

#include "device/cuda/weighted_plan.h"

const char *const cuda_direction_names[CUDA_DIRECTIONS] = {"forward", "backward data",
                                                           "backward weights"};

yoke_status cuda_weighted_run(const cuda_weighted *self, const cuda_pass *pass,
                              const cuda_operands *operands) {
    TRY(pass->run(pass, operands));
    if (operands->beside.bias == NULL || pass->adds_bias) return YOKE_OK;
    TRY_CUDA(pass->device,
             cuda_run_add_bias(operands->output, self->type, operands->beside.bias, self->output,
                               pass->device->streams[YOKE_STREAM_COMPUTE]));
    return YOKE_OK;
}

/* Measuring. */

typedef struct algorithm_trial {
    const cuda_weighted *self;
    cuda_pass *passes[CUDA_ALGORITHMS_LIMIT];
    weighted_trial with;
} algorithm_trial;

static yoke_status run_candidate(void *context, int candidate) {
    const algorithm_trial *trial = context;
    return cuda_weighted_run(trial->self, trial->passes[candidate], &trial->with.operands);
}

static const cuda_algorithm *algorithms_of(const weighted_planner *planner,
                                           cuda_direction direction) {
    cuda_epilogue epilogue = planner->problem.epilogues[direction];
    const cuda_algorithm *joined = planner->request->joined[epilogue];
    return epilogue == CUDA_NO_EPILOGUE ? planner->request->algorithms : joined;
}

/* An algorithm that fails with DEVICE counts as absent: another one may work. */
yoke_status cuda_weighted_try(const weighted_planner *planner, cuda_direction direction, int number,
                              cuda_pass **pass) {
    *pass = NULL;
    if (number >= planner->request->algorithm_count) return YOKE_OK;
    const cuda_algorithm *algorithm = &algorithms_of(planner, direction)[number];
    if (cuda_joins_norms(&planner->problem, direction) && algorithm->create != cuda_graph_pass)
        return YOKE_OK;
    yoke_status status = algorithm->create(pass, &planner->problem, direction, algorithm->variant);
    if (*pass != NULL) {
        const char *configuration = (*pass)->configuration;
        (*pass)->algorithm = algorithm->name;
        snprintf((*pass)->name, sizeof(*pass)->name, "%s%s%s", algorithm->name,
                 configuration[0] != '\0' ? " " : "", configuration);
    }
    bool refused = status == YOKE_ERROR_DEVICE && !cuda_poisoned(planner->problem.device);
    return refused ? YOKE_OK : status;
}

yoke_status cuda_weighted_try_any(const weighted_planner *planner, cuda_direction direction,
                                  cuda_pass **pass) {
    *pass = NULL;
    for (int i = 0; *pass == NULL && i < planner->request->algorithm_count; i++)
        TRY(cuda_weighted_try(planner, direction, i, pass));
    return YOKE_OK;
}

static yoke_status create_candidates(const weighted_planner *planner, cuda_direction direction,
                                     algorithm_trial *trial, cuda_candidate *candidates,
                                     size_t *scratch_bytes) {
    for (int i = 0; i < planner->request->algorithm_count; i++) {
        TRY(cuda_weighted_try(planner, direction, i, &trial->passes[i]));
        if (trial->passes[i] == NULL) continue;
        candidates[i].name = trial->passes[i]->name;
        candidates[i].run = run_candidate;
        *scratch_bytes = cuda_larger(*scratch_bytes, trial->passes[i]->scratch_bytes);
    }
    return YOKE_OK;
}

size_t cuda_weighted_aux_bytes(const weighted_planner *planner, cuda_direction direction) {
    const cuda_problem *problem = &planner->problem;
    bool forward = direction == CUDA_FORWARD;
    yoke_dims dims = forward ? problem->operation->output : problem->operation->input;
    size_t columns = (size_t)dims.channels;
    size_t rows = (size_t)problem->rows * (cuda_dims_count(dims) / columns);
    return cuda_aligned(cuda_aux_bytes(cuda_epilogues[problem->epilogues[direction]].aux, rows,
                                       columns, cuda_type_bytes(problem->type)));
}

/* What a norm of so many channels saves, where passes compute parts of it. */
static size_t norm_bytes(int channels) {
    return cuda_aligned(CUDA_NORM_ROWS * (size_t)channels * sizeof(float));
}

/* One allocation holds all operands, filled with the same kind of values; the bias may read pairs
 * of 2 bytes as floats. The scratch is zero. */
yoke_status cuda_weighted_operands(const weighted_planner *planner, cuda_direction direction,
                                   weighted_trial *trial, size_t scratch_bytes) {
    cuda_device *device = planner->problem.device;
    const yoke_operation *operation = planner->problem.operation;
    size_t value_bytes = cuda_type_bytes(planner->problem.type);
    size_t rows = (size_t)planner->problem.rows, out = (size_t)operation->output.channels;
    size_t weights = cuda_aligned(rows * cuda_dims_count(operation->input) * value_bytes);
    const cuda_pad_job *pad = &planner->self->weights;
    size_t weight_count = pad->padded > 0 ? pad->outer * (size_t)pad->padded
                                          : cuda_elements(&planner->request->weights);
    size_t bias = weights + cuda_aligned(weight_count * sizeof(float));
    size_t output = bias + cuda_aligned(out * sizeof(float));
    size_t aux = output + cuda_aligned(rows * cuda_dims_count(operation->output) * value_bytes);
    size_t sums = aux + cuda_weighted_aux_bytes(planner, direction);
    size_t normed = sums + cuda_aligned((size_t)operation->input.channels * sizeof(float));
    bool norms = cuda_joins_norms(&planner->problem, direction);
    size_t before = normed + (norms ? weights : 0);
    size_t behind = before + (norms ? norm_bytes(operation->input.channels) : 0);
    size_t scratch = behind + (norms ? norm_bytes(operation->output.channels) : 0);
    TRY(yoke_device_allocate(&device->base, scratch + scratch_bytes, "measuring", &trial->memory));
    char *base = trial->memory;
    trial->operands =
        (cuda_operands){.input = base,
                        .weights = base + weights,
                        .output = base + output,
                        .scratch = base + scratch,
                        .beside = {.aux = base + aux, .sums = (float *)(void *)(base + sums)},
                        .norm_input = base + normed,
                        .norm_before = base + before,
                        .norm_behind = base + behind};
    if (direction == CUDA_FORWARD && operation->bias) trial->operands.beside.bias = base + bias;
    trial->operands.add = direction == CUDA_BACKWARD_DATA && planner->problem.adds;
    TRY_CUDA(device, cuda_run_probe(base, planner->problem.type, scratch / value_bytes,
                                    device->streams[YOKE_STREAM_COMPUTE]));
    return YOKE_OK;
}

static yoke_status measure_algorithms(const weighted_planner *planner, cuda_direction direction,
                                      cuda_tuning *tuning, cuda_candidate *candidates,
                                      cuda_pass **best) {
    int fastest = 0;
    algorithm_trial trial = {.self = planner->self};
    size_t scratch_bytes = 0;
    yoke_status status = create_candidates(planner, direction, &trial, candidates, &scratch_bytes);
    if (status == YOKE_OK)
        status = cuda_weighted_operands(planner, direction, &trial.with, scratch_bytes);
    tuning->context = &trial;
    if (status == YOKE_OK) status = cuda_measure(tuning, &fastest);
    if (status == YOKE_OK) {
        *best = trial.passes[fastest];
        trial.passes[fastest] = NULL;
    }
    yoke_device_free(&planner->problem.device->base, trial.with.memory);
    for (int i = 0; i < planner->request->algorithm_count; i++)
        if (trial.passes[i] != NULL) trial.passes[i]->destroy(trial.passes[i]);
    return status;
}

/* Passes. */

/* A recorded choice, on its way to a pass. */
typedef struct weighted_taker {
    weighted_planner planner; /* a copy, whose problem asks for the recorded configuration */
    cuda_direction direction;
    cuda_pass **pass;
} weighted_taker;

/* Whether the name is this algorithm's, and which configuration follows it: "" for none. A record
 * adds details in parentheses. */
static bool read_name(const cuda_algorithm *algorithm, const char *name,
                      char configuration[CUDA_GRAPH_TEXT_BYTES]) {
    size_t length = strlen(algorithm->name);
    configuration[0] = '\0';
    if (strncmp(name, algorithm->name, length) != 0) return false;
    name += length;
    if (name[0] == '\0' || strncmp(name, " (", 2) == 0) return true;
    if (*name++ != ' ' || strcspn(name, " ") >= CUDA_GRAPH_TEXT_BYTES) return false;
    memcpy(configuration, name, strcspn(name, " "));
    configuration[strcspn(name, " ")] = '\0';
    return cuda_is_configuration(configuration) || cuda_is_graph_text(configuration);
}

/* A yoke_algorithm_names.take: makes the pass that the record names, if there is one here. */
static yoke_status take_recorded(void *taker, const char *name, int *candidate) {
    weighted_taker *self = taker;
    weighted_planner *planner = &self->planner;
    const cuda_algorithm *algorithms = algorithms_of(planner, self->direction);
    char configuration[CUDA_GRAPH_TEXT_BYTES];
    *candidate = -1;
    for (int i = 0; i < planner->request->algorithm_count; i++) {
        if (!read_name(&algorithms[i], name, configuration)) continue;
        planner->problem.configuration = configuration[0] != '\0' ? configuration : NULL;
        TRY(cuda_weighted_try(planner, self->direction, i, self->pass));
        planner->problem.configuration = NULL;
        if (*self->pass != NULL) *candidate = i;
        return YOKE_OK;
    }
    return YOKE_OK;
}

/* By the record, by the fixed rule, or by a contest. */
static yoke_status take_or_measure(const weighted_planner *planner, cuda_direction direction,
                                   cuda_tuning *tuning, cuda_candidate *candidates,
                                   cuda_pass **pass) {
    weighted_taker taker = {*planner, direction, pass};
    int known;
    bool chosen;
    tuning->take = take_recorded;
    tuning->taker = &taker;
    TRY(cuda_chosen(tuning, &chosen, &known));
    if (*pass != NULL) return YOKE_OK;
    bool late = !chosen && yoke_algorithms_late(planner->request->plan->algorithms);
    if (!chosen && !late) return measure_algorithms(planner, direction, tuning, candidates, pass);
    TRY(cuda_weighted_try(planner, direction, known, pass));
    if (*pass == NULL) TRY(cuda_weighted_try_any(planner, direction, pass));
    if (*pass == NULL)
        return FAIL(YOKE_ERROR_DEVICE, "%s: no algorithm for %s %s",
                    planner->problem.device->base.name, planner->request->key,
                    cuda_direction_names[direction]);
    return late ? cuda_assume(tuning, (*pass)->name) : YOKE_OK;
}

yoke_status cuda_weighted_choose(const weighted_planner *planner, cuda_direction direction,
                                 cuda_pass **pass) {
    char key[256];
    cuda_candidate candidates[CUDA_ALGORITHMS_LIMIT] = {{0}};
    for (int i = 0; i < planner->request->algorithm_count; i++)
        candidates[i].name = algorithms_of(planner, direction)[i].name;
    /* What the pass computes besides the operation. */
    bool adds = direction == CUDA_BACKWARD_DATA && planner->problem.adds;
    const cuda_norm_parts norms = planner->problem.norms;
    snprintf(key, sizeof key, "%s %s%s%s%s", planner->request->key, cuda_direction_names[direction],
             adds ? ", added" : cuda_epilogues[planner->problem.epilogues[direction]].name,
             norms.applies ? " behind a batch norm" : "",
             norms.sums && direction == CUDA_FORWARD ? " and sums" : "");
    cuda_tuning tuning = {.device = planner->problem.device,
                          .request = planner->request->plan,
                          .key = key,
                          .candidates = candidates,
                          .count = planner->request->algorithm_count};
    return take_or_measure(planner, direction, &tuning, candidates, pass);
}

yoke_status cuda_weighted_is_only(const weighted_planner *planner, cuda_direction direction,
                                  const cuda_pass *chosen, bool *only) {
    *only = strcmp(chosen->algorithm, CUDA_IM2COL) == 0;
    for (int i = 0; *only && i < planner->request->algorithm_count; i++) {
        cuda_pass *other = NULL;
        if (strcmp(algorithms_of(planner, direction)[i].name, chosen->algorithm) == 0) continue;
        TRY(cuda_weighted_try(planner, direction, i, &other));
        if (other == NULL) continue;
        other->destroy(other);
        *only = false;
    }
    return YOKE_OK;
}
