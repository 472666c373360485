/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of convolution and linear. Planning has three steps: (1) a fixed rule chooses the
 * output's layout; (2) the gradient of the weights is planned, and its preferred layout becomes
 * that of the master weights; (3) forward and the gradient of the data are planned, and their
 * measured times include reordering the weights. */
#include "device/cpu/weighted.h"
#include "device/cpu/bias.h"
#include "device/cpu/contest.h"
#include "device/cpu/factors.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

typedef struct cpu_weighted {
    yoke_plan base;
    cpu_pass passes[CPU_DIRECTIONS]; /* unused ones are zero */
    size_t cleared[CPU_ROLES];
    float *weight_gradient, *bias_gradient;
    void *input_gradient;
    bool bias_apart, half;
    cpu_geometry output; /* where the bias is apart */
    bool adds;           /* to the output what the binding says is added */
    cpu_fold fold;
    char *kept;                      /* what forward reads in place of the weights; NULL: nothing */
    size_t folded_bytes, bias_bytes; /* the first parts of it; then that of the pass */
    bool lent;                       /* it is the binding's `packed` */
    uint64_t kept_version;           /* of the weights from which it is; 0: unknown */
} cpu_weighted;

typedef struct weighted_planner {
    cpu_device *device;
    const yoke_plan_request *request;
    cpu_problem *problem;
    dnnl_primitive_desc_t
        hint; /* a forward description: oneDNN needs it to describe a backward pass */
    const cpu_desc
        *preferred_weights; /* the layout that a direct forward pass in float32 prefers */
    cpu_probe *probe;
} weighted_planner;

_Static_assert((int)CPU_BACKWARD_DATA == (int)YOKE_BACKWARD_DATA &&
                   (int)CPU_BACKWARD_WEIGHTS == (int)YOKE_BACKWARD_WEIGHTS,
               "directions have the same numbers");

static const char *const direction_names[CPU_DIRECTIONS] = {"forward", "backward data",
                                                            "backward weights"};

static const struct {
    int argument;
    bool written;
} operands[CPU_DIRECTIONS][CPU_ROLES] = {
    [CPU_FORWARD] = {{DNNL_ARG_SRC, false},
                     {DNNL_ARG_WEIGHTS, false},
                     {DNNL_ARG_BIAS, false},
                     {DNNL_ARG_DST, true}},
    [CPU_BACKWARD_DATA] = {{DNNL_ARG_DIFF_SRC, true},
                           {DNNL_ARG_WEIGHTS, false},
                           {0, false},
                           {DNNL_ARG_DIFF_DST, false}},
    [CPU_BACKWARD_WEIGHTS] = {{DNNL_ARG_SRC, false},
                              {DNNL_ARG_DIFF_WEIGHTS, true},
                              {DNNL_ARG_DIFF_BIAS, true},
                              {DNNL_ARG_DIFF_DST, false}},
};

/* Candidates. */

/* A candidate is an algorithm and a set of roles whose stored layout it keeps; the primitive
 * chooses the layouts of the others, which are reordered. The record of algorithms holds its
 * number. */
enum { KEEP_WEIGHTS = 1, KEEP_VALUES = 2, KEEP_SETS = 4 };

static int kept_by(cpu_role role) {
    if (role == CPU_BIAS) return 0;
    return role == CPU_WEIGHTS ? KEEP_WEIGHTS : KEEP_VALUES;
}

/* The shape of a descriptor in another type, any layout. */
static yoke_status free_desc(const cpu_desc **desc, cpu_device *device, const cpu_desc *shape,
                             dnnl_data_type_t type) {
    TRY_DNNL(cpu_desc_by_tag(desc, &device->descs, shape->ndims, shape->dims, type,
                             dnnl_format_tag_any));
    return YOKE_OK;
}

/* oneDNN 2.6 on several threads never writes the data gradient of a product in bfloat16 by packed
 * weights, where a few rows have few inputs and over 2048 outputs, no multiple of 64. */
