/* SPDX-License-Identifier: Apache-2.0 */
/* The float64 reference beside an engine: every optimizer, dropout, several shards, and mistakes.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "yoke/yoke.h"

#define ROWS 7
#define INPUTS (3 * 5 * 5)
#define STEPS 4

#define assert_ok(call)                                                                            \
    do {                                                                                           \
        if ((call) != YOKE_OK) fail_msg("%s: %s", #call, yoke_last_error());                       \
    } while (0)

static yoke_model *small_model(void) {
    yoke_model *model = NULL;
    yoke_conv2d_options conv = YOKE_CONV2D_OPTIONS_INIT;
    yoke_batch_norm_options norm = YOKE_BATCH_NORM_OPTIONS_INIT;
    yoke_linear_options linear = YOKE_LINEAR_OPTIONS_INIT;
    conv.name = "conv";
    conv.out_channels = 6;
    conv.kernel = 3;
    conv.padding = 1;
    conv.no_bias = true;
    norm.name = "bn";
    linear.name = "fc";
    linear.out_features = 4;
    assert_ok(yoke_model_create(&model, "small", (yoke_shape){3, 5, 5, false}));
    yoke_value value = yoke_conv2d(model, yoke_model_input(model), &conv);
    value = yoke_relu(model, yoke_batch_norm(model, value, &norm));
    value = yoke_dropout(model, yoke_flatten(model, value), 0.25);
    assert_ok(yoke_model_finish(model, yoke_linear(model, value, &linear), NULL));
    return model;
}

/* An engine and a reference with the same weights. */
struct rig {
    yoke_model *model;
    yoke_devices *devices;
    yoke_data_parallel *engine;
    yoke_reference *reference;
    float inputs[ROWS * INPUTS];
    int32_t labels[ROWS];
    yoke_batch batch;
};

static void copy_weights(struct rig *rig) {
    for (int i = 0; i < yoke_model_tensor_count(rig->model); i++) {
        yoke_tensor_info info = {.struct_size = sizeof info};
        assert_ok(yoke_model_tensor(rig->model, i, &info));
        if (info.integer) continue;
        float *values = malloc(info.count * sizeof *values);
        double *wide = malloc(info.count * sizeof *wide);
        assert_ok(yoke_data_parallel_read(rig->engine, info.name, values, info.count));
        for (size_t k = 0; k < info.count; k++)
            wide[k] = (double)values[k];
        assert_ok(yoke_reference_write(rig->reference, info.name, wide, info.count));
        free(values);
        free(wide);
    }
}

static void rig_create(struct rig *rig, int devices, const yoke_optimizer_options *optimizer) {
    char list[16];
    snprintf(list, sizeof list, "%dxcpu", devices);
    yoke_devices_options wanted = {
        .struct_size = sizeof wanted, .list = list, .threads = 1, .unbound = true};
    yoke_data_parallel_options options = YOKE_DATA_PARALLEL_OPTIONS_INIT;
    yoke_reference_options as_one = YOKE_REFERENCE_OPTIONS_INIT;
    *rig = (struct rig){.model = small_model()};
    options.schedule = YOKE_SCHEDULE_CLASSIC; /* it keeps gradients */
    options.algorithm = YOKE_ALGORITHM_DIRECT;
    options.batch = as_one.batch = ROWS;
    options.seed = as_one.seed = 3;
    as_one.shards = devices;
    assert_ok(yoke_devices_open(&rig->devices, &wanted));
    assert_ok(
        yoke_data_parallel_create(&rig->engine, rig->model, rig->devices, optimizer, &options));
    assert_ok(yoke_reference_create(&rig->reference, rig->model, optimizer, &as_one));
    copy_weights(rig);
    yoke_random_normal(rig->inputs, ROWS * INPUTS, 1, 5, YOKE_RANDOM_SYNTHETIC, 0);
    for (int i = 0; i < ROWS; i++)
        rig->labels[i] = i * 3 % 4;
    rig->batch = (yoke_batch){.struct_size = sizeof rig->batch,
                              .rows = ROWS,
                              .inputs = rig->inputs,
                              .labels = rig->labels};
}

