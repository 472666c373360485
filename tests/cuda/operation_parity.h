/* SPDX-License-Identifier: Apache-2.0 */
/* Runs one operation on two devices, with the same plan, values and step: on the CPU in float32
 * and on the device under test in any precision. Uses device.h alone. */
#ifndef OPERATION_PARITY_H
#define OPERATION_PARITY_H

#include "parity_case.h"

/* One side: a plan and its memory on one device. */

#define PARITY_GUARD ((size_t)256) /* bytes before and behind every block */
#define PARITY_BLOCKS 24

typedef struct parity_side {
    const parity_case *c;
    yoke_device *device;
    yoke_plan *plan;
    const yoke_plan_needs *needs;
    yoke_recording *recording;
    yoke_plan_binding binding;
    yoke_layout inputs[YOKE_PLAN_INPUTS];
    bool in_place;
    struct {
        char *base;
        size_t bytes;
    } blocks[PARITY_BLOCKS];
    int block_count;
    /* results, plain */
    float *output, *input_gradients[YOKE_PLAN_INPUTS], *parameter_gradients[YOKE_PLAN_PARAMETERS];
    float *buffers[2];
    yoke_loss_scalars scalars;
} parity_side;

static inline yoke_layout parity_plain(const parity_side *side, const parity_shape *shape) {
    yoke_layout layout;
    PARITY_OK(yoke_layout_plain(side->device, shape->dims, shape->rank, &layout));
    return layout;
}

/* NaN in both precisions; as an integer -1. */
static inline void parity_poison(parity_side *side, void *memory, size_t bytes) {
    if (memory == NULL || bytes == 0) return;
    char *pattern = test_malloc(bytes);
    memset(pattern, 0xff, bytes);
    PARITY_OK(yoke_device_upload(side->device, YOKE_STREAM_COMPUTE, memory, pattern, bytes));
    test_free(pattern);
}

/* Exactly `bytes` between two guards; NULL for nothing. */
static inline void *parity_memory(parity_side *side, size_t bytes) {
    if (bytes == 0) return NULL;
    void *base = NULL;
    PARITY_OK(yoke_device_allocate(side->device, bytes + 2 * PARITY_GUARD, "a test", &base));
    assert_true(side->block_count < PARITY_BLOCKS);
    side->blocks[side->block_count].base = base;
    side->blocks[side->block_count++].bytes = bytes;
    return (char *)base + PARITY_GUARD;
}

/* The layout in which a layer before this one would hand over its output. */
static inline yoke_layout parity_produced(const parity_side *side, yoke_dims dims) {
    yoke_operation op = {.kind = dims.sequence ? YOKE_OP_LINEAR : YOKE_OP_CONV2D,
                         .name = "producer",
                         .input = dims,
                         .output = dims,
                         .kernel = 1,
                         .stride = 1,
                         .groups = 1,
                         .dilation = 1};
    parity_shape shape = parity_value_shape(side->c->rows, dims);
    yoke_plan_request request = {.operation = &op,
                                 .rows = side->c->rows,
                                 .precision = side->c->precision,
                                 .algorithm = YOKE_ALGORITHM_DIRECT,
                                 .inputs = {parity_plain(side, &shape)}};
    yoke_plan *plan = NULL;
    PARITY_OK(yoke_plan_create(&plan, side->device, &request));
    yoke_layout layout = yoke_plan_describe(plan)->output;
    yoke_plan_destroy(plan);
    return layout;
}

static inline void parity_plan(parity_side *side, yoke_algorithms *algorithms) {
    const parity_case *c = side->c;
    yoke_plan_request request = {.operation = &c->operation,
                                 .rows = c->rows,
                                 .training = !c->evaluation,
                                 .precision = c->precision,
                                 .algorithm = c->algorithm,
                                 .input_gradient = !c->evaluation && !c->first_layer,
                                 .input_shared = c->adds,
                                 .algorithms = algorithms};
    for (int i = 0; i < parity_inputs(c); i++) {
        parity_shape shape = parity_value_shape(c->rows, parity_input_dims(c, i));
        bool plain = c->plain || parity_is_loss(c);
        side->inputs[i] =
            plain ? parity_plain(side, &shape) : parity_produced(side, parity_input_dims(c, i));
        request.inputs[i] = side->inputs[i];
    }
    PARITY_OK(yoke_plan_create(&side->plan, side->device, &request));
    side->needs = yoke_plan_describe(side->plan);
}

