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
                                        .bucket_bytes = 2048,
                                        .broadcast_buffers = true};
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
    double losses[3];
    for (int devices = 1; devices <= 3; devices++) {
        yoke_data_parallel_options options = options_for(YOKE_SCHEDULE_OVERLAP);
        check_engine engine = check_engine_make(model, devices, options, &optimizer);
        check_batch batch = check_batch_make(ROWS, 1);
        batch.batch.labels = NULL;
        yoke_step_result first = {.struct_size = sizeof first}, last = first;
        EXPECT_OK(yoke_data_parallel_step(engine.parallel, &batch.batch, -1, &first));
        for (int step = 0; step < 30; step++)
            EXPECT_OK(yoke_data_parallel_step(engine.parallel, &batch.batch, -1, &last));
        assert_true(last.loss < 0.8 * first.loss);
        losses[devices - 1] = last.loss;
        check_batch_free(&batch);
        check_engine_free(&engine);
    }
    for (int i = 1; i < 3; i++)
        assert_true(fabs(losses[i] - losses[0]) < 1e-3 * losses[0]);
    yoke_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_learn_the_same),
        cmocka_unit_test(a_loss_that_the_model_computes_trains_without_labels),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
