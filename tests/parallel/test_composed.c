/* SPDX-License-Identifier: Apache-2.0 */
/* Networks of elementary operations learn the same on 1 to 4 devices, with ragged rows; a loss that
 * the model computes trains without labels. */
#include "support/engine_check.h"

enum { ROWS = 7, STEPS = 4 };

static const yoke_optimizer_options optimizer = {
    .struct_size = sizeof optimizer, .kind = YOKE_SGD, .learning_rate = 0.05, .momentum = 0.9};

static yoke_data_parallel_options options_for(yoke_schedule schedule) {
    return (yoke_data_parallel_options){.struct_size = sizeof(yoke_data_parallel_options),
                                        .schedule = schedule,
                                        .algorithm = YOKE_ALGORITHM_DIRECT,
                                        .batch = ROWS,
                                        .seed = 3,
                                        .first_bucket_bytes = 1024,
                                        .bucket_bytes = 2048};
}

/* The weights after a few steps; the caller frees them. */
static float *learn(const yoke_model *model, int devices, yoke_schedule schedule, size_t *count) {
    check_engine engine = check_engine_make(model, devices, options_for(schedule), &optimizer);
    for (int step = 0; step < STEPS; step++) {
        check_batch batch = check_batch_make(ROWS - step % 2, (uint32_t)step);
        EXPECT_OK(yoke_data_parallel_step(engine.parallel, &batch.batch,
                                          YOKE_OPTIMIZER_LEARNING_RATE, NULL));
        check_batch_free(&batch);
    }
    float *weights = check_read_all(engine.parallel, model, false, count);
    check_engine_free(&engine);
    return weights;
}

static void devices_learn_the_same(void **state) {
    (void)state;
    static const yoke_schedule schedules[] = {YOKE_SCHEDULE_OVERLAP, YOKE_SCHEDULE_CLASSIC,
                                              YOKE_SCHEDULE_SHARDED};
    yoke_model *model = check_composed(NULL);
    size_t count;
    float *expected = learn(model, 1, YOKE_SCHEDULE_OVERLAP, &count);
    for (int devices = 1; devices <= 4; devices++)
        for (int s = 0; s < 3; s++) {
            float *found = learn(model, devices, schedules[s], &count);
            assert_true(check_relative(found, expected, count) < 1e-5);
            free(found);
        }
    free(expected);
    yoke_model_destroy(model);
}

/* The input against what the network makes of a part of it: an L1 loss without labels. */
static yoke_model *reconstruction(void) {
    yoke_model *model = NULL;
    yoke_loss_options loss = {.struct_size = sizeof loss, .kind = YOKE_LOSS_OUTPUT};
    yoke_linear_options down = {.struct_size = sizeof down, .name = "down", .out_features = 24};
    yoke_linear_options up = {.struct_size = sizeof up, .name = "up", .out_features = CHECK_ROW};
    EXPECT_OK(yoke_model_create(&model, "reconstruction",
                                yoke_shape_image(CHECK_CHANNELS, CHECK_SIDE, CHECK_SIDE)));
    yoke_value input = yoke_flatten(model, yoke_model_input(model));
    yoke_value made = yoke_tanh(model, yoke_linear(model, input, &down));
    yoke_value l1 = yoke_l1_loss(model, yoke_linear(model, made, &up), input);
    EXPECT_OK(yoke_model_finish(model, l1, &loss));
    return model;
}

static void a_loss_that_the_model_computes_trains_without_labels(void **state) {
    (void)state;
    yoke_model *model = reconstruction();
    const float unread[ROWS] = {0};
    double losses[3];
    for (int devices = 1; devices <= 3; devices++) {
        yoke_data_parallel_options options = options_for(YOKE_SCHEDULE_OVERLAP);
        check_engine engine = check_engine_make(model, devices, options, &optimizer);
        check_batch batch = check_batch_make(ROWS, 1);
        batch.batch.labels = NULL;
        yoke_step_result first = {.struct_size = sizeof first}, last = first;
        EXPECT_OK(yoke_data_parallel_step(engine.parallel, &batch.batch, -1, &first));
        for (int step = 0; step < 30; step++) {
            batch.batch.targets = step % 2 == 0 ? NULL : unread;
            EXPECT_OK(yoke_data_parallel_step(engine.parallel, &batch.batch, -1, &last));
        }
        assert_true(last.loss < 0.8 * first.loss);
        losses[devices - 1] = last.loss;
        check_batch_free(&batch);
        check_engine_free(&engine);
    }
    for (int i = 1; i < 3; i++)
        assert_true(fabs(losses[i] - losses[0]) < 1e-3 * losses[0]);
    yoke_model_destroy(model);
}

