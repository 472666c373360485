/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of an engine's inputs, and of its parameters by hand: what a caller needs to train a
 * model in several parts. */
#include "support/engine_check.h"

enum { ROWS = 7, STEPS = 6, HIDDEN = 8 };
enum { MIDDLE_ROW = HIDDEN * CHECK_SIDE * CHECK_SIDE };

static const yoke_optimizer_options sgd = {
    .struct_size = sizeof sgd, .learning_rate = 0.1, .momentum = 0.9};

static yoke_data_parallel_options options_of(yoke_schedule schedule) {
    return (yoke_data_parallel_options){.schedule = schedule,
                                        .algorithm = YOKE_ALGORITHM_DIRECT,
                                        .batch = ROWS,
                                        .seed = 3,
                                        .first_bucket_bytes = 256,
                                        .bucket_bytes = 1024,
                                        .input_gradients = true};
}

static yoke_value convolve(yoke_model *model, yoke_value value, const char *name) {
    yoke_conv2d_options conv = {.struct_size = sizeof conv,
                                .name = name,
                                .out_channels = HIDDEN,
                                .kernel = 3,
                                .padding = 1};
    return yoke_conv2d(model, value, &conv);
}

static yoke_value classify(yoke_model *model, yoke_value value) {
    yoke_linear_options fc = {
        .struct_size = sizeof fc, .name = "fc", .out_features = CHECK_CLASSES};
    value = yoke_relu(model, convolve(model, value, "conv2"));
    return yoke_linear(model, yoke_flatten(model, yoke_global_average_pool(model, value)), &fc);
}

static yoke_model *make_model(yoke_shape input) {
    yoke_model *model = NULL;
    EXPECT_OK(yoke_model_create(&model, "part", input));
    return model;
}

/* conv1 | relu - conv2 - relu - pool - fc: cut where a value is read by what has no parameters. */
static yoke_model *first_half(void) {
    yoke_model *model = make_model((yoke_shape){CHECK_CHANNELS, CHECK_SIDE, CHECK_SIDE, false});
    yoke_value value = convolve(model, yoke_model_input(model), "conv1");
    EXPECT_OK(yoke_model_finish(model, yoke_flatten(model, value), NULL));
    return model;
}

static yoke_model *second_half(void) {
    yoke_model *model = make_model((yoke_shape){HIDDEN, CHECK_SIDE, CHECK_SIDE, false});
    yoke_value value = yoke_relu(model, yoke_model_input(model));
    EXPECT_OK(yoke_model_finish(model, classify(model, value), NULL));
    return model;
}

static yoke_model *whole(void) {
    yoke_model *model = make_model((yoke_shape){CHECK_CHANNELS, CHECK_SIDE, CHECK_SIDE, false});
    yoke_value value = yoke_relu(model, convolve(model, yoke_model_input(model), "conv1"));
    EXPECT_OK(yoke_model_finish(model, classify(model, value), NULL));
    return model;
}

/* || a - b || / || b || of this part's tensors against the whole model's; or copies those. */
static double compare_or_copy(yoke_data_parallel *from, yoke_data_parallel *to,
                              const yoke_model *part, bool copy) {
    double farthest = 0;
    for (int i = 0; i < yoke_model_tensor_count(part); i++) {
        yoke_tensor_info info = {.struct_size = sizeof info};
        EXPECT_OK(yoke_model_tensor(part, i, &info));
        float *a = malloc(info.count * sizeof *a), *b = malloc(info.count * sizeof *b);
        EXPECT_OK(yoke_data_parallel_read(from, info.name, a, info.count));
        if (copy) EXPECT_OK(yoke_data_parallel_write(to, info.name, a, info.count));
        EXPECT_OK(yoke_data_parallel_read(to, info.name, b, info.count));
        farthest = fmax(farthest, check_relative(b, a, info.count));
        free(a);
        free(b);
    }
    return farthest;
}

typedef struct halves {
    yoke_model *models[2];
    check_engine engines[2];
} halves;

static halves halves_make(int devices, yoke_schedule schedule) {
    halves made = {.models = {first_half(), second_half()}};
    for (int i = 0; i < 2; i++)
        made.engines[i] = check_engine_make(made.models[i], devices, options_of(schedule), &sgd);
    return made;
}

static void halves_free(halves *pair) {
    for (int i = 0; i < 2; i++) {
        check_engine_free(&pair->engines[i]);
        yoke_model_destroy(pair->models[i]);
    }
}