static inline void parity_bind_gradients(parity_side *side) {
    yoke_plan_binding *binding = &side->binding;
    const yoke_plan_needs *needs = side->needs;
    binding->output_gradient = parity_memory(side, needs->output.bytes);
    for (int i = 0; i < YOKE_PLAN_PARAMETERS; i++)
        binding->parameter_gradients[i] = parity_memory(side, needs->parameters[i].bytes);
    if (side->c->first_layer) return;
    bool in_place = side->c->in_place && needs->backward_in_place;
    bool joined = side->c->in_place && needs->joined_in_place;
    bool over_input = side->c->in_place && needs->backward_over_input;
    binding->input_gradients[0] = in_place     ? binding->output_gradient
                                  : over_input ? binding->inputs[0]
                                  : joined     ? binding->output
                                               : parity_memory(side, side->inputs[0].bytes);
    binding->adds_input_gradient = side->c->adds && needs->adds_input_gradient;
    if (parity_inputs(side->c) > 1 && !needs->shared_input_gradient)
        binding->input_gradients[1] =
            joined ? binding->output_gradient : parity_memory(side, side->inputs[1].bytes);
}

static inline void parity_bind_loss(parity_side *side) {
    size_t rows = (size_t)side->c->rows;
    side->binding.labels = parity_memory(side, rows * sizeof(int32_t));
    side->binding.mixes = parity_memory(side, rows * sizeof(yoke_label_mix));
    side->binding.targets = parity_memory(side, parity_input_count(side->c, 0) * sizeof(float));
    side->binding.scalars = parity_memory(side, sizeof *side->binding.scalars);
    PARITY_OK(yoke_device_allocate_host(side->device, sizeof *side->binding.on_host, "a test",
                                        (void **)&side->binding.on_host));
}

static inline void parity_bind(parity_side *side) {
    const parity_case *c = side->c;
    const yoke_plan_needs *needs = side->needs;
    yoke_plan_binding *binding = &side->binding;
    side->in_place =
        c->in_place && needs->forward_in_place && (c->evaluation || !needs->backward_reads[0]);
    for (int i = 0; i < parity_inputs(c); i++)
        binding->inputs[i] = parity_memory(side, side->inputs[i].bytes);
    binding->output =
        side->in_place ? binding->inputs[0] : parity_memory(side, needs->output.bytes);
    for (int i = 0; i < YOKE_PLAN_PARAMETERS; i++) {
        size_t bytes = needs->parameters[i].bytes;
        binding->parameters[i] = parity_memory(side, bytes);
        if (needs->reads_shadow[i]) binding->shadows[i] = parity_memory(side, bytes / 2);
        if (c->operation.kind == YOKE_OP_BATCH_NORM)
            binding->buffers[i] = parity_memory(side, bytes);
    }
    if (!c->evaluation) parity_bind_gradients(side);
    if (parity_is_loss(c)) parity_bind_loss(side);
    binding->saved = parity_memory(side, needs->saved_bytes);
    binding->scratch = parity_memory(side, needs->scratch_bytes);
    PARITY_OK(yoke_plan_bind(side->plan, binding));
}

static inline void parity_record(parity_side *side) {
    const yoke_plan_step unread = {0};
    PARITY_OK(yoke_recording_begin(side->device));
    yoke_status status = yoke_plan_forward(side->plan, &unread);
    if (status == YOKE_OK && !side->c->evaluation) status = yoke_plan_backward(side->plan, &unread);
    PARITY_OK(yoke_recording_end(side->device, status, &side->recording));
}

static inline void parity_open(parity_side *side, const parity_case *c, yoke_device *device,
                               yoke_algorithms *algorithms) {
    *side = (parity_side){.c = c, .device = device};
    parity_plan(side, algorithms);
    parity_bind(side);
    if (c->recorded) parity_record(side);
}

