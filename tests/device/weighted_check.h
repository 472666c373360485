/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests of convolution and linear: runs one plan forward and backward on random
 * values and brings its results back to plain float32. */
#ifndef WEIGHTED_CHECK_H
#define WEIGHTED_CHECK_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/devices.h"

#define EXPECT_OK(call)                                                                            \
    do {                                                                                           \
        yoke_status expect_status_ = (call);                                                       \
        if (expect_status_ != YOKE_OK)                                                             \
            fail_msg("%s: %s: %s", #call, yoke_status_name(expect_status_), yoke_last_error());    \
    } while (0)

/* Values. */

static inline float check_value(uint32_t i, uint32_t stream) {
    uint32_t x = i * 2654435761u + stream * 40503u + 12345u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    return (float)x / 4294967296.0f - 0.5f;
}

static inline float *check_values(size_t count, uint32_t stream) {
    float *values = malloc((count > 0 ? count : 1) * sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < count; i++)
        values[i] = check_value((uint32_t)i, stream);
    return values;
}

/* Relative L2 distance. NaN counts as infinitely far. */
static inline double check_distance(const float *got, const double *wanted, size_t count) {
    double difference = 0, size = 0;
    for (size_t i = 0; i < count; i++) {
        double d = (double)got[i] - wanted[i];
        difference += d * d;
        size += wanted[i] * wanted[i];
    }
    double distance = sqrt(difference / (size > 0 ? size : 1));
    return isnan(distance) ? INFINITY : distance;
}

/* A plan at work. */

typedef struct check_case {
    yoke_operation operation;
    int rows;
    yoke_precision precision;
    yoke_algorithm algorithm;
    bool first_layer; /* reads plain float32 and has no input gradient */
} check_case;

typedef struct check_sizes {
    size_t input, output, weights;
    int64_t input_shape[4], output_shape[4], weight_shape[4];
} check_sizes;

static inline check_sizes check_sizes_of(const check_case *c) {
    const yoke_operation *op = &c->operation;
    bool linear = op->kind == YOKE_OP_LINEAR;
    /* A transposed convolution's weight is that of the convolution the other way round. */
    bool transposed = op->kind == YOKE_OP_CONV_TRANSPOSE2D;
    int out = transposed ? op->input.channels : op->output.channels;
    int in = transposed ? op->output.channels : op->input.channels;
    check_sizes s = {
        .input_shape = {c->rows, op->input.channels, op->input.height, op->input.width},
        .output_shape = {c->rows, op->output.channels, op->output.height, op->output.width},
        .weight_shape = {out, linear ? in : in / op->groups, linear ? 1 : yoke_taps_down(op).kernel,
                         linear ? 1 : yoke_taps_across(op).kernel}};
    s.input = s.output = s.weights = 1;
    for (int i = 0; i < 4; i++) {
        s.input *= (size_t)s.input_shape[i];
        s.output *= (size_t)s.output_shape[i];
        s.weights *= (size_t)s.weight_shape[i];
    }
    return s;
}

/* Plain host values and results of one run. */
typedef struct check_run {
    check_sizes sizes;
    float *x, *w, *b, *dy;   /* given */
    float *y, *dx, *dw, *db; /* computed */
    yoke_plan_needs needs;
} check_run;

static inline void check_run_free(check_run *run) {
    float *all[] = {run->x, run->w, run->b, run->dy, run->y, run->dx, run->dw, run->db};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

static inline check_run check_run_new(const check_case *c) {
    check_run run = {.sizes = check_sizes_of(c)};
    size_t channels = (size_t)c->operation.output.channels;
    run.x = check_values(run.sizes.input, 1);
    run.w = check_values(run.sizes.weights, 2);
    run.b = check_values(channels, 3);
    run.dy = check_values(run.sizes.output, 4);
    run.y = check_values(run.sizes.output, 5);
    run.dx = check_values(run.sizes.input, 6);
    run.dw = check_values(run.sizes.weights, 7);
    run.db = check_values(channels, 8);
    return run;
}

static inline yoke_layout check_plain(yoke_device *device, const int64_t shape[4]) {
    yoke_layout layout;
    EXPECT_OK(yoke_layout_plain(device, shape, 4, &layout));
    return layout;
}

/* The layout and precision in which another layer would hand over this input. */
static inline yoke_layout check_produced_layout(yoke_device *device, const check_case *c) {
    bool linear = c->operation.kind == YOKE_OP_LINEAR;
    yoke_operation op = {.kind = linear ? YOKE_OP_LINEAR : YOKE_OP_CONV2D,
                         .name = "producer",
                         .input = c->operation.input,
                         .output = c->operation.input,
                         .kernel = 1,
                         .stride = 1,
                         .groups = 1,
                         .dilation = 1};
    yoke_plan_request request = {.operation = &op,
                                 .rows = c->rows,
                                 .precision = c->precision,
                                 .algorithm = YOKE_ALGORITHM_DIRECT};
    check_sizes sizes = check_sizes_of(c);
    request.inputs[0] = check_plain(device, sizes.input_shape);
    yoke_plan *plan = NULL;
    EXPECT_OK(yoke_plan_create(&plan, device, &request));
    yoke_layout layout = yoke_plan_describe(plan)->output;
    yoke_plan_destroy(plan);
    return layout;
}

/* Device memory full of NaNs. */
static inline void *check_memory(yoke_device *device, size_t bytes) {
    void *nans = malloc(bytes + 1);
    assert_non_null(nans);
    memset(nans, 0xff, bytes);
    void *memory = device_copy_of(device, nans, bytes);
    free(nans);
    return memory;
}

static inline double check_sum(const float *values, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += fabs((double)values[i]);
    return sum;
}

/* The plan alone: the caller keeps it. */
static inline yoke_plan *check_plan(yoke_device *device, const check_case *c,
                                    yoke_algorithms *algorithms, const yoke_layout *weights,
                                    bool training, yoke_layout *input) {
    check_sizes sizes = check_sizes_of(c);
    *input =
        c->first_layer ? check_plain(device, sizes.input_shape) : check_produced_layout(device, c);
    yoke_plan_request request = {.operation = &c->operation,
                                 .rows = c->rows,
                                 .training = training,
                                 .precision = c->precision,
                                 .algorithm = c->algorithm,
                                 .input_gradient = training && !c->first_layer,
                                 .algorithms = algorithms};
    request.inputs[0] = *input;
    if (weights != NULL) request.parameters[0] = *weights;
    yoke_plan *plan = NULL;
    EXPECT_OK(yoke_plan_create(&plan, device, &request));
    return plan;
}

/* Runs a training plan forward and backward. `weights`: a layout to impose, or NULL. */
static inline void check_execute(yoke_device *device, const check_case *c,
                                 yoke_algorithms *algorithms, const yoke_layout *weights,
                                 check_run *run) {
    yoke_layout input, plain_w, plain_x, plain_y;
    yoke_plan *plan = check_plan(device, c, algorithms, weights, true, &input);
    const yoke_plan_needs *needs = yoke_plan_describe(plan);
    run->needs = *needs;
    plain_x = check_plain(device, run->sizes.input_shape);
    plain_y = check_plain(device, run->sizes.output_shape);
    plain_w = check_plain(device, run->sizes.weight_shape);
    size_t bias_bytes = (size_t)c->operation.output.channels * sizeof(float);
    yoke_plan_binding binding = {
        .inputs = {check_memory(device, input.bytes)},
        .output = check_memory(device, needs->output.bytes),
        .parameters = {check_memory(device, needs->parameters[0].bytes),
                       check_memory(device, bias_bytes)},
        .parameter_gradients = {check_memory(device, needs->parameters[0].bytes),
                                check_memory(device, bias_bytes)},
        .output_gradient = check_memory(device, needs->output.bytes),
        .input_gradients = {check_memory(device, input.bytes)},
        .scratch = check_memory(device, needs->scratch_bytes)};
    uint16_t *shadow = check_memory(device, needs->parameters[0].bytes / 2);
    if (needs->reads_shadow[0]) binding.shadows[0] = shadow;
    EXPECT_OK(yoke_plan_bind(plan, &binding));
    EXPECT_OK(yoke_layout_convert(device, &input, binding.inputs[0], &plain_x, run->x));
    EXPECT_OK(yoke_layout_convert(device, &needs->parameters[0], binding.parameters[0], &plain_w,
                                  run->w));
    EXPECT_OK(yoke_device_shadow(device, YOKE_BFLOAT16, shadow, binding.parameters[0],
                                 needs->parameters[0].bytes / sizeof(float)));
    device_put(device, binding.parameters[1], run->b, bias_bytes);
    EXPECT_OK(
        yoke_layout_convert(device, &needs->output, binding.output_gradient, &plain_y, run->dy));
    yoke_plan_step step = {0};
    EXPECT_OK(yoke_plan_forward(plan, &step));
    EXPECT_OK(yoke_plan_backward(plan, &step));
    EXPECT_OK(yoke_layout_convert(device, &plain_y, run->y, &needs->output, binding.output));
    EXPECT_OK(yoke_layout_convert(device, &plain_w, run->dw, &needs->parameters[0],
                                  binding.parameter_gradients[0]));
    if (!c->first_layer)
        EXPECT_OK(
            yoke_layout_convert(device, &plain_x, run->dx, &input, binding.input_gradients[0]));
    if (c->operation.bias) device_take(device, run->db, binding.parameter_gradients[1], bias_bytes);
    /* Padding is zero: what is not in the plain values adds nothing. */
    float *whole =
        device_values(device, binding.parameter_gradients[0], needs->parameters[0].bytes);
    double padded = check_sum(whole, needs->parameters[0].bytes / sizeof(float));
    free(whole);
    double plain = check_sum(run->dw, run->sizes.weights);
    assert_true(fabs(padded - plain) <= 1e-9 * plain);
    void *all[] = {binding.inputs[0],
                   shadow,
                   binding.output,
                   binding.parameters[0],
                   binding.parameters[1],
                   binding.parameter_gradients[0],
                   binding.parameter_gradients[1],
                   binding.output_gradient,
                   binding.input_gradients[0],
                   binding.scratch};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        yoke_device_free(device, all[i]);
    yoke_plan_destroy(plan);
}

/* The device under test. */

typedef struct check_rig {
    yoke_devices *devices;
    yoke_device *device;
    yoke_device_scope scope;
    yoke_algorithms *algorithms;
} check_rig;

static inline void check_rig_open_threads(check_rig *rig, const char *list, int threads) {
    yoke_devices_options options = {
        .struct_size = sizeof options, .list = list, .threads = threads, .unbound = threads > 1};
    EXPECT_OK(yoke_devices_open(&rig->devices, &options));
    rig->device = yoke_devices_at(rig->devices, 0);
    EXPECT_OK(yoke_device_enter(rig->device, false, &rig->scope));
    EXPECT_OK(yoke_algorithms_create(&rig->algorithms));
}

static inline void check_rig_open(check_rig *rig, const char *list) {
    check_rig_open_threads(rig, list, 1);
}

static inline void check_rig_close(check_rig *rig) {
    assert_int_equal(yoke_device_allocated(rig->device), 0);
    yoke_device_leave(rig->device, &rig->scope);
    yoke_algorithms_destroy(rig->algorithms);
    yoke_devices_close(rig->devices);
}

#endif
