/* SPDX-License-Identifier: Apache-2.0 */
/* Models whose linear layer computes the loss behind it, and their steps against the float64
 * reference. */
#ifndef TESTS_JOINED_LOSS_H
#define TESTS_JOINED_LOSS_H

#include <string.h>

#include "model/networks.h"
#include "model/program.h"

enum { WIDTH = 6 };

/* Ids through an embedding to logits of every position; tied: by the embedding's own weight. */
static inline yoke_model *language_of(int vocabulary, int positions, const yoke_loss_options *loss,
                                      bool tied, bool reads_logits) {
    yoke_model *model = NULL;
    assert_ok(yoke_model_create(&model, "language", (yoke_shape){positions, 1, 1, true}));
    yoke_embedding_options words = YOKE_EMBEDDING_OPTIONS_INIT;
    words.name = "words";
    words.count = vocabulary;
    words.features = WIDTH;
    yoke_value a = yoke_embedding(model, yoke_model_input(model), &words);
    a = layer_norm(model, linear(model, a, "fc", WIDTH, NULL), "ln");
    yoke_linear_options head = YOKE_LINEAR_OPTIONS_INIT;
    head.name = "head";
    head.out_features = vocabulary;
    head.no_bias = tied;
    head.shared_with = tied ? "words" : NULL;
    head.transposed = !tied && loss != NULL;
    yoke_value logits = yoke_linear(model, a, &head);
    if (reads_logits) yoke_model_add_output(model, "again", logits);
    assert_ok(yoke_model_finish(model, logits, loss));
    return model;
}

/* One label a row. */
static inline yoke_model *flat(const yoke_loss_options *loss, int classes) {
    yoke_model *model = NULL;
    assert_ok(yoke_model_create(&model, "flat", (yoke_shape){WIDTH, 1, 1, true}));
    yoke_value a = yoke_relu(model, linear(model, yoke_model_input(model), "fc", WIDTH, NULL));
    assert_ok(yoke_model_finish(model, linear(model, a, "head", classes, NULL), loss));
    return model;
}

typedef struct setting {
    int rows;
    yoke_precision precision;
    yoke_algorithm algorithm;
    const char *frozen; /* all tensors whose names begin so; NULL: none */
    bool recomputes, input_gradients;
    const char *list; /* of devices; NULL: "cpu" */
} setting;

/* frozen: [tensors], for as long as the rig. */
static inline void open_rig(struct rig *rig, yoke_model *model, setting by, bool *frozen) {
    for (int i = 0; i < model->tensor_count; i++)
        frozen[i] =
            by.frozen != NULL && strncmp(model->tensors[i].name, by.frozen, strlen(by.frozen)) == 0;
    *rig = (struct rig){.list = by.list != NULL ? by.list : "cpu",
                        .model = model,
                        .rows = by.rows,
                        .precision = by.precision,
                        .algorithm = by.algorithm,
                        .recomputes = by.recomputes,
                        .input_gradients = by.input_gradients,
                        .frozen = by.frozen != NULL ? frozen : NULL};
    rig_devices(rig);
    rig_replica(rig, 5);
}

static inline int loss_node(const struct rig *rig) {
    return rig->replica->programs[0]->loss_node;
}

static inline void take_step(struct rig *rig, int rows, bool training, const yoke_plan_step *step) {
    assert_ok(yoke_replica_forward(rig->replica, rows, training, step));
    assert_ok(yoke_replica_loss(rig->replica, step));
    if (training) rig_backward(rig, step);
}

static inline yoke_loss_scalars scalars_of(const struct rig *rig) {
    yoke_loss_scalars scalars;
    device_take(rig->device, &scalars, yoke_replica_memory_of(rig->replica)->scalars,
                sizeof scalars);
    return scalars;
}

static inline void assert_loss_near(const struct rig *rig, const yoke_float64_model *reference,
                                    double tolerance) {
    yoke_loss_scalars gave = scalars_of(rig);
    double distance = fabs(gave.loss_sum - reference->loss_sum);
    if (!(distance <= tolerance * fabs(reference->loss_sum)))
        fail_msg("loss %.9g, reference %.9g", gave.loss_sum, reference->loss_sum);
    /* Rounding may exchange two logits of one size. */
    assert_true(abs(gave.correct - reference->correct) <= (tolerance < 1e-4 ? 0 : 2));
}

static inline void assert_gradients_equal(const struct rig *rig, const float *expected) {
    size_t bytes = yoke_replica_flat(rig->replica)->elements * sizeof(float);
    float *gave =
        device_values(rig->device, yoke_replica_memory_of(rig->replica)->gradients, bytes);
    assert_memory_equal(gave, expected, bytes);
    free(gave);
}

/* A step without outputs, then one with them: the same bits. Takes the model. */
static inline void check_step(yoke_model *model, setting by, const yoke_label_mix *mixes) {
    struct rig rig;
    bool frozen[16];
    static const double tolerances[] = {
        [YOKE_FLOAT32] = 1e-5, [YOKE_BFLOAT16] = 3e-2, [YOKE_TF32] = 2e-3};
    double tolerance = tolerances[by.precision];
    open_rig(&rig, model, by, frozen);
    const yoke_replica_memory *memory = yoke_replica_memory_of(rig.replica);
    yoke_plan_step step = rig_step(&rig);
    yoke_float64_model *reference = NULL;
    assert_true(loss_node(&rig) != YOKE_NONE);
    assert_ok(yoke_float64_create(&reference, model, by.rows));
    step.loss_only = true;
    step.mixed = mixes != NULL;
    if (mixes != NULL)
        device_put(rig.device, memory->mixes, mixes, (size_t)by.rows * sizeof *mixes);
    reference->labels = rig.labels;
    reference->mixes = mixes;
    reference->step = step;
    reference->loss_scale = (double)step.loss_scale;
    load_reference(reference, rig.replica);
    yoke_float64_forward(reference, (const float *const *)rig.inputs);
    yoke_float64_loss(reference);
    yoke_float64_backward(reference);
    take_step(&rig, by.rows, true, &step);
    assert_null(memory->outputs[0]);
    assert_loss_near(&rig, reference, tolerance);
    assert_tensors_near(&rig, reference, true, tolerance);
    if (by.input_gradients) assert_input_gradients_near(&rig, reference, tolerance);

    yoke_loss_scalars alone = scalars_of(&rig);
    const yoke_flat *parameters = yoke_replica_flat(rig.replica);
    size_t bytes = parameters->elements * sizeof(float);
    float *gradients = device_values(rig.device, memory->gradients, bytes);
    step.loss_only = false;
    take_step(&rig, by.rows, true, &step);
    yoke_loss_scalars with_outputs = scalars_of(&rig);
    assert_true(with_outputs.loss_sum == alone.loss_sum);
    assert_int_equal(alone.correct, with_outputs.correct);
    assert_gradients_equal(&rig, gradients);
    int output = model->outputs[0].value;
    size_t count = (size_t)by.rows * yoke_float64_row(reference, output);
    float *outputs = device_values(rig.device, memory->outputs[0], count * sizeof *outputs);
    assert_near(outputs, reference->values[output], count, (struct nearness){tolerance, 0},
                "outputs");
    free(outputs);

    step.loss_only = true; /* and back */
    take_step(&rig, by.rows, true, &step);
    assert_gradients_equal(&rig, gradients);
    take_step(&rig, by.rows, false, &step);
    assert_true(scalars_of(&rig).loss_sum == alone.loss_sum);
    free(gradients);
    yoke_float64_destroy(reference);
    rig_destroy(&rig);
}

#endif
