/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of convolution and linear: chooses an algorithm for each direction, converts the model's
 * input to the passes' layout, perhaps with more channels, and adds the bias where a pass does not.
 */
#include "device/cuda/weighted.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct cuda_weighted {
    yoke_plan base;
    cuda_pass *passes[CUDA_DIRECTIONS];
    cuda_operands operands[CUDA_DIRECTIONS];
    cuda_layout given, input; /* the producer's layout, the passes' layout */
    bool reordered;           /* the two differ: the passes read a copy in `saved` */
    cuda_pad_job weights;     /* of the copy with more channels; padded 0: none */
    cuda_type type;
    cuda_columns output; /* [rows * height * width, channels] */
    const void *producer_input;
    void *producer_gradient;
    float *weight_gradient; /* where the copy's is cut to */
    float *bias_gradient;
} cuda_weighted;

typedef struct weighted_planner {
    cuda_weighted *self;
    const cuda_weighted_request *request;
    yoke_operation operation; /* the request's, with the channels that the passes read */
    cuda_problem problem;
} weighted_planner;

static const char *const direction_names[CUDA_DIRECTIONS] = {"forward", "backward data",
                                                             "backward weights"};

static const char *const epilogue_names[CUDA_EPILOGUES] = {"", " with ReLU", " with ReLU and mask",
                                                           ", masked", ", masked and summed"};

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

/* In the compute type, unlike other biases. */
static bool casts_bias(const weighted_planner *planner) {
    return planner->problem.type == CUDA_BFLOAT16 && planner->problem.operation->bias &&
           planner->problem.epilogues[CUDA_FORWARD] != CUDA_NO_EPILOGUE;
}

static yoke_status run_pass(const cuda_weighted *self, const cuda_pass *pass,
                            const cuda_operands *operands) {
    TRY(pass->run(pass, operands));
    if (operands->beside.bias == NULL || pass->adds_bias) return YOKE_OK;
    TRY_CUDA(pass->device,
             cuda_run_add_bias(operands->output, self->type == CUDA_BFLOAT16, operands->beside.bias,
                               self->output, pass->device->streams[YOKE_STREAM_COMPUTE]));
    return YOKE_OK;
}

/* Measuring. */

typedef struct weighted_trial {
    const cuda_weighted *self;
    cuda_pass *passes[CUDA_ALGORITHMS_LIMIT];
    cuda_operands operands;
    void *memory;
} weighted_trial;

static yoke_status run_candidate(void *context, int candidate) {
    const weighted_trial *trial = context;
    return run_pass(trial->self, trial->passes[candidate], &trial->operands);
}

static const cuda_algorithm *algorithms_of(const weighted_planner *planner,
                                           cuda_direction direction) {
    cuda_epilogue epilogue = planner->problem.epilogues[direction];
    const cuda_algorithm *joined = planner->request->joined[epilogue];
    return epilogue == CUDA_NO_EPILOGUE ? planner->request->algorithms : joined;
}

static void name_pass(cuda_pass *pass, const cuda_algorithm *algorithm) {
    const char *configuration = pass->configuration;
    pass->way = algorithm->name;
    snprintf(pass->name, sizeof pass->name, "%s%s%s", algorithm->name,
             configuration[0] != '\0' ? " " : "", configuration);
}

/* An algorithm that fails with DEVICE counts as absent: another one may work. */
static yoke_status create_algorithm(const weighted_planner *planner, cuda_direction direction,
                                    int number, cuda_pass **pass) {
    *pass = NULL;
    if (number >= planner->request->algorithm_count) return YOKE_OK;
    const cuda_algorithm *algorithm = &algorithms_of(planner, direction)[number];
    yoke_status status = algorithm->create(pass, &planner->problem, direction, algorithm->variant);
    if (*pass != NULL) name_pass(*pass, algorithm);
    bool refused = status == YOKE_ERROR_DEVICE && !cuda_poisoned(planner->problem.device);
    return refused ? YOKE_OK : status;
}