/* The second half takes a whole step of its schedule; the first goes by hand. */
static double step_halves(halves *pair, const yoke_batch *batch) {
    float values[ROWS * MIDDLE_ROW], gradients[ROWS * MIDDLE_ROW];
    yoke_data_parallel *first = pair->engines[0].parallel, *second = pair->engines[1].parallel;
    yoke_step_result result = {.struct_size = sizeof result};
    yoke_batch middle = *batch;
    middle.inputs = values;
    EXPECT_OK(yoke_data_parallel_forward(first, batch, true, values));
    EXPECT_OK(yoke_data_parallel_step(second, &middle, YOKE_OPTIMIZER_LEARNING_RATE, &result));
    EXPECT_OK(yoke_data_parallel_read_input_gradients(second, gradients));
    EXPECT_OK(yoke_data_parallel_backward(first, gradients));
    EXPECT_OK(yoke_data_parallel_update(first, YOKE_OPTIMIZER_LEARNING_RATE));
    return result.loss;
}

static void check_halves(int devices, yoke_schedule schedule) {
    yoke_model *model = whole();
    check_engine one = check_engine_make(model, 1, options_of(YOKE_SCHEDULE_OVERLAP), &sgd);
    halves pair = halves_make(devices, schedule);
    for (int i = 0; i < 2; i++)
        compare_or_copy(one.parallel, pair.engines[i].parallel, pair.models[i], true);
    for (int step = 0; step < STEPS; step++) {
        check_batch batch = check_batch_make(step % 2 == 0 ? ROWS : ROWS - 2, (uint32_t)step);
        yoke_step_result result = {.struct_size = sizeof result};
        EXPECT_OK(yoke_data_parallel_step(one.parallel, &batch.batch, YOKE_OPTIMIZER_LEARNING_RATE,
                                          &result));
        double loss = step_halves(&pair, &batch.batch);
        if (!(fabs(loss - result.loss) <= 1e-6 * result.loss))
            fail_msg("step %d: loss %.9g, of the whole model %.9g", step, loss, result.loss);
        check_batch_free(&batch);
    }
    for (int i = 0; i < 2; i++) {
        double distance =
            compare_or_copy(one.parallel, pair.engines[i].parallel, pair.models[i], false);
        if (!(distance <= 1e-6)) fail_msg("half %d: weights differ by %g", i, distance);
    }
    halves_free(&pair);
    check_engine_free(&one);
    yoke_model_destroy(model);
}

static void two_halves_learn_what_the_whole_learns(void **state) {
    (void)state;
    for (int devices = 1; devices <= 3; devices++)
        check_halves(devices, YOKE_SCHEDULE_OVERLAP);
    check_halves(2, YOKE_SCHEDULE_CLASSIC);
    check_halves(2, YOKE_SCHEDULE_SHARDED);
}

static double loss_of(yoke_data_parallel *parallel, const yoke_batch *batch) {
    yoke_step_result result = {.struct_size = sizeof result};
    EXPECT_OK(yoke_data_parallel_evaluate(parallel, batch, &result));
    return result.loss;
}

/* In rows of every shard, the idle one's neighbours too. */
static void input_gradients_are_the_slope_of_the_loss(void **state) {
    (void)state;
    yoke_model *model = check_model(false, 0);
    check_engine engine = check_engine_make(model, 4, options_of(YOKE_SCHEDULE_OVERLAP), &sgd);
    check_batch batch = check_batch_make(ROWS - 2, 5); /* 2, 2, 1 and none */
    float gradients[ROWS * CHECK_ROW];
    EXPECT_OK(yoke_data_parallel_forward(engine.parallel, &batch.batch, true, NULL));
    EXPECT_OK(yoke_data_parallel_backward(engine.parallel, NULL));
    EXPECT_OK(yoke_data_parallel_read_input_gradients(engine.parallel, gradients));
    for (int row = 0; row < ROWS - 2; row++) {
        double direct = 0;
        const float *slope = gradients + row * CHECK_ROW;
        for (int i = 0; i < CHECK_ROW; i++)
            direct += (double)slope[i] * slope[i];
        double length = sqrt(direct), losses[2];
        for (int side = 0; side < 2; side++) {
            float moved = (float)((side == 0 ? 0.02 : -0.04) / length);
            for (int i = 0; i < CHECK_ROW; i++)
                batch.inputs[row * CHECK_ROW + i] += moved * slope[i];
            losses[side] = loss_of(engine.parallel, &batch.batch);
        }
        for (int i = 0; i < CHECK_ROW; i++)
            batch.inputs[row * CHECK_ROW + i] += (float)(0.02 / length) * slope[i];
        double measured = (losses[0] - losses[1]) / 0.04;
        if (!(fabs(measured - length) <= 0.03 * length))
            fail_msg("row %d: slope %g, gradient %g", row, measured, length);
    }
    check_batch_free(&batch);
    check_engine_free(&engine);
    yoke_model_destroy(model);
}

