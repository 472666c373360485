/* SPDX-License-Identifier: Apache-2.0 */
/* A network of rectangular, transposed and one-dimensional convolutions learns the same on 1 to 4
 * devices, with ragged rows, and in evaluation computes the same. */
#include "support/engine_check.h"
#include "yoke/convolution.h"
#include "yoke/transformer.h"

enum { ROWS = 7, STEPS = 4 };

static const yoke_optimizer_options optimizer = {
    .struct_size = sizeof optimizer, .kind = YOKE_SGD, .learning_rate = 0.05, .momentum = 0.9};

static yoke_model *build(void) {
    yoke_model *model = NULL;
    yoke_conv2d_options wide = {.struct_size = sizeof wide,
                                .name = "wide",
                                .out_channels = 8,
                                .kernel = 1,
                                .kernel_width = 5,
                                .padding_width = 2,
                                .stride = 2};
    yoke_conv_transpose2d_options up = {.struct_size = sizeof up,
                                        .name = "up",
                                        .out_channels = 8,
                                        .kernel = 4,
                                        .stride = 2,
                                        .padding = 1,
                                        .groups = 2};
    yoke_conv1d_options line = {
        .struct_size = sizeof line, .name = "line", .out_channels = 4, .kernel = 3, .stride = 2};
    yoke_linear_options fc = {
        .struct_size = sizeof fc, .name = "fc", .out_features = CHECK_CLASSES};
    EXPECT_OK(yoke_model_create(&model, "convolutions",
                                yoke_shape_image(CHECK_CHANNELS, CHECK_SIDE, CHECK_SIDE)));
    yoke_value value = yoke_relu(model, yoke_conv2d(model, yoke_model_input(model), &wide));
    value = yoke_relu(model, yoke_conv_transpose2d(model, value, &up));
    value = yoke_sequence(model, yoke_pixel_shuffle(model, value, 2));
    value = yoke_flatten(model, yoke_conv1d(model, value, &line));
    EXPECT_OK(yoke_model_finish(model, yoke_linear(model, value, &fc), NULL));
    return model;
}

static yoke_data_parallel_options options_for(yoke_schedule schedule) {
    return (yoke_data_parallel_options){.struct_size = sizeof(yoke_data_parallel_options),
                                        .schedule = schedule,
                                        .algorithm = YOKE_ALGORITHM_DIRECT,
                                        .batch = ROWS,
                                        .seed = 3,
                                        .first_bucket_bytes = 1024,
                                        .bucket_bytes = 2048};
}

/* What a few steps leave: the weights, and the outputs of the rows. */
typedef struct learned {
    float *weights, outputs[ROWS * CHECK_CLASSES];
    size_t count;
} learned;

static learned learn(const yoke_model *model, int devices, yoke_data_parallel_options options) {
    learned found = {0};
    check_engine engine = check_engine_make(model, devices, options, &optimizer);
    check_batch rows = check_batch_make(ROWS, 99);
    for (int step = 0; step < STEPS; step++) {
        check_batch batch = check_batch_make(ROWS - step % 2, (uint32_t)step);
        EXPECT_OK(yoke_data_parallel_step(engine.parallel, &batch.batch,
                                          YOKE_OPTIMIZER_LEARNING_RATE, NULL));
        check_batch_free(&batch);
    }
    found.weights = check_read_all(engine.parallel, model, false, &found.count);
    EXPECT_OK(yoke_data_parallel_forward(engine.parallel, &rows.batch, false, found.outputs));
    check_batch_free(&rows);
    check_engine_free(&engine);
    return found;
}

static void devices_learn_the_same(void **state) {
    (void)state;
    static const yoke_schedule schedules[] = {YOKE_SCHEDULE_OVERLAP, YOKE_SCHEDULE_CLASSIC,
                                              YOKE_SCHEDULE_SHARDED};
    yoke_model *model = build();
    learned expected = learn(model, 1, options_for(YOKE_SCHEDULE_OVERLAP));
    for (int devices = 1; devices <= 4; devices++)
        for (int s = 0; s < 3; s++) {
            learned found = learn(model, devices, options_for(schedules[s]));
            assert_true(check_relative(found.weights, expected.weights, expected.count) < 1e-5);
            assert_true(check_relative(found.outputs, expected.outputs, ROWS * CHECK_CLASSES) <
                        1e-5);
            free(found.weights);
        }
    free(expected.weights);
    yoke_model_destroy(model);
}

/* The first steps of bfloat16 stay near those of float32, or the device refuses it with words. */
static void bfloat16_learns_nearly_the_same(void **state) {
    (void)state;
    yoke_model *model = build();
    yoke_data_parallel_options options = options_for(YOKE_SCHEDULE_OVERLAP);
    check_engine probe = check_engine_make(model, 1, options, &optimizer);
    options.precision = YOKE_BFLOAT16;
    yoke_data_parallel *parallel = NULL;
    yoke_status status =
        yoke_data_parallel_create(&parallel, model, probe.devices, &optimizer, &options);
    yoke_data_parallel_destroy(parallel);
    check_engine_free(&probe);
    if (status != YOKE_OK) {
        assert_non_null(strstr(yoke_last_error(), "bfloat16"));
        yoke_model_destroy(model);
        skip();
    }
    learned wide = learn(model, 2, options_for(YOKE_SCHEDULE_OVERLAP));
    learned narrow = learn(model, 2, options);
    double distance = check_relative(narrow.weights, wide.weights, wide.count);
    assert_true(distance > 0 && distance < 2e-2);
    free(wide.weights);
    free(narrow.weights);
    yoke_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_learn_the_same),
        cmocka_unit_test(bfloat16_learns_nearly_the_same),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