static inline void parity_results_free(parity_side *side) {
    float **results[] = {&side->output,
                         &side->input_gradients[0],
                         &side->input_gradients[1],
                         &side->parameter_gradients[0],
                         &side->parameter_gradients[1],
                         &side->buffers[0],
                         &side->buffers[1]};
    for (size_t i = 0; i < sizeof results / sizeof results[0]; i++) {
        test_free(*results[i]);
        *results[i] = NULL;
    }
}

static inline void parity_close(parity_side *side) {
    yoke_device_free_host(side->device, side->binding.on_host);
    parity_results_free(side);
    yoke_recording_destroy(side->recording);
    yoke_plan_destroy(side->plan);
    for (int i = 0; i < side->block_count; i++)
        yoke_device_free(side->device, side->blocks[i].base);
}

/* Running. */

static inline void parity_put(parity_side *side, const yoke_layout *layout, void *to,
                              const parity_shape *shape, const float *from) {
    yoke_layout plain = parity_plain(side, shape);
    PARITY_OK(yoke_layout_convert(side->device, layout, to, &plain, from));
}

static inline float *parity_take(parity_side *side, const parity_shape *shape,
                                 const yoke_layout *layout, const void *from) {
    yoke_layout plain = parity_plain(side, shape);
    float *to = test_malloc(plain.bytes);
    memset(to, 0xff, plain.bytes);
    PARITY_OK(yoke_layout_convert(side->device, &plain, to, layout, from));
    return to;
}

static inline void parity_upload(parity_side *side, const void *to, const void *from,
                                 size_t bytes) {
    if (to == NULL) return;
    PARITY_OK(
        yoke_device_upload(side->device, YOKE_STREAM_COMPUTE, (void *)(uintptr_t)to, from, bytes));
}

static inline void parity_put_parameters(parity_side *side, const parity_values *values) {
    const yoke_plan_binding *binding = &side->binding;
    for (int i = 0; i < YOKE_PLAN_PARAMETERS; i++) {
        const yoke_layout *layout = &side->needs->parameters[i];
        parity_shape shape = parity_parameter_shape(&side->c->operation, i);
        if (layout->bytes == 0) continue;
        parity_put(side, layout, binding->parameters[i], &shape, values->parameters[i]);
        if (side->needs->reads_shadow[i])
            PARITY_OK(yoke_device_shadow(side->device, side->c->precision,
                                         (uint16_t *)(uintptr_t)binding->shadows[i],
                                         binding->parameters[i], layout->bytes / sizeof(float)));
        if (binding->buffers[i] != NULL)
            parity_put(side, layout, binding->buffers[i], &shape, values->buffers[i]);
    }
}

/* NaN everywhere first, guards too: what is not written, or not meant to be read, shows. */
static inline void parity_fill(parity_side *side, const parity_values *values) {
    const yoke_plan_binding *binding = &side->binding;
    for (int i = 0; i < side->block_count; i++)
        parity_poison(side, side->blocks[i].base, side->blocks[i].bytes + 2 * PARITY_GUARD);
    parity_shape output = parity_value_shape(side->c->rows, side->c->operation.output);
    for (int i = 0; i < parity_inputs(side->c); i++) {
        parity_shape input = parity_value_shape(side->c->rows, parity_input_dims(side->c, i));
        parity_put(side, &side->inputs[i], binding->inputs[i], &input, values->inputs[i]);
    }
    if (binding->adds_input_gradient) {
        parity_shape input = parity_value_shape(side->c->rows, parity_input_dims(side->c, 0));
        parity_put(side, &side->inputs[0], binding->input_gradients[0], &input, values->inputs[1]);
    }
    if (binding->output_gradient != NULL)
        parity_put(side, &side->needs->output, binding->output_gradient, &output,
                   values->output_gradient);
    parity_put_parameters(side, values);
    size_t rows = (size_t)side->c->rows;
    parity_upload(side, binding->labels, values->labels, rows * sizeof *values->labels);
    parity_upload(side, binding->mixes, values->mixes, rows * sizeof *values->mixes);
    parity_upload(side, binding->targets, values->targets,
                  parity_input_count(side->c, 0) * sizeof *values->targets);
}