static void expect_none(yoke_data_parallel *parallel, const char *words) {
    float gradients[ROWS * CHECK_ROW];
    assert_int_equal(yoke_data_parallel_read_input_gradients(parallel, gradients),
                     YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), words));
}

static void input_gradients_that_are_not_there_are_refused(void **state) {
    (void)state;
    yoke_model *model = check_model(true, 0);
    check_engine engine = check_engine_make(model, 2, options_of(YOKE_SCHEDULE_OVERLAP), &sgd);
    check_batch batch = check_batch_make(ROWS, 1);
    float gradients[ROWS * CHECK_ROW];
    expect_none(engine.parallel, "no input gradients");
    EXPECT_OK(
        yoke_data_parallel_step(engine.parallel, &batch.batch, YOKE_OPTIMIZER_LEARNING_RATE, NULL));
    EXPECT_OK(yoke_data_parallel_read_input_gradients(engine.parallel, gradients));
    loss_of(engine.parallel, &batch.batch);
    expect_none(engine.parallel, "no input gradients");
    EXPECT_OK(yoke_data_parallel_forward(engine.parallel, &batch.batch, true, NULL));
    expect_none(engine.parallel, "no input gradients");
    check_engine_free(&engine);

    yoke_data_parallel_options options = options_of(YOKE_SCHEDULE_OVERLAP);
    options.input_gradients = false;
    engine = check_engine_make(model, 2, options, &sgd);
    EXPECT_OK(
        yoke_data_parallel_step(engine.parallel, &batch.batch, YOKE_OPTIMIZER_LEARNING_RATE, NULL));
    expect_none(engine.parallel, "options.input_gradients");
    options.struct_size = sizeof options;
    options.input_gradients = true;
    options.accumulate = 2;
    yoke_data_parallel *parallel = NULL;
    assert_int_equal(yoke_data_parallel_create(&parallel, model, engine.devices, &sgd, &options),
                     YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "accumulate 2"));
    check_engine_free(&engine);
    check_batch_free(&batch);
    yoke_model_destroy(model);
}

/* Twice the gradient is twice the way. */
static void a_written_gradient_is_the_one_the_update_takes(void **state) {
    (void)state;
    enum { COUNT = CHECK_CLASSES * 8 };
    yoke_model *model = check_model(true, 0);
    yoke_optimizer_options plain = {.struct_size = sizeof plain, .learning_rate = 0.5};
    check_engine engine = check_engine_make(model, 2, options_of(YOKE_SCHEDULE_OVERLAP), &plain);
    yoke_data_parallel *parallel = engine.parallel;
    check_batch batch = check_batch_make(ROWS, 1);
    float before[COUNT], gradient[COUNT], after[COUNT];
    assert_int_equal(yoke_data_parallel_write_gradient(parallel, "fc.weight", gradient, COUNT),
                     YOKE_ERROR_ARGUMENT);
    EXPECT_OK(yoke_data_parallel_forward(parallel, &batch.batch, true, NULL));
    EXPECT_OK(yoke_data_parallel_backward(parallel, NULL));
    EXPECT_OK(yoke_data_parallel_read(parallel, "fc.weight", before, COUNT));
    EXPECT_OK(yoke_data_parallel_read_gradient(parallel, "fc.weight", gradient, COUNT));
    for (int i = 0; i < COUNT; i++)
        gradient[i] *= 2;
    EXPECT_OK(yoke_data_parallel_write_gradient(parallel, "fc.weight", gradient, COUNT));
    EXPECT_OK(yoke_data_parallel_update(parallel, YOKE_OPTIMIZER_LEARNING_RATE));
    EXPECT_OK(yoke_data_parallel_read(parallel, "fc.weight", after, COUNT));
    for (int i = 0; i < COUNT; i++)
        assert_true(fabsf(before[i] - 0.5f * gradient[i] - after[i]) <= 1e-6f);
    assert_int_equal(yoke_data_parallel_write_gradient(parallel, "bn1.running_mean", gradient, 8),
                     YOKE_ERROR_ARGUMENT);
    check_batch_free(&batch);
    check_engine_free(&engine);
    yoke_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_halves_learn_what_the_whole_learns),
        cmocka_unit_test(input_gradients_are_the_slope_of_the_loss),
        cmocka_unit_test(input_gradients_that_are_not_there_are_refused),
        cmocka_unit_test(a_written_gradient_is_the_one_the_update_takes),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