static bool needs_plain_weights(const weighted_planner *planner, cpu_direction direction) {
    const cpu_desc *weights = planner->problem->free[CPU_WEIGHTS];
    return direction == CPU_BACKWARD_DATA && planner->problem->operation.kind == CPU_PRODUCT &&
           weights->type == dnnl_bf16 && planner->device->base.threads > 1 &&
           weights->dims[0] > 1024 && weights->dims[0] % 64 != 0;
}

static yoke_status plain_weights(const cpu_desc **desc, cpu_device *device) {
    const cpu_desc *shape = *desc;
    TRY_DNNL(cpu_desc_by_tag(desc, &device->descs, shape->ndims, shape->dims, shape->type,
                             shape->ndims == 2 ? dnnl_ab : dnnl_abcd));
    return YOKE_OK;
}

static yoke_status create_candidate(const weighted_planner *planner, cpu_direction direction,
                                    int candidate, cpu_pass *pass) {
    const cpu_problem *problem = planner->problem;
    const cpu_algorithm *algorithm = &problem->algorithms[candidate / KEEP_SETS];
    const cpu_desc *descs[CPU_ROLES];
    memcpy(descs, problem->free, sizeof descs);
    /* Gradients of weights are float32 in every precision. */
    if (direction == CPU_BACKWARD_WEIGHTS && descs[CPU_WEIGHTS]->type != dnnl_f32)
        TRY(free_desc(&descs[CPU_WEIGHTS], planner->device, descs[CPU_WEIGHTS], dnnl_f32));
    for (int role = 0; role < CPU_ROLES; role++) {
        cpu_operand *operand = &pass->operands[role];
        bool apart = role == CPU_BIAS && direction == CPU_FORWARD && problem->bias_apart;
        if (apart) descs[role] = NULL;
        if (descs[role] != NULL) operand->argument = operands[direction][role].argument;
        operand->written = operands[direction][role].written;
        bool reads_shadow = role == CPU_WEIGHTS && direction != CPU_BACKWARD_WEIGHTS;
        operand->stored =
            reads_shadow && problem->shadow != NULL ? problem->shadow : problem->stored[role];
        if (algorithm->create != NULL && role == CPU_WEIGHTS && operand->stored == NULL)
            operand->stored = planner->preferred_weights;
        bool kept =
            algorithm->create != NULL || (candidate % KEEP_SETS & kept_by((cpu_role)role)) != 0;
        if (kept && operand->stored != NULL) descs[role] = operand->stored;
    }
    if (needs_plain_weights(planner, direction))
        TRY(plain_weights(&descs[CPU_WEIGHTS], planner->device));
    cpu_operation operation = problem->operation;
    operation.direction = direction;
    operation.algorithm = algorithm->kind;
    operation.source = descs[CPU_INPUT];
    operation.weights = descs[CPU_WEIGHTS];
    operation.bias = descs[CPU_BIAS];
    operation.destination = descs[CPU_OUTPUT];
    if (direction != CPU_FORWARD) operation.hint = planner->hint;
    TRY((algorithm->create != NULL ? algorithm->create : cpu_pass_create)(pass, planner->device,
                                                                          &operation));
    /* What is added lies where the output will, in its layout. */
    if (operation.epilogue.adds && pass->operands[CPU_OUTPUT].moved)
        return FAIL(YOKE_ERROR_DEVICE, "this algorithm adds in another layout");
    return YOKE_OK;
}

/* The roles worth keeping: those that would otherwise be reordered, except where the type differs
 * as well, which no primitive accepts. */
static int roles_to_keep(const cpu_pass *pass) {
    int keep = 0;
    for (int role = 0; role < CPU_ROLES; role++) {
        const cpu_operand *operand = &pass->operands[role];
        if (!operand->moved) continue;
        const cpu_desc *preferred = cpu_primitive_desc(&pass->primitive, operand->argument);
        if (preferred->type == operand->stored->type) keep |= kept_by((cpu_role)role);
    }
    return keep;
}

/* Measuring. */

typedef struct weighted_trial {
    const weighted_planner *planner;
    cpu_direction direction;
    int count;
    int candidates[CPU_CONTEST_CANDIDATES];
    cpu_pass passes[CPU_CONTEST_CANDIDATES];
} weighted_trial;