static void rig_destroy(struct rig *rig) {
    yoke_reference_destroy(rig->reference);
    yoke_data_parallel_destroy(rig->engine);
    yoke_devices_close(rig->devices);
    yoke_model_destroy(rig->model);
}

/* |a - b| <= 1e-5 * |b| over a tensor. */
static void check_near(const float *a, const double *b, size_t count, const char *name) {
    double difference = 0, size = 0;
    for (size_t i = 0; i < count; i++) {
        difference += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        size += b[i] * b[i];
    }
    if (!(difference <= 1e-10 * size))
        fail_msg("%s is %g from the reference of norm %g", name, sqrt(difference), sqrt(size));
}

static void check_tensors(const struct rig *rig) {
    for (int i = 0; i < yoke_model_tensor_count(rig->model); i++) {
        yoke_tensor_info info = {.struct_size = sizeof info};
        assert_ok(yoke_model_tensor(rig->model, i, &info));
        if (info.integer) continue;
        float *values = malloc(info.count * sizeof *values);
        double *expected = malloc(info.count * sizeof *expected);
        assert_ok(yoke_data_parallel_read(rig->engine, info.name, values, info.count));
        assert_ok(yoke_reference_read(rig->reference, info.name, expected, info.count));
        check_near(values, expected, info.count, info.name);
        if (info.trainable) {
            assert_ok(yoke_data_parallel_read_gradient(rig->engine, info.name, values, info.count));
            assert_ok(
                yoke_reference_read_gradient(rig->reference, info.name, expected, info.count));
            check_near(values, expected, info.count, info.name);
        }
        free(values);
        free(expected);
    }
}

static void train_side_by_side_on(int devices, const yoke_optimizer_options *optimizer,
                                  const yoke_label_mix *mixes) {
    struct rig rig;
    rig_create(&rig, devices, optimizer);
    rig.batch.mixes = mixes;
    for (int step = 0; step < STEPS; step++) {
        yoke_step_result engine = {.struct_size = sizeof engine}, own = engine;
        double rate = step == 1 ? 0.003 : YOKE_OPTIMIZER_LEARNING_RATE;
        assert_ok(yoke_data_parallel_step(rig.engine, &rig.batch, rate, &engine));
        assert_ok(yoke_reference_step(rig.reference, &rig.batch, rate, &own));
        assert_true(fabs(engine.loss - own.loss) <= 1e-5 * own.loss);
        assert_int_equal(engine.correct, own.correct);
        assert_true(fabs(engine.gradient_norm - own.gradient_norm) <=
                    1e-5 * fabs(own.gradient_norm));
        check_tensors(&rig);
    }
    rig_destroy(&rig);
}

static void train_side_by_side(int devices, const yoke_optimizer_options *optimizer) {
    train_side_by_side_on(devices, optimizer, NULL);
}

static void sgd_takes_the_same_steps(void **state) {
    (void)state;
    yoke_optimizer_options sgd = YOKE_SGD_OPTIONS_INIT;
    sgd.learning_rate = 0.02;
    train_side_by_side(1, &sgd);
    sgd.momentum = 0.9;
    sgd.weight_decay = 0.1;
    train_side_by_side(1, &sgd);
    sgd.nesterov = true;
    train_side_by_side(1, &sgd);
    sgd.clip_norm = 0.2;
    train_side_by_side(1, &sgd);
}

static void adamw_takes_the_same_steps(void **state) {
    (void)state;
    yoke_optimizer_options adamw = YOKE_ADAMW_OPTIONS_INIT;
    adamw.weight_decay = 0.1;
    train_side_by_side(1, &adamw);
}