static yoke_status create_candidates(const weighted_planner *planner, cuda_direction direction,
                                     weighted_trial *trial, cuda_candidate *candidates,
                                     size_t *scratch_bytes) {
    for (int i = 0; i < planner->request->algorithm_count; i++) {
        TRY(create_algorithm(planner, direction, i, &trial->passes[i]));
        if (trial->passes[i] == NULL) continue;
        candidates[i].name = trial->passes[i]->name;
        candidates[i].run = run_candidate;
        *scratch_bytes = larger(*scratch_bytes, trial->passes[i]->scratch_bytes);
    }
    return YOKE_OK;
}

/* As the passes read them. */
static size_t weight_count(const weighted_planner *planner) {
    const cuda_pad_job *weights = &planner->self->weights;
    return weights->padded > 0 ? weights->outer * (size_t)weights->padded
                               : cuda_elements(&planner->request->weights);
}

/* Of the mask that a ReLU before or behind this operation has. */
static size_t mask_bytes(const weighted_planner *planner, yoke_dims dims) {
    size_t columns = (size_t)dims.channels;
    size_t rows = (size_t)planner->problem.rows * (cuda_dims_count(dims) / columns);
    return cuda_aligned(cuda_mask_bytes(rows, columns));
}

/* One allocation holds all operands, filled with the same kind of values; the bias may read pairs
 * of bfloat16 as floats. */
static yoke_status provide_operands(const weighted_planner *planner, cuda_direction direction,
                                    weighted_trial *trial, size_t scratch_bytes) {
    cuda_device *device = planner->problem.device;
    const yoke_operation *operation = planner->problem.operation;
    size_t value_bytes = cuda_type_bytes(planner->problem.type);
    size_t rows = (size_t)planner->problem.rows, out = (size_t)operation->output.channels;
    size_t weights = cuda_aligned(rows * cuda_dims_count(operation->input) * value_bytes);
    size_t bias = weights + cuda_aligned(weight_count(planner) * sizeof(float));
    size_t output = bias + cuda_aligned(out * sizeof(float));
    size_t mask = output + cuda_aligned(rows * cuda_dims_count(operation->output) * value_bytes);
    bool masks = planner->problem.epilogues[direction] >= CUDA_RELU_MASK;
    yoke_dims masked = direction == CUDA_FORWARD ? operation->output : operation->input;
    size_t sums = mask + (masks ? mask_bytes(planner, masked) : 0);
    size_t scratch = sums + cuda_aligned((size_t)operation->input.channels * sizeof(float));
    TRY(yoke_device_allocate(&device->base, scratch + scratch_bytes, "measuring", &trial->memory));
    char *base = trial->memory;
    trial->operands =
        (cuda_operands){.input = base,
                        .weights = base + weights,
                        .output = base + output,
                        .scratch = base + scratch,
                        .beside = {.mask = base + mask, .sums = (float *)(void *)(base + sums)}};
    if (direction == CUDA_FORWARD && operation->bias) trial->operands.beside.bias = base + bias;
    TRY_CUDA(device, cuda_run_probe(base, planner->problem.type == CUDA_BFLOAT16,
                                    scratch / value_bytes, device->streams[YOKE_STREAM_COMPUTE]));
    return YOKE_OK;
}

static yoke_status measure(const weighted_planner *planner, cuda_direction direction,
                           cuda_tuning *tuning, cuda_candidate *candidates, cuda_pass **best) {
    int fastest = 0;
    weighted_trial trial = {.self = planner->self};
    size_t scratch_bytes = 0;
    yoke_status status = create_candidates(planner, direction, &trial, candidates, &scratch_bytes);
    if (status == YOKE_OK) status = provide_operands(planner, direction, &trial, scratch_bytes);
    tuning->context = &trial;
    if (status == YOKE_OK) status = cuda_measure(tuning, &fastest);
    if (status == YOKE_OK) {
        *best = trial.passes[fastest];
        trial.passes[fastest] = NULL;
    }
    yoke_device_free(&planner->problem.device->base, trial.memory);
    for (int i = 0; i < planner->request->algorithm_count; i++)
        if (trial.passes[i] != NULL) trial.passes[i]->destroy(trial.passes[i]);
    return status;
}