/* Enters one algorithm with every useful set of kept roles. It is no error if oneDNN lacks the
 * algorithm for this shape. */
static yoke_status enter_algorithm(weighted_trial *trial, int algorithm) {
    int useful = 0;
    for (int set = 0; set < KEEP_SETS; set++) {
        if ((set & ~useful) != 0) continue;
        assert(trial->count < CPU_CONTEST_CANDIDATES);
        cpu_pass *pass = &trial->passes[trial->count];
        int candidate = algorithm * KEEP_SETS + set;
        yoke_status status = create_candidate(trial->planner, trial->direction, candidate, pass);
        bool usable = status == YOKE_OK &&
                      (candidate == 0 || strncmp(cpu_pass_implementation(pass), "ref", 3) != 0);
        if (status == YOKE_OK && set == 0) useful = roles_to_keep(pass);
        if (usable)
            trial->candidates[trial->count++] = candidate;
        else
            cpu_pass_destroy(pass);
        if (status != YOKE_OK && status != YOKE_ERROR_DEVICE) return status;
    }
    return YOKE_OK;
}

static yoke_status add_to_record(const weighted_trial *trial, const char *key, int best,
                                 double best_ms) {
    const weighted_planner *planner = trial->planner;
    const cpu_pass *pass = &trial->passes[best];
    int candidate = trial->candidates[best], moves = 0;
    char name[96];
    for (int role = 0; role < CPU_ROLES; role++)
        moves += pass->operands[role].moved;
    snprintf(name, sizeof name, "%s (%s, %d reordered)",
             planner->problem->algorithms[candidate / KEEP_SETS].name,
             cpu_pass_implementation(pass), moves);
    return yoke_algorithms_add(planner->request->algorithms, key, candidate, name, best_ms);
}

/* Where none serves, *candidate is the first, and planning it says why. */
static yoke_status choose_fastest(weighted_trial *trial, const char *key, int *candidate) {
    const weighted_planner *planner = trial->planner;
    int best = -1;
    double best_ms = 0;
    for (int i = 0; planner->problem->algorithms[i].name != NULL; i++)
        TRY(enter_algorithm(trial, i));
    TRY(cpu_pass_fastest(&best, &best_ms, trial->passes, trial->count, planner->device,
                         planner->probe, planner->request->algorithms));
    *candidate = best < 0 ? 0 : trial->candidates[best];
    return best < 0 ? YOKE_OK : add_to_record(trial, key, best, best_ms);
}

static yoke_status measure_algorithms(const weighted_planner *planner, cpu_direction direction,
                                      const char *key, int *candidate) {
    weighted_trial trial = {.planner = planner, .direction = direction};
    TRY(yoke_algorithms_go_on(planner->request->algorithms));
    yoke_status status = choose_fastest(&trial, key, candidate);
    for (int i = 0; i < CPU_CONTEST_CANDIDATES; i++)
        cpu_pass_destroy(&trial.passes[i]);
    return status;
}

/* Planning. */

/* NULL: no algorithm has this candidate. */
static const char *algorithm_name(const void *context, int candidate) {
    const cpu_problem *problem = context;
    int count = 0;
    while (problem->algorithms[count].name != NULL)
        count++;
    return candidate < count * KEEP_SETS ? problem->algorithms[candidate / KEEP_SETS].name : NULL;
}

/* Whether oneDNN computes a depthwise convolution by products, although `candidate`, Yoke's own
 * loops, takes a hundredth of the time. */
static bool beats_products(const weighted_planner *planner, cpu_direction direction,
                           int candidate) {
    cpu_pass first = {0}, own = {0};
    bool products = create_candidate(planner, direction, 0, &first) == YOKE_OK &&
                    strstr(cpu_pass_implementation(&first), "gemm") != NULL;
    bool beats = products && create_candidate(planner, direction, candidate, &own) == YOKE_OK;
    cpu_pass_destroy(&first);
    cpu_pass_destroy(&own);
    return beats;
}

