/* SPDX-License-Identifier: Apache-2.0 */
/* A replica of a model on one device, with random data scattered to it. */
#ifndef TESTS_REPLICA_RIG_H
#define TESTS_REPLICA_RIG_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "model/graph.h"
#include "support/devices.h"

#define assert_ok(call)                                                                            \
    do {                                                                                           \
        if ((call) != YOKE_OK) fail_msg("%s: %s", #call, yoke_last_error());                       \
    } while (0)

struct rig {
    const char *list; /* of devices; NULL: devices_of(1) */
    yoke_devices *devices;
    yoke_device *device;
    yoke_device_scope scope;
    yoke_algorithms *algorithms;
    yoke_model *model; /* the rig's to destroy */
    yoke_replica *replica;
    int rows;
    yoke_precision precision;
    yoke_algorithm algorithm;
    bool input_gradients;
    bool recomputes, inference;
    const bool *frozen; /* [tensors]; NULL: none */
    uint64_t seed;      /* of the batch */
    float *inputs[YOKE_INPUTS_LIMIT], *targets;
    int32_t *labels;
};

static inline void rig_devices(struct rig *rig) {
    yoke_devices_options options = {.struct_size = sizeof options,
                                    .list = rig->list != NULL ? rig->list : devices_of(1),
                                    .threads = 1,
                                    .unbound = true};
    assert_ok(yoke_devices_open(&rig->devices, &options));
    rig->device = yoke_devices_at(rig->devices, 0);
    assert_ok(yoke_device_enter(rig->device, false, &rig->scope));
    assert_ok(yoke_algorithms_create(&rig->algorithms));
}

static inline yoke_replica_options rig_options(const struct rig *rig) {
    return (yoke_replica_options){
        .device = rig->device,
        .precision = rig->precision,
        .algorithm = rig->algorithm,
        .rows = rig->rows,
        .algorithms = rig->algorithms,
        .input_gradients = rig->input_gradients,
        .recomputes = rig->recomputes,
        .inference = rig->inference,
        .frozen = rig->frozen,
        .first_bucket_bytes = 2048,
        .bucket_bytes = 4096,
    };
}

/* Where an embedding reads an input, numbers become token ids. */
static inline void rig_tokens(const yoke_model *model, int input, float *values, size_t count) {
    int tokens = yoke_model_tokens(model, input);
    for (size_t i = 0; i < count && tokens > 0; i++)
        values[i] = (float)((int)(fabsf(values[i]) * 1000) % tokens);
}

/* Normal numbers, and a copy of them in the device's memory. to NULL: the device wants none. */
static inline void rig_numbers(struct rig *rig, float **values, size_t row, float *to,
                               uint64_t stream) {
    size_t count = (size_t)rig->rows * row;
    *values = realloc(*values, count * sizeof **values);
    yoke_random_normal(*values, count, 1, rig->seed, YOKE_RANDOM_SYNTHETIC, stream);
    if (to != NULL) device_put(rig->device, to, *values, count * sizeof **values);
}

static inline void rig_batch(struct rig *rig, uint64_t seed) {
    const yoke_replica_memory *memory = yoke_replica_memory_of(rig->replica);
    const yoke_model *model = rig->model;
    size_t rows = (size_t)rig->rows, outputs = yoke_model_output_elements(model, 0);
    size_t labels = rows * yoke_model_positions(model);
    size_t classes = (size_t)yoke_model_output_shape(model).channels;
    rig->seed = seed;
    for (int k = 0; k < model->input_count; k++) {
        size_t row = yoke_model_input_elements(model, k);
        rig_numbers(rig, &rig->inputs[k], row, memory->inputs[k], k == 0 ? 0 : 1 + (uint64_t)k);
        rig_tokens(model, k, rig->inputs[k], rows * row);
        device_put(rig->device, memory->inputs[k], rig->inputs[k], rows * row * sizeof(float));
    }
    assert_ok(yoke_replica_decode(rig->replica, &(yoke_decode_request){.rows = rig->rows}));
    rig_numbers(rig, &rig->targets, outputs, memory->targets, 1);
    rig->labels = realloc(rig->labels, labels * sizeof *rig->labels);
    for (size_t i = 0; i < labels; i++)
        rig->labels[i] = (int32_t)((i * 7 + seed) % classes);
    device_put(rig->device, memory->labels, rig->labels, labels * sizeof(int32_t));
}

/* Batch-norm weights and biases away from 1 and 0, so that no mistake hides behind them. */
static inline void rig_stir(struct rig *rig, uint64_t seed) {
    for (int i = 0; i < rig->model->tensor_count; i++) {
        const yoke_tensor *tensor = &rig->model->tensors[i];
        if (tensor->integer || tensor->fill.kind != YOKE_FILL_CONSTANT) continue;
        float *values = malloc(tensor->count * sizeof *values);
        bool spread = tensor->fill.value > 0;
        yoke_random_uniform(values, tensor->count, spread ? 0.5 : -0.3, spread ? 1.5 : 0.3, seed,
                            YOKE_RANDOM_PROBE, (uint64_t)i);
        assert_ok(yoke_replica_write(rig->replica, i, false, values));
        free(values);
    }
}

/* On a rig whose devices are open and whose model, rows, precision and algorithm are set. */
static inline void rig_replica(struct rig *rig, uint64_t seed) {
    yoke_replica_options options = rig_options(rig);
    assert_ok(yoke_replica_create(&rig->replica, rig->model, &options));
    assert_ok(yoke_replica_allocate(rig->replica, NULL, NULL));
    assert_ok(yoke_replica_initialize(rig->replica, seed));
    rig_stir(rig, seed);
    rig_batch(rig, seed);
}

static inline void rig_create(struct rig *rig, yoke_model *model, int rows, uint64_t seed) {
    *rig = (struct rig){.model = model, .rows = rows, .algorithm = YOKE_ALGORITHM_DIRECT};
    rig_devices(rig);
    rig_replica(rig, seed);
}

static inline void rig_destroy(struct rig *rig) {
    yoke_replica_destroy(rig->replica);
    yoke_algorithms_destroy(rig->algorithms);
    assert_int_equal(yoke_device_allocated(rig->device), 0);
    yoke_device_leave(rig->device, &rig->scope);
    yoke_devices_close(rig->devices);
    yoke_model_destroy(rig->model);
    for (int k = 0; k < YOKE_INPUTS_LIMIT; k++)
        free(rig->inputs[k]);
    free(rig->targets);
    free(rig->labels);
}

static inline yoke_plan_step rig_step(const struct rig *rig) {
    return (yoke_plan_step){
        .seed = 11, .step = 5, .first_row = 3, .loss_scale = 1.0f / (float)(rig->rows + 2)};
}

static inline void rig_backward(struct rig *rig, const yoke_plan_step *step) {
    for (int s = 0; s < yoke_replica_flat(rig->replica)->bucket_count; s++)
        assert_ok(yoke_replica_backward_segment(rig->replica, s, step));
}

static inline double norm_of(const double *values, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += values[i] * values[i];
    return sqrt(sum);
}

/* Batch norm over three rows magnifies rounding: 9.4e-4 was measured with SSE4.1, 1.4e-4 with AVX2,
 * less than 1e-4 with AVX-512. */
#define ROUNDING 1e-3

/* |a - b| <= tolerance * (|b| + background) over a whole tensor. */
struct nearness {
    double tolerance, background;
};

static inline void assert_near(const float *a, const double *b, size_t count,
                               struct nearness nearness, const char *what) {
    double sum = 0, norm = norm_of(b, count) + nearness.background;
    for (size_t i = 0; i < count; i++)
        sum += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    if (!(sqrt(sum) <= nearness.tolerance * norm))
        fail_msg("%s is %g from the reference of norm %g, allowed %g", what, sqrt(sum), norm,
                 nearness.tolerance);
}

/* Some gradients are zero but for rounding (of a scale before a batch norm): every tensor is
 * measured with a small part of the largest one behind it. */
static inline double gradient_background(const yoke_float64_model *reference,
                                         yoke_precision precision) {
    double largest = 0;
    for (int i = 0; i < reference->model->tensor_count; i++) {
        size_t count = reference->model->tensors[i].count;
        largest = fmax(largest, norm_of(reference->tensor_gradients[i], count));
    }
    return (precision == YOKE_BFLOAT16 ? 1.0 / 256 : 1e-3) * largest;
}

static inline void assert_tensors_near(struct rig *rig, const yoke_float64_model *reference,
                                       bool gradient, double tolerance) {
    struct nearness nearness = {tolerance,
                                gradient ? gradient_background(reference, rig->precision) : 0};
    for (int i = 0; i < rig->model->tensor_count; i++) {
        const yoke_tensor *tensor = &rig->model->tensors[i];
        bool frozen = rig->frozen != NULL && rig->frozen[i];
        if (tensor->integer || (gradient && (!tensor->trainable || frozen))) continue;
        float *values = malloc(tensor->count * sizeof *values);
        assert_ok(yoke_replica_read(rig->replica, i, gradient, values));
        const double *expected = gradient ? reference->tensor_gradients[i] : reference->tensors[i];
        assert_near(values, expected, tensor->count, nearness, tensor->name);
        free(values);
    }
}

/* What a forward and a loss left on the device. */
static inline void assert_outputs_near(struct rig *rig, const yoke_float64_model *reference,
                                       double tolerance) {
    const yoke_replica_memory *memory = yoke_replica_memory_of(rig->replica);
    for (int k = 0; k < rig->model->output_count; k++) {
        const yoke_named_value *output = &rig->model->outputs[k];
        size_t count = (size_t)rig->rows * yoke_float64_row(reference, output->value);
        float *outputs = device_values(rig->device, memory->outputs[k], count * sizeof *outputs);
        assert_near(outputs, reference->values[output->value], count,
                    (struct nearness){tolerance, 0}, output->name);
        free(outputs);
    }
    yoke_loss_scalars gave;
    device_take(rig->device, &gave, memory->scalars, sizeof gave);
    assert_true(fabs(gave.loss_sum - reference->loss_sum) <= tolerance * fabs(reference->loss_sum));
    if (rig->model->loss.kind == YOKE_LOSS_CROSS_ENTROPY)
        assert_int_equal(gave.correct, reference->correct);
}

static inline void assert_input_gradients_near(struct rig *rig, const yoke_float64_model *reference,
                                               double tolerance) {
    for (int k = 0; k < rig->model->input_count; k++) {
        const yoke_named_value *input = &rig->model->inputs[k];
        size_t count = (size_t)rig->rows * yoke_float64_row(reference, input->value);
        const float *from = NULL;
        assert_ok(yoke_replica_input_gradients(rig->replica, k, &from));
        float *gradients = device_values(rig->device, from, count * sizeof *gradients);
        assert_near(gradients, reference->gradients[input->value], count,
                    (struct nearness){tolerance, 0}, input->name);
        free(gradients);
    }
}

/* Gives the reference the parameters and running statistics of a replica. */
static inline void load_reference(yoke_float64_model *reference, yoke_replica *replica) {
    for (int i = 0; i < reference->model->tensor_count; i++) {
        const yoke_tensor *tensor = &reference->model->tensors[i];
        if (tensor->integer) continue;
        float *values = malloc(tensor->count * sizeof *values);
        assert_ok(yoke_replica_read(replica, i, false, values));
        for (size_t k = 0; k < tensor->count; k++)
            reference->tensors[i][k] = (double)values[k];
        free(values);
    }
}

/* After the loss, which clears them: gradients that a caller gives outputs 1, 2, ... */
static inline void rig_output_gradients(struct rig *rig, yoke_float64_model *reference) {
    const yoke_replica_memory *memory = yoke_replica_memory_of(rig->replica);
    for (int k = 1; k < rig->model->output_count; k++) {
        int value = rig->model->outputs[k].value;
        size_t row = yoke_model_output_elements(rig->model, k);
        float *gradients = NULL;
        rig_numbers(rig, &gradients, row, memory->output_gradients[k], 100 + (uint64_t)k);
        for (size_t i = 0; i < (size_t)rig->rows * row; i++)
            reference->gradients[value][i] += (double)gradients[i];
        free(gradients);
    }
}

/* Forward, loss and backward of the replica against the reference. */
static inline void assert_step_near(struct rig *rig, double tolerance) {
    yoke_plan_step step = rig_step(rig);
    yoke_float64_model *reference = NULL;
    assert_ok(yoke_float64_create(&reference, rig->model, rig->rows));
    reference->labels = rig->labels;
    reference->targets = rig->targets;
    reference->step = step;
    reference->loss_scale = (double)step.loss_scale;
    load_reference(reference, rig->replica);
    yoke_float64_forward(reference, (const float *const *)rig->inputs);
    assert_ok(yoke_replica_forward(rig->replica, rig->rows, true, &step));
    assert_ok(yoke_replica_loss(rig->replica, &step));
    yoke_float64_loss(reference);
    rig_output_gradients(rig, reference);
    yoke_float64_backward(reference);
    assert_outputs_near(rig, reference, tolerance);
    rig_backward(rig, &step);
    assert_tensors_near(rig, reference, true, tolerance);
    assert_tensors_near(rig, reference, false, tolerance); /* running statistics */
    if (rig->input_gradients) assert_input_gradients_near(rig, reference, tolerance);
    yoke_float64_destroy(reference);
}

#endif
