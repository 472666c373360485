/* SPDX-License-Identifier: Apache-2.0 */
/* What predictors compute, refuse and hold, by one thread. */
#include <unistd.h>

#include "serve/serve_rig.h"

enum { MOST = 8 };

/* An engine of one device that predicts, with weights of its seed. */
static check_engine make_engine(const yoke_model *model, yoke_data_parallel_options options) {
    options.batch = MOST;
    options.inference = true;
    options.seed = 5;
    return check_engine_make(model, 1, options, NULL);
}

/* The engine's outputs for these rows, MOST at a time. */
static void forward(yoke_data_parallel *engine, rig_rows *rows) {
    for (int first = 0; first < rows->rows; first += MOST) {
        const float *in[RIG_ARRAYS] = {0};
        float *out[RIG_ARRAYS] = {0};
        for (int k = 0; k < rows->inputs; k++)
            in[k] = rows->in[k] + (size_t)first * rows->in_row[k];
        for (int k = 0; k < rows->outputs; k++)
            out[k] = rows->out[k] + (size_t)first * rows->out_row[k];
        int left = rows->rows - first;
        const yoke_batch batch = {.struct_size = sizeof batch,
                                  .rows = left < MOST ? left : MOST,
                                  .inputs = in[0],
                                  .more_inputs = in + 1,
                                  .more_input_count = rows->inputs - 1};
        EXPECT_OK(yoke_data_parallel_forward_outputs(engine, &batch, false, out));
    }
}

/* Numbers of rows that have a plan: the same plan, the same bits. */
static bool is_planned(int rows) {
    return rows <= 4 || rows == 6 || rows % 8 == 0;
}

static void compare(yoke_predictors *predictors, yoke_data_parallel *engine,
                    const yoke_model *model, int rows, bool exact) {
    rig_rows own = rig_rows_make(model, rows, (uint32_t)rows);
    rig_rows expected = rig_rows_make(model, rows, (uint32_t)rows);
    EXPECT_OK(rig_run(predictors, &own));
    forward(engine, &expected);
    for (int k = 0; k < own.outputs; k++) {
        size_t count = (size_t)rows * own.out_row[k];
        double difference = check_relative(own.out[k], expected.out[k], count);
        if (!(difference < 2e-6)) fail_msg("%d rows, output %d: %g", rows, k, difference);
        assert_true(check_relative(own.out[k], own.out[k], count) == 0); /* no NaN */
        if (exact && is_planned(rows))
            assert_memory_equal(own.out[k], expected.out[k], count * sizeof(float));
    }
    rig_rows_free(&expected);
    rig_rows_free(&own);
}

static void expect_the_engines(yoke_model *model, yoke_data_parallel_options options) {
    static const int numbers[] = {1, 2, 3, 4, 5, 6, 7, 8, 11, 16, 21};
    yoke_predictors *predictors =
        rig_predictors(model, (yoke_predictors_options){.precision = options.precision,
                                                        .algorithm = options.algorithm,
                                                        .algorithm_cache = options.algorithm_cache,
                                                        .slots = 2,
                                                        .rows = MOST});
    check_engine engine = make_engine(model, options);
    EXPECT_OK(yoke_predictors_publish_engine(predictors, engine.parallel));
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        compare(predictors, engine.parallel, model, numbers[i],
                options.algorithm == YOKE_ALGORITHM_DIRECT);
    check_engine_free(&engine);
    yoke_predictors_destroy(predictors);
    yoke_model_destroy(model);
}

static const yoke_data_parallel_options direct = {.algorithm = YOKE_ALGORITHM_DIRECT};

static yoke_model *make_gpt2(void) {
    return rig_preset("gpt2:layers=2,width=32,heads=2", (yoke_shape){12, 1, 1, true, false}, 50);
}

static void test_networks_of_images(void **state) {
    (void)state;
    expect_the_engines(rig_preset("resnet20", yoke_shape_image(3, 32, 32), 10), direct);
    expect_the_engines(rig_preset("mlp:width=64", yoke_shape_image(1, 28, 28), 10), direct);
    expect_the_engines(check_model(true, 0.5), direct);
    expect_the_engines(check_composed(NULL), direct);
}