/* Without measuring: the first algorithm. */
static int fixed_candidate(const weighted_planner *planner, cpu_direction direction) {
    const cpu_algorithm *algorithms = planner->problem->algorithms;
    for (int i = 0; algorithms[i].name != NULL; i++)
        if (algorithms[i].create == cpu_pass_create_depthwise &&
            beats_products(planner, direction, i * KEEP_SETS))
            return i * KEEP_SETS;
    return 0;
}

static yoke_status choose_algorithm(const weighted_planner *planner, cpu_direction direction,
                                    int *candidate) {
    const yoke_plan_request *request = planner->request;
    if (request->algorithm == YOKE_ALGORITHM_DIRECT || request->algorithms == NULL) {
        *candidate = fixed_candidate(planner, direction);
        return YOKE_OK;
    }
    char key[YOKE_CONVOLUTION_KEY_BYTES + 96];
    int length = snprintf(key, sizeof key, "%s %s %d threads %s", planner->problem->key,
                          yoke_precision_name(request->precision), planner->device->base.threads,
                          direction_names[direction]);
    /* One row and many have different fastest algorithms. */
    if (request->inference)
        snprintf(key + length, sizeof key - (size_t)length, " inference of %d rows",
                 request->most_rows > 0 ? request->most_rows : request->rows);
    const yoke_algorithm_names names = {.name_of = algorithm_name, .context = planner->problem};
    TRY(yoke_algorithms_find(request->algorithms, key, &names, candidate));
    if (*candidate >= 0) return YOKE_OK;
    if (!yoke_algorithms_late(request->algorithms))
        return measure_algorithms(planner, direction, key, candidate);
    *candidate = fixed_candidate(planner, direction);
    return yoke_algorithms_assume(request->algorithms, key, *candidate,
                                  algorithm_name(planner->problem, *candidate));
}

static yoke_status plan_direction(const weighted_planner *planner, cpu_direction direction,
                                  cpu_weighted *plan) {
    int candidate = 0;
    TRY(choose_algorithm(planner, direction, &candidate));
    cpu_pass *pass = &plan->passes[direction];
    yoke_status status = create_candidate(planner, direction, candidate, pass);
    /* The algorithm was measured for another number of rows and does not exist for this one. */
    if (status == YOKE_ERROR_DEVICE && candidate != 0) {
        cpu_pass_destroy(pass);
        status = create_candidate(planner, direction, 0, pass);
    }
    TRY(status);
    plan->base.algorithms[direction] = cpu_pass_algorithm(pass);
    if (plan->base.needs.scratch_bytes < pass->scratch_bytes)
        plan->base.needs.scratch_bytes = pass->scratch_bytes;
    return YOKE_OK;
}

/* For few rows the gradient of the weight is not planned: factors.h computes it. */
static yoke_status take_factors(const weighted_planner *planner, cpu_weighted *plan) {
    cpu_problem *problem = planner->problem;
    const cpu_desc *plain = NULL, *input = problem->free[CPU_INPUT];
    const cpu_desc *weights = problem->stored[CPU_WEIGHTS];
    if (weights == NULL) weights = planner->preferred_weights;
    TRY_DNNL(
        cpu_desc_by_tag(&plain, &planner->device->descs, 2, input->dims, input->type, dnnl_ab));
    if (problem->stored[CPU_INPUT] != plain) return YOKE_OK;
    TRY(cpu_factors_create(&plan->base.factors, planner->device, weights, (size_t)input->dims[0],
                           input->type == dnnl_bf16));
    if (plan->base.factors == NULL) return YOKE_OK;
    problem->stored[CPU_WEIGHTS] = weights;
    plan->base.algorithms[CPU_BACKWARD_WEIGHTS] = "factors";
    return YOKE_OK;
}

/* The direct forward pass chooses the layout of the output and, in inference, of the weights. Its
 * description is the hint. */