static inline void parity_take_output(parity_side *side) {
    if (side->needs->output.bytes == 0) return;
    PARITY_OK(yoke_device_synchronize(side->device));
    parity_shape shape = parity_value_shape(side->c->rows, side->c->operation.output);
    side->output = parity_take(side, &shape, &side->needs->output, side->binding.output);
}

/* Between the passes only what the plan asked to keep is kept. */
static inline void parity_forget(parity_side *side) {
    const yoke_plan_needs *needs = side->needs;
    bool output = needs->backward_reads_output;
    bool input = needs->backward_reads[0] || (side->in_place && output);
    parity_poison(side, side->binding.scratch, needs->scratch_bytes);
    for (int i = input; i < parity_inputs(side->c) && !(i == 1 && needs->backward_reads[1]); i++)
        parity_poison(side, side->binding.inputs[i], side->inputs[i].bytes);
    if (!output && !side->in_place) parity_poison(side, side->binding.output, needs->output.bytes);
}

static inline void parity_take_loss(parity_side *side) {
    const yoke_loss_scalars *on_host = side->binding.on_host;
    bool mapped = yoke_device_variants(side->device) & YOKE_VARIANT_MAPPED;
    PARITY_OK(yoke_device_download(side->device, YOKE_STREAM_COMPUTE, &side->scalars,
                                   side->binding.scalars, sizeof side->scalars));
    assert_true(on_host->loss_sum == (mapped ? side->scalars.loss_sum : 0));
    assert_int_equal(on_host->correct, mapped ? side->scalars.correct : 0);
}

static inline void parity_take_results(parity_side *side) {
    const yoke_plan_binding *binding = &side->binding;
    PARITY_OK(yoke_device_synchronize(side->device));
    for (int i = 0; i < YOKE_PLAN_INPUTS; i++) {
        parity_shape input = parity_value_shape(side->c->rows, parity_input_dims(side->c, i));
        if (binding->input_gradients[i] != NULL)
            side->input_gradients[i] =
                parity_take(side, &input, &side->inputs[i], binding->input_gradients[i]);
    }
    for (int i = 0; i < YOKE_PLAN_PARAMETERS; i++) {
        parity_shape shape = parity_parameter_shape(&side->c->operation, i);
        const yoke_layout *layout = &side->needs->parameters[i];
        if (binding->parameter_gradients[i] != NULL)
            side->parameter_gradients[i] =
                parity_take(side, &shape, layout, binding->parameter_gradients[i]);
        if (binding->buffers[i] != NULL)
            side->buffers[i] = parity_take(side, &shape, layout, binding->buffers[i]);
    }
    if (parity_is_loss(side->c)) parity_take_loss(side);
}

static inline void parity_check_guards(parity_side *side) {
    char expected[PARITY_GUARD];
    memset(expected, 0xff, sizeof expected);
    for (int i = 0; i < side->block_count; i++) {
        size_t behind = PARITY_GUARD + side->blocks[i].bytes;
        char *copy = test_malloc(behind + PARITY_GUARD);
        PARITY_OK(yoke_device_download(side->device, YOKE_STREAM_COMPUTE, copy,
                                       side->blocks[i].base, behind + PARITY_GUARD));
        bool front = memcmp(copy, expected, PARITY_GUARD) == 0;
        bool back = memcmp(copy + behind, expected, PARITY_GUARD) == 0;
        test_free(copy);
        if (front && back) continue;
        char text[256];
        parity_describe(side->c, text, sizeof text);
        fail_msg("%s: written %s block %d of %zu bytes", text, front ? "behind" : "before", i,
                 side->blocks[i].bytes);
    }
}

static inline void parity_run(parity_side *side, const parity_values *values,
                              const yoke_plan_step *step) {
    parity_results_free(side);
    parity_fill(side, values);
    PARITY_OK(yoke_device_begin_step(side->device, step));
    if (side->recording != NULL) {
        PARITY_OK(yoke_recording_run(side->recording));
        parity_take_output(side);
    } else {
        PARITY_OK(yoke_plan_forward(side->plan, step));
        parity_take_output(side);
        if (!side->c->evaluation) {
            parity_forget(side);
            PARITY_OK(yoke_plan_backward(side->plan, step));
        }
    }
    parity_take_results(side);
    bool added = side->binding.adds_input_gradient;
    for (size_t i = 0; side->c->adds && !added && i < parity_input_count(side->c, 0); i++)
        side->input_gradients[0][i] += values->inputs[1][i];
    parity_check_guards(side);
}