static void test_a_transformer_of_tokens(void **state) {
    (void)state;
    expect_the_engines(make_gpt2(), direct);
}

static void test_two_inputs_and_two_outputs(void **state) {
    (void)state;
    expect_the_engines(rig_pair(), direct);
}

static void test_measured_algorithms(void **state) {
    (void)state;
    char path[64];
    snprintf(path, sizeof path, "/tmp/yoke_test_predictors_%d", (int)getpid());
    yoke_data_parallel_options options = {.algorithm = YOKE_ALGORITHM_MEASURED,
                                          .algorithm_cache = path};
    expect_the_engines(rig_preset("resnet20", yoke_shape_image(3, 32, 32), 10), options);
    expect_the_engines(rig_preset("mlp:width=64", yoke_shape_image(1, 28, 28), 10), options);
    unlink(path);
}

static void test_precisions(void **state) {
    (void)state;
    yoke_devices *devices = NULL;
    yoke_device_info info = {.struct_size = sizeof info};
    yoke_devices_options open = {.struct_size = sizeof open, .list = devices_of(1)};
    EXPECT_OK(yoke_devices_open(&devices, &open));
    EXPECT_OK(yoke_devices_describe(devices, 0, &info));
    yoke_devices_close(devices);
    yoke_data_parallel_options options = direct;
    options.precision = YOKE_FLOAT16;
    expect_the_engines(check_model(true, 0), options);
    options.precision = YOKE_BFLOAT16;
    if (info.bfloat16) expect_the_engines(check_model(true, 0), options);
    if (info.bfloat16) expect_the_engines(make_gpt2(), options);
}

static void test_a_row_does_not_see_its_neighbours(void **state) {
    (void)state;
    yoke_model *model = rig_preset("resnet20", yoke_shape_image(3, 32, 32), 10);
    yoke_predictors *predictors =
        rig_predictors(model, (yoke_predictors_options){.slots = 1, .rows = MOST});
    check_engine engine = make_engine(model, direct);
    EXPECT_OK(yoke_predictors_publish_engine(predictors, engine.parallel));
    rig_rows one = rig_rows_make(model, 5, 1), other = rig_rows_make(model, 5, 2);
    memcpy(other.in[0] + 2 * one.in_row[0], one.in[0] + 2 * one.in_row[0],
           one.in_row[0] * sizeof(float));
    EXPECT_OK(rig_run(predictors, &one));
    EXPECT_OK(rig_run(predictors, &other));
    for (int row = 0; row < 5; row++) {
        size_t at = (size_t)row * one.out_row[0];
        bool same = memcmp(one.out[0] + at, other.out[0] + at, one.out_row[0] * sizeof(float)) == 0;
        assert_int_equal(same, row == 2);
    }
    rig_rows_free(&one);
    rig_rows_free(&other);
    check_engine_free(&engine);
    yoke_predictors_destroy(predictors);
    yoke_model_destroy(model);
}

static void test_outputs_that_nobody_wants(void **state) {
    (void)state;
    yoke_model *model = rig_pair();
    yoke_predictors *predictors =
        rig_predictors(model, (yoke_predictors_options){.slots = 1, .rows = 2});
    rig_publish(predictors, model, 0.25f);
    rig_rows all = rig_rows_make(model, 5, 1), side = rig_rows_make(model, 5, 1);
    float *const outputs[] = {NULL, side.out[1]};
    EXPECT_OK(rig_run(predictors, &all));
    EXPECT_OK(yoke_predictors_run(predictors, (const float *const *)side.in, 5, outputs));
    assert_memory_equal(side.out[1], all.out[1], 5 * all.out_row[1] * sizeof(float));
    EXPECT_OK(yoke_predictors_run(predictors, (const float *const *)side.in, 0, outputs));
    assert_int_equal(rig_report(predictors).predictions, 10);
    rig_rows_free(&all);
    rig_rows_free(&side);
    yoke_predictors_destroy(predictors);
    yoke_model_destroy(model);
}

/* Refusals. */

static void expect_refused(yoke_status status, const char *words) {
    assert_int_equal(status, YOKE_ERROR_ARGUMENT);
    if (strstr(yoke_last_error(), words) == NULL) fail_msg("%s", yoke_last_error());
}

