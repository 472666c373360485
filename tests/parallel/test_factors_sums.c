/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes that keep the factors of a weight's gradient, whose sum each computes for its slice, learn
 * bit by bit what the classic schedule learns, which sums the gradients themselves. */
#include "support/engine_check.h"

#include "parallel/engine/entry.h"

enum { MOST_ROWS = 16, STEPS = 5, WIDTH = 64 };

typedef struct test_case {
    yoke_optimizer_kind kind;
    yoke_schedule schedule;
    int devices, threads;
    double clip_norm;
    bool skip_finite_check;
} test_case;

static const test_case cases[] = {
    {YOKE_SGD, YOKE_SCHEDULE_OVERLAP, 2, 1, 0, false},
    {YOKE_SGD, YOKE_SCHEDULE_OVERLAP, 3, 2, 0, false},
    {YOKE_SGD, YOKE_SCHEDULE_OVERLAP, 5, 1, 0, true},
    {YOKE_ADAMW, YOKE_SCHEDULE_OVERLAP, 2, 1, 0.1, false},
    {YOKE_ADAMW, YOKE_SCHEDULE_SHARDED, 3, 1, 0, false},
    {YOKE_MUON, YOKE_SCHEDULE_OVERLAP, 2, 1, 0, false},
};

/* The first two layers have weights worth factors, the last one does not. */
static yoke_model *build(bool linear) {
    yoke_model *model = NULL;
    yoke_linear_options first = {.struct_size = sizeof first, .name = "a", .out_features = WIDTH};
    yoke_linear_options second = {.struct_size = sizeof second, .name = "b", .out_features = WIDTH};
    yoke_linear_options out = {
        .struct_size = sizeof out, .name = "out", .out_features = CHECK_CLASSES};
    EXPECT_OK(yoke_model_create(&model, "factors",
                                yoke_shape_image(CHECK_CHANNELS, CHECK_SIDE, CHECK_SIDE)));
    yoke_value value = yoke_linear(model, yoke_flatten(model, yoke_model_input(model)), &first);
    if (!linear) value = yoke_relu(model, value);
    value = yoke_linear(model, value, &second);
    if (!linear) value = yoke_relu(model, value);
    EXPECT_OK(yoke_model_finish(model, yoke_linear(model, value, &out), NULL));
    return model;
}

static check_engine make(const yoke_model *model, const test_case *c, yoke_schedule schedule,
                         yoke_precision precision) {
    check_engine made = {0};
    yoke_devices_options open = {
        .struct_size = sizeof open, .list = devices_of(c->devices), .threads = c->threads};
#ifdef __SANITIZE_THREAD__
    open.threads = 1; /* it does not see how the threads of OpenMP wait for each other */
#endif
    const yoke_optimizer_options optimizer = {.struct_size = sizeof optimizer,
                                              .kind = c->kind,
                                              .learning_rate = 0.05,
                                              .beta1 = 0.9,
                                              .beta2 = 0.999,
                                              .epsilon = 1e-8,
                                              .momentum = 0.9,
                                              .clip_norm = c->clip_norm};
    const yoke_data_parallel_options options = {.struct_size = sizeof options,
                                                .schedule = schedule,
                                                .precision = precision,
                                                .algorithm = YOKE_ALGORITHM_DIRECT,
                                                .batch = MOST_ROWS,
                                                .seed = 3,
                                                .first_bucket_bytes = 4096,
                                                .bucket_bytes = 16384,
                                                .skip_finite_check = c->skip_finite_check};
    EXPECT_OK(yoke_devices_open(&made.devices, &open));
    EXPECT_OK(yoke_data_parallel_create(&made.parallel, model, made.devices, &optimizer, &options));
    return made;
}

static int factored(const check_engine *engine) {
    const yoke_step *step = &engine->parallel->step;
    int count = 0;
    for (int i = 0; i < step->flat->trainable_count; i++)
        count += yoke_replica_factors(step->lanes[0].replica, i) != NULL;
    return count;
}

static void step_both(const check_engine *own, const check_engine *other, int rows, uint32_t seed) {
    check_batch batch = check_batch_make(rows, seed);
    yoke_step_result a = {.struct_size = sizeof a}, b = {.struct_size = sizeof b};
    EXPECT_OK(yoke_data_parallel_step(own->parallel, &batch.batch, -1, &a));
    EXPECT_OK(yoke_data_parallel_step(other->parallel, &batch.batch, -1, &b));
    assert_true(fabs(a.loss - b.loss) <= 1e-6 * fabs(b.loss));
    assert_true(check_hash(own->parallel) == check_hash(other->parallel));
    check_batch_free(&batch);
}

/* The first batch gives rows to one device alone. */
static void check(const yoke_model *model, const test_case *c, yoke_precision precision) {
    static const int rows[STEPS] = {1, MOST_ROWS, 7, 2, MOST_ROWS};
    check_engine own = make(model, c, c->schedule, precision);
    check_engine other = make(model, c, YOKE_SCHEDULE_CLASSIC, precision);
    for (int step = 0; step < STEPS; step++)
        step_both(&own, &other, rows[step], (uint32_t)step);
    assert_true(factored(&own) > 0);
    check_engine_free(&own);
    check_engine_free(&other);
}