/* Comparing. */

/* Of the largest magnitude. Float32: sums in another order. TF32: operands are rounded to 11 bits.
 * bfloat16 has 8 bits, so a rounding is off by at most 2^-9 of a value: a pass rounds its sum, then
 * the sum with the bias, then perhaps a gradient that is added, 3 * 2^-9 = 0.006; the float32 sums
 * of exact products need no more than the rest. A tap or channel that is left out costs a tenth. */
static inline double parity_tolerance(yoke_precision precision) {
    static const double tolerances[] = {
        [YOKE_FLOAT32] = 1e-5, [YOKE_TF32] = 1e-3, [YOKE_BFLOAT16] = 1e-2, [YOKE_FLOAT16] = 2e-3};
    return tolerances[precision];
}

/* The largest difference over the largest expected magnitude; values are of the order of 1, so
 * below a tenth everything is one magnitude. Fails where one is NaN. */
static inline void parity_compare(const parity_case *c, const char *what, const float *got,
                                  const float *wanted, size_t count, double tolerance) {
    double error = 0, magnitude = 0.1;
    size_t worst = 0;
    for (size_t i = 0; i < count; i++) {
        double difference = fabs((double)got[i] - (double)wanted[i]);
        if (isnan(difference)) difference = INFINITY;
        if (difference > error) worst = i;
        error = fmax(error, difference);
        magnitude = fmax(magnitude, fabs((double)wanted[i]));
    }
    if (error <= tolerance * magnitude) return;
    char text[256];
    parity_describe(c, text, sizeof text);
    fail_msg("%s: %s: element %zu of %zu is %.9g, on the CPU %.9g; error %.2e, allowed %.2e", text,
             what, worst, count, (double)got[worst], (double)wanted[worst], error / magnitude,
             tolerance);
}

/* Gradients of both inputs may lie in one place. */
static inline const float *parity_input_gradient(const parity_side *side, int index) {
    bool shared = index == 1 && side->needs->shared_input_gradient;
    return side->input_gradients[shared ? 0 : index];
}

/* Small values kept pass for dropped ones within a tolerance: that they are kept is compared too.
 */
static inline void parity_compare_masks(const parity_side *side, const parity_side *cpu) {
    for (size_t i = 0; i < parity_output_count(side->c); i++)
        if ((side->output[i] == 0) != (cpu->output[i] == 0))
            fail_msg("dropout: element %zu is %g, on the CPU %g", i, (double)side->output[i],
                     (double)cpu->output[i]);
}

static inline void parity_compare_sides(const parity_side *side, const parity_side *cpu,
                                        double tolerance) {
    static const char *const names[][3] = {
        {"gradient of input 0", "gradient of parameter 0", "running mean"},
        {"gradient of input 1", "gradient of parameter 1", "running variance"}};
    const parity_case *c = side->c;
    if (side->output != NULL)
        parity_compare(c, "output", side->output, cpu->output, parity_output_count(c), tolerance);
    if (c->operation.kind == YOKE_OP_DROPOUT) parity_compare_masks(side, cpu);
    for (int i = 0; i < parity_inputs(c); i++)
        if (side->input_gradients[0] != NULL)
            parity_compare(c, names[i][0], parity_input_gradient(side, i),
                           parity_input_gradient(cpu, i), parity_input_count(c, i), tolerance);
    for (int i = 0; i < YOKE_PLAN_PARAMETERS; i++) {
        parity_shape shape = parity_parameter_shape(&c->operation, i);
        size_t count = parity_count(&shape);
        if (side->parameter_gradients[i] != NULL)
            parity_compare(c, names[i][1], side->parameter_gradients[i],
                           cpu->parameter_gradients[i], count, tolerance);
        if (side->buffers[i] != NULL)
            parity_compare(c, names[i][2], side->buffers[i], cpu->buffers[i], count, 1e-5);
    }
    if (!parity_is_loss(c)) return;
    double sum = cpu->scalars.loss_sum;
    assert_true(fabs(side->scalars.loss_sum - sum) <= 1e-6 * fabs(sum));
    assert_int_equal(side->scalars.correct, cpu->scalars.correct);
}

