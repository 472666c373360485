/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of convolution and linear: chooses a pass for each direction, converts the model's
 * input to the passes' layout, perhaps with more channels, and adds the bias where a pass does not.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/weighted_plan.h"

/* Planning. */

/* The copy of the weights, or of their gradient, lies before a pass's scratch. */
static size_t padded_weight_bytes(const cuda_weighted *self) {
    const cuda_pad_job *weights = &self->weights;
    return cuda_aligned(weights->outer * (size_t)weights->padded * sizeof(float));
}

static yoke_status plan_direction(weighted_planner *planner, cuda_direction direction) {
    cuda_weighted *self = planner->self;
    TRY(cuda_weighted_join(planner, direction));
    TRY(cuda_weighted_choose(planner, direction, &self->passes[direction]));
    const cuda_pass *pass = self->passes[direction];
    bool adds = direction == CUDA_BACKWARD_DATA && planner->problem.adds, only;
    bool norms = cuda_joins_norms(&planner->problem, direction);
    char channels[32] = "";
    TRY(cuda_weighted_is_only(planner, direction, pass, &only));
    if (self->weights.padded > 0)
        snprintf(channels, sizeof channels, ", %d channels", self->weights.padded);
    snprintf(self->names[direction], sizeof self->names[direction], "%s%s%s%s%s", pass->algorithm,
             only ? ", no other" : "", adds ? ", added" : "", norms ? ", batch norm" : "",
             channels);
    bool plain = strcmp(self->names[direction], pass->algorithm) == 0;
    self->base.algorithms[direction] = plain ? pass->algorithm : self->names[direction];
    size_t bytes = self->passes[direction]->scratch_bytes + padded_weight_bytes(self);
    self->base.needs.scratch_bytes = cuda_larger(self->base.needs.scratch_bytes, bytes);
    return YOKE_OK;
}

static yoke_status plan_directions(weighted_planner *planner) {
    const yoke_plan_request *request = planner->request->plan;
    const yoke_operation *operation = request->operation;
    yoke_plan_needs *needs = &planner->self->base.needs;
    cuda_layout output = cuda_value_layout(request->rows, operation->output, request->precision);
    cuda_layout_store(&needs->output, &output);
    cuda_layout_store(&needs->parameters[0], &planner->request->weights);
    if (request->parameters[0].bytes > 0 &&
        !yoke_layout_equal(&needs->parameters[0], &request->parameters[0]))
        return FAIL(YOKE_ERROR_INTERNAL, "%s: the weight has a layout that no plan reads",
                    planner->problem.device->base.name);
    size_t channels = (size_t)operation->output.channels;
    if (operation->bias) {
        cuda_layout bias = {CUDA_FLOAT32, false, 1, {operation->output.channels}};
        cuda_layout_store(&needs->parameters[1], &bias);
        if (request->training)
            needs->scratch_bytes =
                CUDA_COLUMN_PARTS * channels * sizeof(float) + padded_weight_bytes(planner->self);
    }
    needs->reads_shadow[0] = planner->problem.type != CUDA_FLOAT32;
    needs->backward_reads[0] = request->training && !request->frozen && !planner->self->reordered;
    if (planner->self->reordered)
        needs->saved_bytes =
            cuda_elements(&planner->self->input) * cuda_type_bytes(planner->self->input.type);
    TRY(cuda_weighted_join_norms(planner));
    TRY(plan_direction(planner, CUDA_FORWARD));
    if (!request->training) return YOKE_OK;
    if (!request->frozen) TRY(plan_direction(planner, CUDA_BACKWARD_WEIGHTS));
    return request->input_gradient ? plan_direction(planner, CUDA_BACKWARD_DATA) : YOKE_OK;
}

/* Running. */

static cuda_weighted *weighted_of(yoke_plan *plan) {
    return (cuda_weighted *)plan;
}

static yoke_status weighted_bind(yoke_plan *plan, const yoke_plan_binding *binding) {
    cuda_weighted *self = weighted_of(plan);
    char *saved = binding->saved;
    void *copy = saved != NULL ? saved + self->base.needs.mask_bytes : NULL;
    void *input = self->reordered ? copy : binding->inputs[0];
    void *weights =
        self->type != CUDA_FLOAT32 ? (void *)binding->shadows[0] : binding->parameters[0];
    self->producer_input = binding->inputs[0];
    self->producer_gradient = binding->input_gradients[0];
    self->bias_gradient = binding->parameter_gradients[1];
    bool cast = self->base.needs.reads_shadow[1];
    const void *bias = cast ? binding->shadows[1] : binding->parameters[1];
    bool keeps = self->base.needs.keeps_output; /* it is the aux of next[0] */
    void *output = keeps ? binding->next_output : binding->output;
    void *aux = keeps ? binding->output : saved;
    self->operands[CUDA_FORWARD] = (cuda_operands){.input = input,
                                                   .weights = weights,
                                                   .output = output,
                                                   .scratch = binding->scratch,
                                                   .beside = {.bias = bias, .aux = aux},
                                                   .norm_behind = binding->norm_behind,
                                                   .norm_before = binding->norm_before};
    /* After the gradient of the weights no pass reads the copy of the input: the input's gradient
     * overwrites it. */
    void *gradient = self->reordered ? copy : binding->input_gradients[0];
    self->operands[CUDA_BACKWARD_DATA] = (cuda_operands){
        .input = gradient,
        .weights = weights,
        .output = binding->output_gradient,
        .scratch = binding->scratch,
        .beside = {.aux = (void *)binding->input_aux, .sums = binding->input_bias_gradient},
        .add = binding->adds_input_gradient,
        .norm_before = binding->norm_before,
        .norm_input = input};
    self->operands[CUDA_BACKWARD_WEIGHTS] =
        (cuda_operands){.input = input,
                        .weights = binding->parameter_gradients[0],
                        .output = binding->output_gradient,
                        .scratch = binding->scratch,
                        .norm_before = binding->norm_before};
    if (self->weights.padded > 0) {
        /* The passes read and write copies of the weights, which have more channels. */
        cuda_operands *forward = &self->operands[CUDA_FORWARD];
        cuda_operands *gradients = &self->operands[CUDA_BACKWARD_WEIGHTS];
        void *scratch = (char *)binding->scratch + padded_weight_bytes(self);
        self->weights.from = forward->weights;
        self->weight_gradient = gradients->weights;
        self->weights.to = forward->weights = gradients->weights = binding->scratch;
        forward->scratch = gradients->scratch = scratch;
    }
    return YOKE_OK;
}