/* Planning. */

static yoke_status create_first(const weighted_planner *planner, cuda_direction direction,
                                cuda_pass **pass) {
    for (int i = 0; *pass == NULL && i < planner->request->algorithm_count; i++)
        TRY(create_algorithm(planner, direction, i, pass));
    if (*pass != NULL) return YOKE_OK;
    return FAIL(YOKE_ERROR_DEVICE, "%s: no algorithm for %s %s", planner->problem.device->base.name,
                planner->request->key, direction_names[direction]);
}

/* A recorded choice, on its way to a pass. */
typedef struct weighted_taker {
    weighted_planner planner; /* a copy, whose problem asks for the recorded configuration */
    cuda_direction direction;
    cuda_pass **pass;
} weighted_taker;

/* Whether the name is this algorithm's, and which configuration follows it: "" for none. A record
 * adds details in parentheses. */
static bool read_name(const cuda_algorithm *algorithm, const char *name,
                      char configuration[CUDA_CONFIGURATION_BYTES]) {
    size_t length = strlen(algorithm->name);
    configuration[0] = '\0';
    if (strncmp(name, algorithm->name, length) != 0) return false;
    name += length;
    if (name[0] == '\0' || strncmp(name, " (", 2) == 0) return true;
    if (*name++ != ' ' || strcspn(name, " ") >= CUDA_CONFIGURATION_BYTES) return false;
    memcpy(configuration, name, strcspn(name, " "));
    configuration[strcspn(name, " ")] = '\0';
    return cuda_is_configuration(configuration);
}

/* A yoke_choice_names.take: makes the pass that the record names, if there is one here. */
static yoke_status take_recorded(void *taker, const char *name, int *candidate) {
    weighted_taker *self = taker;
    weighted_planner *planner = &self->planner;
    const cuda_algorithm *algorithms = algorithms_of(planner, self->direction);
    char configuration[CUDA_CONFIGURATION_BYTES];
    *candidate = -1;
    for (int i = 0; i < planner->request->algorithm_count; i++) {
        if (!read_name(&algorithms[i], name, configuration)) continue;
        planner->problem.configuration = configuration[0] != '\0' ? configuration : NULL;
        TRY(create_algorithm(planner, self->direction, i, self->pass));
        planner->problem.configuration = NULL;
        if (*self->pass != NULL) *candidate = i;
        return YOKE_OK;
    }
    return YOKE_OK;
}

/* The copy of the weights, or of their gradient, lies before a pass's scratch. */
static size_t padded_weight_bytes(const cuda_weighted *self) {
    const cuda_pad_job *weights = &self->weights;
    return cuda_aligned(weights->outer * (size_t)weights->padded * sizeof(float));
}

/* By the record, by the fixed rule, or by a contest. */
static yoke_status choose_pass(const weighted_planner *planner, cuda_direction direction,
                               cuda_tuning *tuning, cuda_candidate *candidates, cuda_pass **pass) {
    weighted_taker taker = {*planner, direction, pass};
    int known;
    bool chosen;
    tuning->take = take_recorded;
    tuning->taker = &taker;
    TRY(cuda_chosen(tuning, &chosen, &known));
    if (*pass != NULL) return YOKE_OK;
    bool late = !chosen && yoke_choices_late(planner->request->plan->choices);
    if (!chosen && !late) return measure(planner, direction, tuning, candidates, pass);
    TRY(create_algorithm(planner, direction, known, pass));
    if (*pass == NULL) TRY(create_first(planner, direction, pass));
    return late ? cuda_assume(tuning, (*pass)->name) : YOKE_OK;
}