enum { CHANNELS = 4, PLACES = 6, PART_ROWS = 32 };

/* The loss is the mean of dropped parts of the input times a parameter of 1: it is its gradient. */
static yoke_model *dropped(yoke_value (*layer)(yoke_model *, yoke_value, double)) {
    yoke_model *model = NULL;
    yoke_loss_options loss = {.struct_size = sizeof loss, .kind = YOKE_LOSS_OUTPUT};
    yoke_parameter_options one = YOKE_PARAMETER_OPTIONS_INIT;
    EXPECT_OK(yoke_model_create(&model, "dropped", yoke_shape_image(CHANNELS, PLACES, 1)));
    one.name = "one";
    one.shape = yoke_shape_vector(1);
    one.value = 1;
    yoke_value x = yoke_multiply(model, yoke_model_input(model), yoke_model_input(model));
    x = yoke_multiply(model, x, yoke_parameter_value(model, &one));
    EXPECT_OK(yoke_model_finish(model, yoke_flatten(model, layer(model, x, 0.25)), &loss));
    return model;
}

/* Parts of so many elements are 0 or 4 / 3 of what they were, and about a quarter is 0. */
static void check_parts(yoke_value (*layer)(yoke_model *, yoke_value, double), int length) {
    enum { ALL = PART_ROWS * CHANNELS * PLACES };
    float inputs[ALL], outputs[2][ALL];
    yoke_model *model = dropped(layer);
    yoke_data_parallel_options options = options_for(YOKE_SCHEDULE_CLASSIC);
    options.batch = PART_ROWS;
    for (int i = 0; i < ALL; i++)
        inputs[i] = (float)(1 + i % 7);
    yoke_batch batch = {.struct_size = sizeof batch, .rows = PART_ROWS, .inputs = inputs};
    for (int devices = 1; devices <= 3; devices += 2) {
        check_engine engine = check_engine_make(model, devices, options, &optimizer);
        yoke_step_result result = {.struct_size = sizeof result};
        float gradient, *found = outputs[devices / 2];
        EXPECT_OK(yoke_data_parallel_forward(engine.parallel, &batch, false, found));
        for (int i = 0; i < ALL; i++)
            assert_true(found[i] == inputs[i] * inputs[i]);
        EXPECT_OK(yoke_data_parallel_forward(engine.parallel, &batch, true, found));
        EXPECT_OK(yoke_data_parallel_step(engine.parallel, &batch, 0, &result));
        EXPECT_OK(yoke_data_parallel_read_gradient(engine.parallel, "one", &gradient, 1));
        assert_true(result.loss > 0 && fabs(result.loss - (double)gradient) < 1e-5 * result.loss);
        check_engine_free(&engine);
    }
    assert_memory_equal(outputs[0], outputs[1], sizeof outputs[0]);
    int gone = 0;
    for (int i = 0; i < ALL; i++) {
        bool zero = outputs[0][i] == 0;
        float scaled = inputs[i] * inputs[i] / 0.75f;
        gone += zero;
        assert_int_equal(zero, outputs[0][i / length * length] == 0);
        assert_true(zero || fabsf(outputs[0][i] - scaled) < 1e-5f * scaled);
    }
    assert_in_range(gone, ALL / 12, ALL / 2);
    yoke_model_destroy(model);
}

static void stochastic_depth_drops_whole_rows(void **state) {
    (void)state;
    check_parts(yoke_stochastic_depth, CHANNELS * PLACES);
}

static void dropout2d_drops_whole_channels(void **state) {
    (void)state;
    check_parts(yoke_dropout2d, PLACES);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_learn_the_same),
        cmocka_unit_test(stochastic_depth_drops_whole_rows),
        cmocka_unit_test(dropout2d_drops_whole_channels),
        cmocka_unit_test(a_loss_that_the_model_computes_trains_without_labels),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