static void other_optimizers_take_the_same_steps(void **state) {
    (void)state;
    yoke_optimizer_options others[] = {YOKE_ADAM_OPTIONS_INIT,    YOKE_RMSPROP_OPTIONS_INIT,
                                       YOKE_RMSPROP_OPTIONS_INIT, YOKE_LION_OPTIONS_INIT,
                                       YOKE_ADAGRAD_OPTIONS_INIT, YOKE_LAMB_OPTIONS_INIT,
                                       YOKE_MUON_OPTIONS_INIT,    YOKE_MUON_FILTERS_OPTIONS_INIT};
    others[2].momentum = 0.9;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        others[i].weight_decay = 0.1;
        others[i].learning_rate = 1e-3;
        train_side_by_side(1, &others[i]);
    }
}

/* 3 + 3 + 1 rows: batch norm sees each shard alone, and the root's statistics count. */
static void shards_normalize_as_devices_do(void **state) {
    (void)state;
    yoke_optimizer_options sgd = YOKE_SGD_OPTIONS_INIT;
    sgd.learning_rate = 0.02;
    train_side_by_side(2, &sgd);
    train_side_by_side(3, &sgd);
}

static void mixed_labels_take_the_same_steps(void **state) {
    (void)state;
    static const yoke_label_mix mixes[ROWS] = {{3, 0.25f}, {0, 0.75f}, {2, 0},   {2, 1},
                                               {1, 0.5f},  {3, 0.1f},  {0, 0.9f}};
    yoke_optimizer_options sgd = YOKE_SGD_OPTIONS_INIT;
    sgd.learning_rate = 0.02;
    train_side_by_side_on(1, &sgd, mixes);
    train_side_by_side_on(3, &sgd, mixes);
}

static void a_loss_that_is_not_finite_changes_no_weight(void **state) {
    (void)state;
    struct rig rig;
    double before[4], after[4];
    rig_create(&rig, 1, NULL);
    assert_ok(yoke_reference_read(rig.reference, "fc.bias", before, 4));
    rig.inputs[0] = NAN;
    assert_int_equal(yoke_reference_step(rig.reference, &rig.batch, -1, NULL), YOKE_ERROR_NUMERIC);
    assert_ok(yoke_reference_read(rig.reference, "fc.bias", after, 4));
    assert_memory_equal(before, after, sizeof before);
    rig_destroy(&rig);
}

static void expect_refusal(yoke_status status, const char *word) {
    assert_int_equal(status, YOKE_ERROR_ARGUMENT);
    if (strstr(yoke_last_error(), word) == NULL)
        fail_msg("'%s' is not in: %s", word, yoke_last_error());
}

static void mistakes_are_named(void **state) {
    (void)state;
    struct rig rig;
    double values[8];
    yoke_reference *none = NULL;
    rig_create(&rig, 1, NULL);
    yoke_reference_options options = YOKE_REFERENCE_OPTIONS_INIT;
    expect_refusal(yoke_reference_create(&none, rig.model, NULL, &options), "batch is 0");
    options.batch = 4;
    options.shards = -1;
    expect_refusal(yoke_reference_create(&none, rig.model, NULL, &options), "shards is -1");
    expect_refusal(yoke_reference_read(rig.reference, "fc.wait", values, 4), "fc.weight");
    expect_refusal(yoke_reference_read(rig.reference, "fc.bias", values, 5), "4 elements, not 5");
    expect_refusal(yoke_reference_read_gradient(rig.reference, "bn.running_mean", values, 6),
                   "no gradient");
    rig.batch.rows = ROWS + 1;
    expect_refusal(yoke_reference_step(rig.reference, &rig.batch, -1, NULL), "8 rows");
    rig.batch.rows = ROWS;
    rig.batch.inputs = NULL;
    expect_refusal(yoke_reference_step(rig.reference, &rig.batch, -1, NULL), "no inputs");
    rig_destroy(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sgd_takes_the_same_steps),
        cmocka_unit_test(adamw_takes_the_same_steps),
        cmocka_unit_test(other_optimizers_take_the_same_steps),
        cmocka_unit_test(shards_normalize_as_devices_do),
        cmocka_unit_test(mixed_labels_take_the_same_steps),
        cmocka_unit_test(a_loss_that_is_not_finite_changes_no_weight),
        cmocka_unit_test(mistakes_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