/* The two devices. */

typedef struct parity_rig {
    yoke_devices *cpu, *devices;
    yoke_algorithms *algorithms;
} parity_rig;

/* Opens `list` beside a CPU device of one thread. */
static inline void parity_rig_open(parity_rig *rig, const char *list) {
    *rig = (parity_rig){0};
    yoke_devices_options options = {
        .struct_size = sizeof options, .list = "1xcpu", .threads = 1, .unbound = true};
    PARITY_OK(yoke_devices_open(&rig->cpu, &options));
    PARITY_OK(yoke_algorithms_create(&rig->algorithms));
    options.list = list;
    PARITY_OK(yoke_devices_open(&rig->devices, &options));
}

static inline void parity_rig_close(parity_rig *rig) {
    yoke_algorithms_destroy(rig->algorithms);
    yoke_devices_close(rig->devices);
    yoke_devices_close(rig->cpu);
}

/* Around a group of tests: their state is a rig of `list`, and in most groups of one GPU. */
static inline int parity_group_open(void **state, const char *list) {
    static parity_rig rig;
    parity_rig_open(&rig, list);
    *state = &rig;
    return 0;
}

static inline int parity_group_open_gpu(void **state) {
    return parity_group_open(state, "cuda:0");
}

static inline int parity_group_close(void **state) {
    parity_rig_close(*state);
    return 0;
}

/* The same case in float32 over plain inputs on the CPU. */
static inline void parity_run_cpu(const parity_rig *rig, const parity_case *c, parity_case *plain,
                                  const parity_values *values, const yoke_plan_step *step,
                                  parity_side *side) {
    yoke_device_scope scope;
    yoke_device *device = yoke_devices_at(rig->cpu, 0);
    *plain = *c;
    plain->precision = YOKE_FLOAT32;
    plain->algorithm = YOKE_ALGORITHM_DIRECT;
    plain->plain = true;
    plain->in_place = plain->recorded = false;
    PARITY_OK(yoke_device_enter(device, false, &scope));
    parity_open(side, plain, device, NULL);
    parity_run(side, values, step);
    yoke_device_leave(device, &scope);
}

/* Runs one case on both sides, once for each of `step_count` steps with the same plan. */
static inline void parity_check_steps(const parity_rig *rig, const parity_case *c,
                                      const yoke_plan_step *steps, int step_count,
                                      double tolerance) {
    parity_values values = parity_values_new(c);
    yoke_device *device = yoke_devices_at(rig->devices, 0);
    size_t held = yoke_device_allocated(device); /* what a test that failed before left */
    yoke_device_scope scope;
    parity_side side, cpu;
    parity_case plain;
    PARITY_OK(yoke_device_enter(device, false, &scope));
    parity_open(&side, c, device, rig->algorithms);
    for (int i = 0; i < step_count; i++) {
        parity_run(&side, &values, &steps[i]);
        yoke_device_leave(device, &scope);
        parity_run_cpu(rig, c, &plain, &values, &steps[i], &cpu);
        parity_compare_sides(&side, &cpu, tolerance);
        parity_close(&cpu);
        PARITY_OK(yoke_device_enter(device, false, &scope));
    }
    parity_close(&side);
    assert_int_equal(yoke_device_allocated(device), held);
    yoke_device_leave(device, &scope);
    parity_values_free(&values);
}

static inline void parity_check(const parity_rig *rig, const parity_case *c) {
    const yoke_plan_step step = {
        .seed = 11, .step = 5, .first_row = 100, .loss_scale = 0.5f, .mixed = c->mixed};
    parity_check_steps(rig, c, &step, 1, parity_tolerance(c->precision));
}

/* The plan takes the algorithms of this name. */
static inline void parity_check_preferring(const parity_rig *rig, const parity_case *c,
                                           const char *name) {
    parity_rig own = *rig;
    PARITY_OK(yoke_algorithms_create(&own.algorithms));
    yoke_algorithms_prefer(own.algorithms, name);
    parity_check(&own, c);
    yoke_algorithms_destroy(own.algorithms);
}

#endif