static yoke_status weighted_forward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const cuda_weighted *self = weighted_of(plan);
    cuda_device *device = cuda_of(plan->device);
    if (self->reordered)
        TRY(cuda_reorder(device, &self->input, self->operands[CUDA_FORWARD].input, &self->given,
                         self->producer_input));
    if (self->weights.padded > 0)
        TRY_CUDA(device, cuda_run_pad_weights(&self->weights, cuda_compute(plan)));
    return cuda_weighted_run(self, self->passes[CUDA_FORWARD], &self->operands[CUDA_FORWARD]);
}

static yoke_status parameters_backward(const cuda_weighted *self, yoke_plan *plan) {
    const cuda_operands *operands = &self->operands[CUDA_BACKWARD_WEIGHTS];
    if (self->base.needs.parameters[1].bytes > 0 && self->bias_gradient != NULL) {
        cuda_column_sums sums = {.values = operands->output,
                                 .type = self->type,
                                 .shape = self->output,
                                 .sums = self->bias_gradient,
                                 .partial = operands->scratch};
        TRY_CUDA(cuda_of(plan->device), cuda_run_column_sums(&sums, cuda_compute(plan)));
    }
    TRY(cuda_weighted_run(self, self->passes[CUDA_BACKWARD_WEIGHTS], operands));
    if (self->weights.padded == 0) return YOKE_OK;
    cuda_pad_job cut = self->weights;
    cut.to = self->weight_gradient;
    cut.from = operands->weights;
    TRY_CUDA(cuda_of(plan->device), cuda_run_cut_weights(&cut, cuda_compute(plan)));
    return YOKE_OK;
}

static yoke_status weighted_part(yoke_plan *plan, yoke_direction direction) {
    const cuda_weighted *self = weighted_of(plan);
    if (self->passes[direction] == NULL) return YOKE_OK;
    if (direction == YOKE_BACKWARD_WEIGHTS) return parameters_backward(self, plan);
    const cuda_operands *operands = &self->operands[CUDA_BACKWARD_DATA];
    TRY(cuda_weighted_run(self, self->passes[CUDA_BACKWARD_DATA], operands));
    if (!self->reordered) return YOKE_OK;
    return cuda_reorder(cuda_of(plan->device), &self->given, self->producer_gradient, &self->input,
                        operands->input);
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
    yoke_free(self);
}

yoke_status cuda_weighted_create(yoke_plan **plan, cuda_device *device,
                                 const cuda_weighted_request *request) {
    static const yoke_plan_calls calls = {weighted_bind, weighted_forward, weighted_backward,
                                          weighted_destroy, .backward_part = weighted_part};
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
    cuda_weighted *self = planner.self;
    yoke_dims output = request->plan->operation->output;
    size_t channels = (size_t)output.channels;
    self->output = (cuda_columns){
        (size_t)request->plan->rows * (cuda_dims_count(output) / channels), channels, channels};
    self->type = planner.problem.type;
    yoke_layout wanted;
    self->given = *cuda_layout_of(&request->plan->inputs[0]);
    self->input = request->input;
    cuda_layout_store(&wanted, &self->input);
    self->reordered = !yoke_layout_equal(&wanted, &request->plan->inputs[0]);
    if (request->padded > 0)
        self->weights = (cuda_pad_job){
            .type = self->type,
            .outer = channels * (size_t)(yoke_taps_down(&planner.operation).kernel *
                                         yoke_taps_across(&planner.operation).kernel),
            .channels = request->plan->operation->input.channels,
            .padded = request->padded};
    TRY(plan_directions(&planner));
    const cuda_epilogue *epilogues = planner.problem.epilogues;
    yoke_plan_needs *needs = &self->base.needs;
    const cuda_epilogue_traits *behind = &cuda_epilogues[epilogues[CUDA_FORWARD]];
    const cuda_epilogue_traits *before = &cuda_epilogues[epilogues[CUDA_BACKWARD_DATA]];
    needs->computes_next = behind->activates;
    needs->keeps_output = behind->aux == CUDA_INPUT;
    needs->mask_bytes =
        behind->aux == CUDA_MASK ? cuda_weighted_aux_bytes(&planner, CUDA_FORWARD) : 0;
    needs->computes_previous = before->derives;
    needs->sums_input_bias = before->sums;
    needs->adds_input_gradient = planner.problem.adds;
    needs->sums_output = planner.problem.norms.sums;
    needs->applies_norm = planner.problem.norms.applies;
    needs->reads_shadow[1] =
        self->type != CUDA_FLOAT32 && planner.problem.operation->bias &&
        epilogues[CUDA_FORWARD] != CUDA_NO_EPILOGUE; /* the bias in the compute type */
    needs->saved_bytes += needs->mask_bytes;
    return YOKE_OK;
}