/* Whether im2col was the only choice. */
static yoke_status is_only(const weighted_planner *planner, cuda_direction direction,
                           const cuda_pass *chosen, bool *only) {
    *only = strcmp(chosen->way, CUDA_IM2COL) == 0;
    for (int i = 0; *only && i < planner->request->algorithm_count; i++) {
        cuda_pass *other = NULL;
        if (strcmp(algorithms_of(planner, direction)[i].name, chosen->way) == 0) continue;
        TRY(create_algorithm(planner, direction, i, &other));
        if (other == NULL) continue;
        other->destroy(other);
        *only = false;
    }
    return YOKE_OK;
}

static yoke_status plan_direction(const weighted_planner *planner, cuda_direction direction) {
    char key[160];
    cuda_candidate candidates[CUDA_ALGORITHMS_LIMIT] = {{0}};
    for (int i = 0; i < planner->request->algorithm_count; i++)
        candidates[i].name = algorithms_of(planner, direction)[i].name;
    snprintf(key, sizeof key, "%s %s%s", planner->request->key, direction_names[direction],
             epilogue_names[planner->problem.epilogues[direction]]);
    cuda_tuning tuning = {.device = planner->problem.device,
                          .request = planner->request->plan,
                          .key = key,
                          .candidates = candidates,
                          .count = planner->request->algorithm_count};
    cuda_pass **pass = &planner->self->passes[direction];
    TRY(choose_pass(planner, direction, &tuning, candidates, pass));
    bool only;
    TRY(is_only(planner, direction, *pass, &only));
    planner->self->base.ways[direction] = only ? CUDA_IM2COL ", no other" : (*pass)->way;
    yoke_plan_needs *needs = &planner->self->base.needs;
    size_t bytes = (*pass)->scratch_bytes + padded_weight_bytes(planner->self);
    needs->scratch_bytes = larger(needs->scratch_bytes, bytes);
    return YOKE_OK;
}

static yoke_status keep_weights(const weighted_planner *planner, yoke_layout *weights) {
    const yoke_plan_request *request = planner->request->plan;
    cuda_layout_store(weights, &planner->request->weights);
    if (request->parameters[0].bytes == 0 || yoke_layout_equal(weights, &request->parameters[0]))
        return YOKE_OK;
    return FAIL(YOKE_ERROR_INTERNAL, "%s: the weight has a layout that no plan reads",
                planner->problem.device->base.name);
}

static void describe_epilogues(const weighted_planner *planner) {
    const cuda_epilogue *epilogues = planner->problem.epilogues;
    yoke_plan_needs *needs = &planner->self->base.needs;
    needs->applies_relu = epilogues[CUDA_FORWARD] != CUDA_NO_EPILOGUE;
    bool writes_mask = epilogues[CUDA_FORWARD] == CUDA_RELU_MASK;
    needs->mask_bytes = writes_mask ? mask_bytes(planner, planner->problem.operation->output) : 0;
    needs->masks_input_gradient = epilogues[CUDA_BACKWARD_DATA] != CUDA_NO_EPILOGUE;
    needs->sums_input_bias = epilogues[CUDA_BACKWARD_DATA] == CUDA_MASKED_SUMS;
}

static yoke_status describe_needs(const weighted_planner *planner) {
    const yoke_plan_request *request = planner->request->plan;
    const yoke_operation *operation = request->operation;
    yoke_plan_needs *needs = &planner->self->base.needs;
    cuda_layout output = cuda_value_layout(request->rows, operation->output, request->precision);
    cuda_layout_store(&needs->output, &output);
    TRY(keep_weights(planner, &needs->parameters[0]));
    size_t channels = (size_t)operation->output.channels;
    if (operation->bias) {
        cuda_layout bias = {CUDA_FLOAT32, false, 1, {operation->output.channels}};
        cuda_layout_store(&needs->parameters[1], &bias);
        if (request->training)
            needs->scratch_bytes =
                CUDA_COLUMN_PARTS * channels * sizeof(float) + padded_weight_bytes(planner->self);
    }
    needs->reads_shadow[0] = planner->problem.type == CUDA_BFLOAT16;
    needs->reads_shadow[1] = casts_bias(planner);
    describe_epilogues(planner);
    needs->backward_reads_input =
        request->training && !request->frozen && !planner->self->reordered;
    needs->adds_input_gradient =
        !planner->self->reordered && cuda_takes(planner->problem.device, YOKE_WAY_SUMS);
    needs->saved_bytes = needs->mask_bytes;
    if (planner->self->reordered)
        needs->saved_bytes +=
            cuda_elements(&planner->self->input) * cuda_type_bytes(planner->self->input.type);
    return YOKE_OK;
}