/* On processors whose linear layers keep none, there is nothing to compare. */
static bool keeps_factors(const yoke_model *model, yoke_precision precision) {
    yoke_devices *devices = NULL;
    yoke_devices_options open = {.struct_size = sizeof open, .list = devices_of(1), .threads = 1};
    EXPECT_OK(yoke_devices_open(&devices, &open));
    bool supported = yoke_device_supports(yoke_devices_at(devices, 0), precision);
    yoke_devices_close(devices);
    if (!supported) return false;
    check_engine engine = make(model, &cases[0], YOKE_SCHEDULE_OVERLAP, precision);
    check_batch batch = check_batch_make(MOST_ROWS, 0);
    yoke_step_result result = {.struct_size = sizeof result};
    EXPECT_OK(yoke_data_parallel_step(engine.parallel, &batch.batch, -1, &result));
    bool keeps = factored(&engine) > 0;
    check_batch_free(&batch);
    check_engine_free(&engine);
    return keeps;
}

static void check_all(yoke_precision precision) {
    yoke_model *model = build(false);
    bool keeps = keeps_factors(model, precision);
    for (size_t i = 0; keeps && i < sizeof cases / sizeof cases[0]; i++)
        check(model, &cases[i], precision);
    yoke_model_destroy(model);
    if (!keeps) skip();
}

static void summed_factors_train_as_summed_gradients(void **state) {
    (void)state;
    check_all(YOKE_FLOAT32);
}

static void and_in_bfloat16(void **state) {
    (void)state;
    check_all(YOKE_BFLOAT16);
}

/* Beside a weight's 4 floats of an update, lanes read all factors and write the weight to the
 * others; gradients of the other parameters are summed and read again. The first weight's rows are
 * 72 floats long, no whole cache lines, so that it lies as 72 x 64; so does the second one. */
static void lanes_read_factors_in_place_of_gradients(void **state) {
    (void)state;
    enum { WEIGHTS = (CHECK_ROW + WIDTH) * WIDTH, FACTORS = (CHECK_ROW + 3 * WIDTH) * MOST_ROWS };
    enum { OTHERS = 2 * WIDTH + WIDTH * CHECK_CLASSES + 16 };
    yoke_model *model = build(false);
    bool keeps = keeps_factors(model, YOKE_FLOAT32);
    for (size_t i = 0; keeps && i < 2; i++) {
        int devices = cases[i].devices;
        check_engine engine = make(model, &cases[i], YOKE_SCHEDULE_OVERLAP, YOKE_FLOAT32);
        check_batch batch = check_batch_make(MOST_ROWS, 0);
        yoke_step_result result = {.struct_size = sizeof result};
        EXPECT_OK(yoke_data_parallel_step(engine.parallel, &batch.batch, -1, &result));
        int threads = yoke_device_threads(engine.parallel->step.lanes[0].device);
        int sums = threads > 1 ? 2 : 0; /* a team's are written and read again */
        int floats = (4 + sums + devices - 1) * WEIGHTS + devices * FACTORS +
                     (devices + 1 + 5 + devices - 1) * OTHERS;
        assert_true(check_bytes(engine.parallel, YOKE_STAGE_EXCHANGE) ==
                    (double)floats * sizeof(float));
        check_batch_free(&batch);
        check_engine_free(&engine);
    }
    yoke_model_destroy(model);
    if (!keeps) skip();
}

static void write_all(const check_engine *engine, const char *name, size_t count, float value) {
    float *values = malloc(count * sizeof *values);
    for (size_t i = 0; i < count; i++)
        values[i] = (float)(i % 3) * value;
    EXPECT_OK(yoke_data_parallel_write(engine->parallel, name, values, count));
    free(values);
}

/* Inputs near the largest float, weights of zero in front of large ones: the loss is finite, the
 * gradient of the first weight is not. */
static void an_infinite_gradient_changes_nothing(void **state) {
    (void)state;
    yoke_model *model = build(true);
    if (!keeps_factors(model, YOKE_FLOAT32)) {
        yoke_model_destroy(model);
        skip();
    }
    check_engine own = make(model, &cases[0], YOKE_SCHEDULE_OVERLAP, YOKE_FLOAT32);
    check_engine other = make(model, &cases[0], YOKE_SCHEDULE_CLASSIC, YOKE_FLOAT32);
    const check_engine *both[] = {&own, &other};
    for (int i = 0; i < 2; i++) {
        write_all(both[i], "a.weight", (size_t)CHECK_ROW * WIDTH, 0);
        write_all(both[i], "b.weight", (size_t)WIDTH * WIDTH, 10);
        write_all(both[i], "out.weight", (size_t)WIDTH * CHECK_CLASSES, 10);
    }
    uint64_t before = check_hash(own.parallel);
    check_batch huge = check_batch_make(MOST_ROWS, 1);
    for (int i = 0; i < MOST_ROWS * CHECK_ROW; i++)
        huge.inputs[i] = 3e38f;
    yoke_step_result result = {.struct_size = sizeof result};
    assert_int_equal(yoke_data_parallel_step(own.parallel, &huge.batch, -1, &result),
                     YOKE_ERROR_NUMERIC);
    assert_non_null(strstr(yoke_last_error(), "the gradient of a.weight is not finite"));
    assert_true(check_hash(own.parallel) == before);
    step_both(&own, &other, MOST_ROWS, 2);
    check_batch_free(&huge);
    check_engine_free(&own);
    check_engine_free(&other);
    yoke_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(summed_factors_train_as_summed_gradients),
        cmocka_unit_test(and_in_bfloat16),
        cmocka_unit_test(lanes_read_factors_in_place_of_gradients),
        cmocka_unit_test(an_infinite_gradient_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