static void test_what_is_refused(void **state) {
    (void)state;
    yoke_model *model = make_gpt2();
    yoke_predictors *predictors = NULL;
    yoke_devices_options devices = {
        .struct_size = sizeof devices, .list = devices_of(1), .threads = 1};
    yoke_predictors_options options = {.model = model, .devices = &devices, .slots = -1};
    expect_refused(yoke_predictors_create(&predictors, &options), "slots is -1");
    options = (yoke_predictors_options){.model = model, .devices = &devices, .plans = 5000};
    expect_refused(yoke_predictors_create(&predictors, &options), "plans is 5000");
    options = (yoke_predictors_options){.model = model, .devices = &devices, .rows = -2};
    expect_refused(yoke_predictors_create(&predictors, &options), "rows is -2");
    options = (yoke_predictors_options){.devices = &devices};
    expect_refused(yoke_predictors_create(&predictors, &options), "model");
    yoke_model *raw = NULL;
    EXPECT_OK(yoke_model_create(&raw, "raw", yoke_shape_image(1, 2, 2)));
    options = (yoke_predictors_options){.model = raw, .devices = &devices};
    expect_refused(yoke_predictors_create(&predictors, &options), "not finished");
    assert_null(predictors);
    yoke_model_destroy(raw);
    predictors = rig_predictors(model, (yoke_predictors_options){.slots = 1, .rows = 2});
    rig_rows rows = rig_rows_make(model, 2, 1);
    expect_refused(rig_run(predictors, &rows), "no weights yet");
    rig_publish(predictors, model, 0.1f);
    EXPECT_OK(rig_run(predictors, &rows));
    const float wrong[] = {-1, 50, 0.5f, NAN};
    for (int i = 0; i < 4; i++) {
        rows.in[0][3] = wrong[i];
        expect_refused(rig_run(predictors, &rows),
                       "at position 3: this model's tokens are 0 to 49");
    }
    rows.in[0][3] = 49;
    EXPECT_OK(rig_run(predictors, &rows));
    const float *const none[] = {NULL};
    expect_refused(yoke_predictors_run(predictors, none, 1, rows.out), "inputs[0] is NULL");
    expect_refused(yoke_predictors_run(predictors, NULL, 1, rows.out), "inputs");
    expect_refused(yoke_predictors_run(predictors, (const float *const *)rows.in, 1, NULL),
                   "outputs");
    rig_rows_free(&rows);
    yoke_predictors_destroy(predictors);
    yoke_predictors_destroy(NULL);
    yoke_model_destroy(model);
}

static void test_weights_that_cannot_be_read_change_nothing(void **state) {
    (void)state;
    yoke_model *model = check_model(true, 0);
    yoke_predictors *predictors =
        rig_predictors(model, (yoke_predictors_options){.slots = 1, .rows = 4});
    rig_rows before = rig_rows_make(model, 4, 1), after = rig_rows_make(model, 4, 1);
    rig_publish(predictors, model, 0.5f);
    EXPECT_OK(rig_run(predictors, &before));
    yoke_predictors_report held = rig_report(predictors);
    rig_constant broken = {model, 0.75f, 4};
    assert_int_equal(yoke_predictors_publish(predictors, rig_read_constant, &broken),
                     YOKE_ERROR_DATA);
    EXPECT_OK(rig_run(predictors, &after));
    assert_memory_equal(before.out[0], after.out[0], 4 * before.out_row[0] * sizeof(float));
    yoke_predictors_report now = rig_report(predictors);
    assert_int_equal(now.weights, held.weights);
    assert_int_equal(now.packed, held.packed);
    assert_int_equal(now.sets, 1);
    assert_int_equal(now.published, 1);
    rig_rows_free(&before);
    rig_rows_free(&after);
    yoke_predictors_destroy(predictors);
    yoke_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_networks_of_images),
        cmocka_unit_test(test_a_transformer_of_tokens),
        cmocka_unit_test(test_two_inputs_and_two_outputs),
        cmocka_unit_test(test_measured_algorithms),
        cmocka_unit_test(test_precisions),
        cmocka_unit_test(test_a_row_does_not_see_its_neighbours),
        cmocka_unit_test(test_outputs_that_nobody_wants),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_weights_that_cannot_be_read_change_nothing),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