/* Takes the epilogue if the library has an algorithm with it, and there is none yet. */
static yoke_status try_epilogue(weighted_planner *planner, cuda_direction direction,
                                cuda_epilogue epilogue) {
    cuda_pass *pass;
    if (planner->problem.epilogues[direction] != CUDA_NO_EPILOGUE) return YOKE_OK;
    planner->problem.epilogues[direction] = epilogue;
    TRY(create_algorithm(planner, direction, 0, &pass));
    if (pass == NULL)
        planner->problem.epilogues[direction] = CUDA_NO_EPILOGUE;
    else
        pass->destroy(pass);
    return YOKE_OK;
}

static yoke_status choose_epilogues(weighted_planner *planner) {
    const yoke_plan_request *request = planner->request->plan;
    bool in_floats = planner->problem.type == CUDA_FLOAT32;
    if (!cuda_takes(planner->problem.device, YOKE_WAY_RELU)) return YOKE_OK;
    if (request->relu_mask) TRY(try_epilogue(planner, CUDA_FORWARD, CUDA_RELU_MASK));
    if (request->relu) TRY(try_epilogue(planner, CUDA_FORWARD, CUDA_RELU));
    if (!request->input_masked) return YOKE_OK;
    /* The library rounds sums to the output's type, and the gradient of a bias is float32. */
    if (request->input_bias && in_floats)
        TRY(try_epilogue(planner, CUDA_BACKWARD_DATA, CUDA_MASKED_SUMS));
    return try_epilogue(planner, CUDA_BACKWARD_DATA, CUDA_MASKED);
}

static void place_input(const weighted_planner *planner) {
    const yoke_plan_request *request = planner->request->plan;
    cuda_weighted *self = planner->self;
    yoke_layout wanted;
    self->given = *cuda_layout_of(&request->inputs[0]);
    self->input = planner->request->input;
    cuda_layout_store(&wanted, &self->input);
    self->reordered = !yoke_layout_equal(&wanted, &request->inputs[0]);
}

static void place_padding(const weighted_planner *planner) {
    const yoke_operation *operation = planner->request->plan->operation;
    cuda_weighted *self = planner->self;
    if (planner->request->padded == 0) return;
    self->weights = (cuda_pad_job){.half = planner->problem.type == CUDA_BFLOAT16,
                                   .outer = (size_t)operation->output.channels *
                                            (size_t)(operation->kernel * operation->kernel),
                                   .channels = operation->input.channels,
                                   .padded = planner->request->padded};
}

static yoke_status plan_directions(weighted_planner *planner) {
    const yoke_plan_request *request = planner->request->plan;
    TRY(describe_needs(planner));
    TRY(plan_direction(planner, CUDA_FORWARD));
    if (!request->training) return YOKE_OK;
    if (!request->frozen) TRY(plan_direction(planner, CUDA_BACKWARD_WEIGHTS));
    return request->input_gradient ? plan_direction(planner, CUDA_BACKWARD_DATA) : YOKE_OK;
}

/* False: there are none. */
static bool drop_epilogues(weighted_planner *planner) {
    bool dropped = false;
    for (int i = 0; i < CUDA_DIRECTIONS; i++) {
        cuda_pass **pass = &planner->self->passes[i];
        if (*pass != NULL) (*pass)->destroy(*pass);
        *pass = NULL;
        dropped = dropped || planner->problem.epilogues[i] != CUDA_NO_EPILOGUE;
        planner->problem.epilogues[i] = CUDA_NO_EPILOGUE;
    }
    return dropped;
}