static yoke_status decide_layouts(weighted_planner *planner, cpu_weighted *plan, cpu_pass *first) {
    cpu_problem *problem = planner->problem;
    TRY(create_candidate(planner, CPU_FORWARD, 0, first));
    planner->hint = first->primitive.description;
    planner->preferred_weights = first->operands[CPU_WEIGHTS].stored;
    if (planner->preferred_weights->type != dnnl_f32) /* master weights are float32 */
        TRY(cpu_query_forward(&planner->preferred_weights, planner->device, problem, dnnl_f32,
                              DNNL_ARG_WEIGHTS));
    if (problem->stored[CPU_OUTPUT] == NULL)
        problem->stored[CPU_OUTPUT] = first->operands[CPU_OUTPUT].stored;
    bool trains = planner->request->training && !planner->request->frozen;
    if (trains && problem->by_factors) TRY(take_factors(planner, plan));
    if (trains && plan->base.factors == NULL) {
        TRY(plan_direction(planner, CPU_BACKWARD_WEIGHTS, plan));
        problem->stored[CPU_WEIGHTS] =
            plan->passes[CPU_BACKWARD_WEIGHTS].operands[CPU_WEIGHTS].stored;
        /* Plans to come have this layout: they must all have factors, or none. */
        if (problem->by_factors) TRY(take_factors(planner, plan));
        if (plan->base.factors != NULL) {
            cpu_pass_destroy(&plan->passes[CPU_BACKWARD_WEIGHTS]);
            plan->passes[CPU_BACKWARD_WEIGHTS] = (cpu_pass){0};
        }
    }
    if (problem->stored[CPU_WEIGHTS] == NULL)
        problem->stored[CPU_WEIGHTS] = planner->preferred_weights;
    return YOKE_OK;
}

/* Running. */

static cpu_weighted *weighted_of(yoke_plan *plan) {
    return (cpu_weighted *)plan;
}

static size_t kept_bytes(const cpu_weighted *self) {
    return self->folded_bytes + self->bias_bytes + self->passes[CPU_FORWARD].kept_bytes;
}

static cpu_folded folded_of(const cpu_weighted *self, char *kept) {
    if (self->fold.channels == 0) return (cpu_folded){NULL, NULL};
    return (cpu_folded){(float *)kept, (float *)(kept + self->folded_bytes)};
}

static void *weights_of(const cpu_weighted *self, const yoke_plan_binding *binding) {
    return self->base.needs.reads_shadow[0] ? (void *)binding->shadows[0] : binding->parameters[0];
}

static yoke_status weighted_pack(const yoke_plan *plan, const yoke_plan_binding *binding,
                                 void *packed) {
    const cpu_weighted *self = (const cpu_weighted *)plan;
    const cpu_folded folded = folded_of(self, packed);
    bool folds = self->fold.channels > 0;
    if (folds) TRY(cpu_fold_norm(&self->fold, cpu_of(plan->device), binding, &folded));
    cpu_pass_prepare(&self->passes[CPU_FORWARD], folds ? folded.weights : weights_of(self, binding),
                     (char *)packed + self->folded_bytes + self->bias_bytes);
    return YOKE_OK;
}

/* What forward keeps of the weights and running statistics, where these have changed. */
static yoke_status renew_kept(cpu_weighted *self, uint64_t version) {
    if (self->kept == NULL || self->lent) return YOKE_OK;
    if (version > 0 && self->kept_version == version) return YOKE_OK;
    self->kept_version = 0;
    TRY(weighted_pack(&self->base, &self->base.binding, self->kept));
    self->kept_version = version;
    return YOKE_OK;
}

