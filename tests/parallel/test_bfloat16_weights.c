/* SPDX-License-Identifier: Apache-2.0 */
/* Replicas that read weights in bfloat16 alone, which the exchange publishes, learn what replicas
 * learn that get all of them in float32 before every step. */
#include "device/device.h"
#include "support/engine_check.h"

enum { MOST_ROWS = 16, STEPS = 6 };

typedef struct test_case {
    yoke_optimizer_kind kind;
    yoke_schedule schedule;
    int devices;
} test_case;

static const test_case cases[] = {
    {YOKE_SGD, YOKE_SCHEDULE_OVERLAP, 2},   {YOKE_SGD, YOKE_SCHEDULE_CLASSIC, 3},
    {YOKE_SGD, YOKE_SCHEDULE_SHARDED, 3},   {YOKE_ADAMW, YOKE_SCHEDULE_OVERLAP, 3},
    {YOKE_ADAMW, YOKE_SCHEDULE_SHARDED, 2}, {YOKE_MUON, YOKE_SCHEDULE_OVERLAP, 2},
};

/* Batch norm and biases are read in float32, the weights between them in bfloat16. */
static yoke_model *build(void) {
    yoke_model *model = NULL;
    yoke_linear_options hidden = {
        .struct_size = sizeof hidden, .name = "hidden", .out_features = 48};
    yoke_linear_options wide = {.struct_size = sizeof wide, .name = "wide", .out_features = 40};
    yoke_batch_norm_options norm = YOKE_BATCH_NORM_OPTIONS_INIT;
    yoke_linear_options out = {
        .struct_size = sizeof out, .name = "out", .out_features = CHECK_CLASSES};
    norm.name = "norm";
    EXPECT_OK(yoke_model_create(&model, "bfloat16 weights",
                                yoke_shape_image(CHECK_CHANNELS, CHECK_SIDE, CHECK_SIDE)));
    yoke_value value = yoke_batch_norm(model, yoke_model_input(model), &norm);
    value = yoke_relu(model, yoke_linear(model, yoke_flatten(model, value), &hidden));
    value = yoke_relu(model, yoke_linear(model, value, &wide));
    EXPECT_OK(yoke_model_finish(model, yoke_linear(model, value, &out), NULL));
    return model;
}

static check_engine make(const yoke_model *model, const test_case *c) {
    const yoke_optimizer_options optimizer = {.struct_size = sizeof optimizer,
                                              .kind = c->kind,
                                              .learning_rate = 0.05,
                                              .beta1 = 0.9,
                                              .beta2 = 0.999,
                                              .epsilon = 1e-8,
                                              .momentum = 0.9};
    const yoke_data_parallel_options options = {.struct_size = sizeof options,
                                                .schedule = c->schedule,
                                                .precision = YOKE_BFLOAT16,
                                                .algorithm = YOKE_ALGORITHM_DIRECT,
                                                .batch = MOST_ROWS,
                                                .seed = 3,
                                                .first_bucket_bytes = 4096,
                                                .bucket_bytes = 8192};
    return check_engine_make(model, c->devices, options, &optimizer);
}

/* Writing a weight makes every replica's copies old: the next pass copies them all in float32. */
static void write_a_weight(yoke_data_parallel *parallel) {
    float bias[CHECK_CLASSES];
    EXPECT_OK(yoke_data_parallel_read(parallel, "out.bias", bias, CHECK_CLASSES));
    EXPECT_OK(yoke_data_parallel_write(parallel, "out.bias", bias, CHECK_CLASSES));
}

static void check(const yoke_model *model, const test_case *c) {
    check_engine published = make(model, c), copied = make(model, c);
    /* The first batch gives the last device no rows. */
    const int rows[STEPS] = {1, MOST_ROWS, 7, MOST_ROWS, 2, MOST_ROWS};
    for (int step = 0; step < STEPS; step++) {
        check_batch batch = check_batch_make(rows[step], (uint32_t)step);
        yoke_step_result a = {.struct_size = sizeof a}, b = {.struct_size = sizeof b};
        EXPECT_OK(yoke_data_parallel_step(published.parallel, &batch.batch, -1, &a));
        write_a_weight(copied.parallel);
        EXPECT_OK(yoke_data_parallel_step(copied.parallel, &batch.batch, -1, &b));
        assert_true(a.loss == b.loss);
        assert_true(check_hash(published.parallel) == check_hash(copied.parallel));
        EXPECT_OK(yoke_data_parallel_evaluate(published.parallel, &batch.batch, &a));
        write_a_weight(copied.parallel);
        EXPECT_OK(yoke_data_parallel_evaluate(copied.parallel, &batch.batch, &b));
        assert_true(a.loss == b.loss);
        check_batch_free(&batch);
    }
    check_engine_free(&published);
    check_engine_free(&copied);
}

static bool computes_bfloat16(void) {
    yoke_devices *devices = NULL;
    yoke_devices_options options = YOKE_DEVICES_OPTIONS_INIT;
    options.list = "cpu";
    EXPECT_OK(yoke_devices_open(&devices, &options));
    bool supported = yoke_device_supports(yoke_devices_at(devices, 0), YOKE_BFLOAT16);
    yoke_devices_close(devices);
    return supported;
}

static void published_weights_train_as_copied_ones(void **state) {
    (void)state;
    if (!computes_bfloat16()) skip();
    yoke_model *model = build();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check(model, &cases[i]);
    yoke_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(published_weights_train_as_copied_ones)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