/* The library may offer an algorithm with an epilogue that then does not run. */
static yoke_status plan_with_epilogues(weighted_planner *planner) {
    TRY(choose_epilogues(planner));
    yoke_status status = plan_directions(planner);
    bool refused = status == YOKE_ERROR_DEVICE && !cuda_poisoned(planner->problem.device);
    return refused && drop_epilogues(planner) ? plan_directions(planner) : status;
}

static yoke_status build(weighted_planner *planner) {
    const yoke_plan_request *request = planner->request->plan;
    cuda_weighted *self = planner->self;
    yoke_dims output = request->operation->output;
    size_t channels = (size_t)output.channels;
    self->output = (cuda_columns){(size_t)request->rows * (cuda_dims_count(output) / channels),
                                  channels, channels};
    self->type = planner->problem.type;
    place_input(planner);
    place_padding(planner);
    return plan_with_epilogues(planner);
}

/* Running. */

static cuda_weighted *weighted_of(yoke_plan *plan) {
    return (cuda_weighted *)plan;
}

/* The passes read and write copies of the weights, which have more channels. */
static void bind_padding(cuda_weighted *self, const yoke_plan_binding *binding) {
    cuda_operands *forward = &self->operands[CUDA_FORWARD];
    cuda_operands *weights = &self->operands[CUDA_BACKWARD_WEIGHTS];
    void *scratch = (char *)binding->scratch + padded_weight_bytes(self);
    self->weights.from = forward->weights;
    self->weight_gradient = weights->weights;
    self->weights.to = forward->weights = weights->weights = binding->scratch;
    forward->scratch = weights->scratch = scratch;
}

static yoke_status weighted_bind(yoke_plan *plan, const yoke_plan_binding *binding) {
    cuda_weighted *self = weighted_of(plan);
    char *saved = binding->saved;
    void *copy = saved != NULL ? saved + self->base.needs.mask_bytes : NULL;
    void *input = self->reordered ? copy : binding->inputs[0];
    void *weights =
        self->type == CUDA_BFLOAT16 ? (void *)binding->shadows[0] : binding->parameters[0];
    self->producer_input = binding->inputs[0];
    self->producer_gradient = binding->input_gradients[0];
    self->bias_gradient = binding->parameter_gradients[1];
    bool cast = self->base.needs.reads_shadow[1];
    const void *bias = cast ? binding->shadows[1] : binding->parameters[1];
    self->operands[CUDA_FORWARD] = (cuda_operands){.input = input,
                                                   .weights = weights,
                                                   .output = binding->output,
                                                   .scratch = binding->scratch,
                                                   .beside = {.bias = bias, .mask = saved}};
    /* After the gradient of the weights no pass reads the copy of the input: the input's gradient
     * overwrites it. */
    void *gradient = self->reordered ? copy : binding->input_gradients[0];
    self->operands[CUDA_BACKWARD_DATA] = (cuda_operands){
        .input = gradient,
        .weights = weights,
        .output = binding->output_gradient,
        .scratch = binding->scratch,
        .beside = {.mask = binding->input_mask, .sums = binding->input_bias_gradient},
        .add = binding->adds_input_gradient};
    self->operands[CUDA_BACKWARD_WEIGHTS] =
        (cuda_operands){.input = input,
                        .weights = binding->parameter_gradients[0],
                        .output = binding->output_gradient,
                        .scratch = binding->scratch};
    if (self->weights.padded > 0) bind_padding(self, binding);
    return YOKE_OK;
}

/* What the passes of forward read. */
static yoke_status copy_operands(const cuda_weighted *self, yoke_plan *plan) {
    cuda_device *device = cuda_of(plan->device);
    if (self->reordered)
        TRY(cuda_reorder(device, &self->input, self->operands[CUDA_FORWARD].input, &self->given,
                         self->producer_input));
    if (self->weights.padded > 0)
        TRY_CUDA(device, cuda_run_pad_weights(&self->weights, cuda_compute(plan)));
    return YOKE_OK;
}