static yoke_status weighted_bind(yoke_plan *plan, const yoke_plan_binding *binding) {
    cpu_weighted *self = weighted_of(plan);
    if (binding->packed != NULL) {
        if (!self->lent) yoke_device_free(plan->device, self->kept);
        self->kept = binding->packed;
        self->lent = true;
    }
    if (self->kept == NULL && kept_bytes(self) > 0)
        TRY(yoke_device_allocate(plan->device, kept_bytes(self), plan->operation.name,
                                 (void **)&self->kept));
    self->kept_version = 0;
    const cpu_folded folded = folded_of(self, self->kept);
    bool folds = self->fold.channels > 0;
    void *weights = weights_of(self, binding);
    self->weight_gradient = binding->parameter_gradients[0];
    self->bias_gradient = binding->parameter_gradients[1];
    self->input_gradient = binding->input_gradients[0];
    void *const addresses[CPU_DIRECTIONS][CPU_ROLES] = {
        [CPU_FORWARD] = {binding->inputs[0], folds ? folded.weights : weights,
                         folds ? folded.bias : binding->parameters[1], binding->output},
        [CPU_BACKWARD_DATA] = {binding->input_gradients[0], weights, NULL,
                               binding->output_gradient},
        [CPU_BACKWARD_WEIGHTS] = {binding->inputs[0], binding->parameter_gradients[0],
                                  binding->parameter_gradients[1], binding->output_gradient},
    };
    for (int i = 0; i < CPU_DIRECTIONS; i++) {
        if (cpu_pass_is_empty(&self->passes[i])) continue;
        void *kept = i == CPU_FORWARD && self->kept != NULL
                         ? self->kept + self->folded_bytes + self->bias_bytes
                         : NULL;
        TRY(cpu_pass_bind(&self->passes[i], cpu_of(plan->device), addresses[i], binding->scratch,
                          kept));
    }
    return YOKE_OK;
}

static yoke_status weighted_forward(yoke_plan *plan, const yoke_plan_step *step) {
    cpu_weighted *self = weighted_of(plan);
    const yoke_plan_binding *binding = &plan->binding;
    TRY(renew_kept(self, step->weights_version));
    if (self->adds && binding->added != binding->output)
        memcpy(binding->output, binding->added, plan->needs.output.bytes);
    TRY(cpu_pass_run(&self->passes[CPU_FORWARD], cpu_of(plan->device)));
    if (self->bias_apart)
        cpu_add_bias(cpu_of(plan->device), &self->output, plan->rows, plan->binding.output,
                     self->half, plan->binding.parameters[1]);
    return YOKE_OK;
}

static void keep_factors(cpu_weighted *self) {
    const yoke_plan_binding *binding = &self->base.binding;
    cpu_factors_keep(self->base.factors, binding->inputs[0], binding->output_gradient);
    if (self->bias_gradient != NULL)
        cpu_factors_sum_bias(self->base.factors, binding->output_gradient, self->bias_gradient);
}

static yoke_status weighted_part(yoke_plan *plan, yoke_direction direction) {
    cpu_weighted *self = weighted_of(plan);
    cpu_device *device = cpu_of(plan->device);
    if (direction == YOKE_BACKWARD_WEIGHTS && plan->factors != NULL) {
        keep_factors(self);
        cpu_factors_multiply(plan->factors, device, self->weight_gradient);
        return YOKE_OK;
    }
    if (cpu_pass_is_empty(&self->passes[direction])) return YOKE_OK;
    if (direction == YOKE_BACKWARD_WEIGHTS)
        cpu_clear(device, self->weight_gradient, self->cleared[CPU_WEIGHTS]);
    else
        cpu_clear(device, self->input_gradient, self->cleared[CPU_INPUT]);
    return cpu_pass_run(&self->passes[direction], device);
}

static yoke_status weighted_backward(yoke_plan *plan, const yoke_plan_step *step) {
    if (step->factors_only && plan->factors != NULL)
        keep_factors(weighted_of(plan));
    else
        TRY(weighted_part(plan, YOKE_BACKWARD_WEIGHTS));
    return weighted_part(plan, YOKE_BACKWARD_DATA);
}

static void weighted_destroy(yoke_plan *plan) {
    if (!weighted_of(plan)->lent) yoke_device_free(plan->device, weighted_of(plan)->kept);
    cpu_factors_destroy(plan->factors, cpu_of(plan->device));
    for (int i = 0; i < CPU_DIRECTIONS; i++)
        cpu_pass_destroy(&weighted_of(plan)->passes[i]);
    yoke_free(plan);
}

yoke_status cpu_query_forward(const cpu_desc **desc, cpu_device *device, const cpu_problem *problem,
                              dnnl_data_type_t type, int argument) {
    cpu_operation operation = problem->operation;
    operation.algorithm = problem->algorithms[0].kind;
    operation.bias = problem->free[CPU_BIAS];
    TRY(free_desc(&operation.source, device, problem->free[CPU_INPUT], type));
    TRY(free_desc(&operation.weights, device, problem->free[CPU_WEIGHTS], type));
    TRY(free_desc(&operation.destination, device, problem->free[CPU_OUTPUT], type));
    cpu_primitive primitive = {0};
    yoke_status status = cpu_primitive_create(&primitive, device, &operation);
    if (status == YOKE_OK) *desc = cpu_primitive_desc(&primitive, argument);
    cpu_primitive_destroy(&primitive);
    return status;
}