static yoke_status weighted_forward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const cuda_weighted *self = weighted_of(plan);
    TRY(copy_operands(self, plan));
    return run_pass(self, self->passes[CUDA_FORWARD], &self->operands[CUDA_FORWARD]);
}

static yoke_status bias_backward(const cuda_weighted *self, yoke_plan *plan) {
    const cuda_operands *operands = &self->operands[CUDA_BACKWARD_WEIGHTS];
    cuda_column_sums sums = {.values = operands->output,
                             .half = self->type == CUDA_BFLOAT16,
                             .shape = self->output,
                             .sums = self->bias_gradient,
                             .partial = operands->scratch};
    TRY_CUDA(cuda_of(plan->device), cuda_run_column_sums(&sums, cuda_compute(plan)));
    return YOKE_OK;
}

static yoke_status parameters_backward(const cuda_weighted *self, yoke_plan *plan) {
    const cuda_operands *operands = &self->operands[CUDA_BACKWARD_WEIGHTS];
    bool bias = self->base.needs.parameters[1].bytes > 0 && self->bias_gradient != NULL;
    if (bias) TRY(bias_backward(self, plan));
    TRY(run_pass(self, self->passes[CUDA_BACKWARD_WEIGHTS], operands));
    if (self->weights.padded == 0) return YOKE_OK;
    cuda_pad_job cut = self->weights;
    cut.to = self->weight_gradient;
    cut.from = operands->weights;
    TRY_CUDA(cuda_of(plan->device), cuda_run_cut_weights(&cut, cuda_compute(plan)));
    return YOKE_OK;
}

static yoke_status data_backward(const cuda_weighted *self, yoke_plan *plan) {
    const cuda_operands *operands = &self->operands[CUDA_BACKWARD_DATA];
    TRY(run_pass(self, self->passes[CUDA_BACKWARD_DATA], operands));
    if (!self->reordered) return YOKE_OK;
    return cuda_reorder(cuda_of(plan->device), &self->given, self->producer_gradient, &self->input,
                        operands->input);
}

static yoke_status weighted_part(yoke_plan *plan, yoke_direction direction) {
    const cuda_weighted *self = weighted_of(plan);
    if (self->passes[direction] == NULL) return YOKE_OK;
    return direction == YOKE_BACKWARD_WEIGHTS ? parameters_backward(self, plan)
                                              : data_backward(self, plan);
}

static yoke_status weighted_backward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    TRY(weighted_part(plan, YOKE_BACKWARD_WEIGHTS));
    return weighted_part(plan, YOKE_BACKWARD_DATA);
}

static void weighted_destroy(yoke_plan *plan) {
    cuda_weighted *self = weighted_of(plan);
    for (int i = 0; i < CUDA_DIRECTIONS; i++)
        if (self->passes[i] != NULL) self->passes[i]->destroy(self->passes[i]);
    free(self);
}

yoke_status cuda_weighted_create(yoke_plan **plan, cuda_device *device,
                                 const cuda_weighted_request *request) {
    static const yoke_plan_calls calls = {weighted_bind, weighted_forward, weighted_backward,
                                          weighted_destroy, weighted_part};
    TRY(yoke_plan_allocate(plan, sizeof(cuda_weighted), &device->base, request->plan, &calls));
    weighted_planner planner = {
        .self = weighted_of(*plan),
        .request = request,
        .operation = *request->plan->operation,
        .problem = {.device = device,
                    .rows = request->plan->rows,
                    .type = cuda_compute_type(request->plan->precision),
                    .tf32 = request->plan->precision == YOKE_TF32,
                    .atomics = request->plan->algorithm == YOKE_ALGORITHM_FASTEST}};
    planner.problem.operation = &planner.operation;
    if (request->padded > 0) planner.operation.input.channels = request->padded;
    return build(&planner);
}