yoke_status cpu_bias_desc(cpu_problem *problem, cpu_device *device, int channels) {
    const dnnl_dims_t shape = {channels};
    TRY_DNNL(
        cpu_desc_by_tag(&problem->stored[CPU_BIAS], &device->descs, 1, shape, dnnl_f32, dnnl_a));
    problem->free[CPU_BIAS] = problem->stored[CPU_BIAS];
    return YOKE_OK;
}

static void keep_fold(cpu_weighted *self, const cpu_problem *problem) {
    self->base.needs.computes_next = problem->computes_next;
    self->adds = problem->operation.epilogue.adds;
    self->fold = problem->fold;
    if (self->fold.channels == 0) return;
    self->fold.weights = problem->stored[CPU_WEIGHTS];
    self->folded_bytes = cpu_align(cpu_desc_span(self->fold.weights), CPU_LINE);
    self->bias_bytes = cpu_align(self->fold.channels * sizeof(float), CPU_LINE);
}

/* What else decides what is kept of given weights: their layout is the same for all plans. */
static uint64_t form_of(const cpu_weighted *self) {
    const cpu_own_kernel *own = self->passes[CPU_FORWARD].own;
    bool keeps = self->passes[CPU_FORWARD].kept_bytes > 0;
    uint64_t form =
        keeps && own->calls->kept_form != NULL ? (uint64_t)own->calls->kept_form(own) : 0;
    const char *name = keeps ? own->calls->name : "";
    return XXH3_64bits_withSeed(name, strlen(name), 2 * form + (self->fold.channels > 0));
}

yoke_status cpu_weighted_create(yoke_plan **plan, cpu_device *device,
                                const yoke_plan_request *request, cpu_problem *problem) {
    static const yoke_plan_calls calls = {weighted_bind,
                                          weighted_forward,
                                          weighted_backward,
                                          weighted_destroy,
                                          .backward_part = weighted_part,
                                          .pack = weighted_pack};
    TRY(yoke_plan_allocate(plan, sizeof(cpu_weighted), &device->base, request, &calls));
    cpu_weighted *self = weighted_of(*plan);
    memcpy(self->cleared, problem->cleared, sizeof self->cleared);
    cpu_probe probe = {0};
    weighted_planner planner = {
        .device = device, .request = request, .problem = problem, .probe = &probe};
    cpu_pass first = {0};
    yoke_status status = decide_layouts(&planner, self, &first);
    if (status == YOKE_OK) status = plan_direction(&planner, CPU_FORWARD, self);
    if (status == YOKE_OK && request->training && request->input_gradient)
        status = plan_direction(&planner, CPU_BACKWARD_DATA, self);
    cpu_pass_destroy(&first);
    cpu_probe_free(&probe, device);
    TRY(status);
    yoke_plan_needs *needs = &self->base.needs;
    cpu_layout_store(&needs->output, problem->stored[CPU_OUTPUT]);
    cpu_layout_store(&needs->parameters[0], problem->stored[CPU_WEIGHTS]);
    needs->reads_shadow[0] = problem->shadow != NULL;
    self->bias_apart = problem->bias_apart && problem->free[CPU_BIAS] != NULL;
    self->half = problem->stored[CPU_OUTPUT]->type == dnnl_bf16;
    if (self->bias_apart)
        TRY(cpu_geometry_read(&self->output, problem->stored[CPU_OUTPUT], "a bias"));
    if (request->operation->bias)
        cpu_layout_store(&needs->parameters[1], problem->stored[CPU_BIAS]);
    keep_fold(self, problem);
    needs->packed_bytes = kept_bytes(self);
    needs->packed_form = form_of(self);
    needs->backward_reads[0] = request->training && !request->frozen;
    return YOKE_OK;
}
