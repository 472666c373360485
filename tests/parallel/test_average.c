/* SPDX-License-Identifier: Apache-2.0 */
/* The average of the weights is torch.optim.swa_utils's in every mode, and the engine can compute
 * with it and go on without it. */
#include <unistd.h>

#include "fixtures/fixture.h"
#include "support/engine_check.h"
#include "yoke/checkpoint.h"
#include "yoke/stages.h"

static const yoke_optimizer_options sgd = {
    .struct_size = sizeof sgd, .kind = YOKE_SGD, .learning_rate = 0.1, .momentum = 0.9};

static yoke_data_parallel_options options_of(yoke_schedule schedule, double decay) {
    yoke_data_parallel_options options = check_options(CHECK_BATCH, schedule);
    options.ema_decay = decay;
    return options;
}

/* Steps of rate 0 around weights that the test writes. */
static void averages_are_pytorchs(void **state) {
    (void)state;
    json_t *fixture = read_fixture("tuning"), *wanted = json_object_get(fixture, "average");
    const yoke_optimizer_options still = {.struct_size = sizeof still, .kind = YOKE_SGD};
    yoke_model *model = check_model(false, 0);
    check_engine engine = check_engine_make(
        model, 2, options_of(YOKE_SCHEDULE_OVERLAP, real(wanted, "decay")), &still);
    for (size_t step = 0; step < 6; step++) {
        const json_t *weights = json_array_get(json_object_get(wanted, "weights"), step);
        const json_t *averages = json_array_get(json_object_get(wanted, "averages"), step);
        float bias[CHECK_CLASSES];
        for (size_t i = 0; i < CHECK_CLASSES; i++)
            bias[i] = (float)json_number_value(json_array_get(weights, i));
        EXPECT_OK(yoke_data_parallel_write(engine.parallel, "fc.bias", bias, CHECK_CLASSES));
        check_train(engine.parallel, 1);
        EXPECT_OK(yoke_data_parallel_use_average(engine.parallel, true));
        EXPECT_OK(yoke_data_parallel_read(engine.parallel, "fc.bias", bias, CHECK_CLASSES));
        EXPECT_OK(yoke_data_parallel_use_average(engine.parallel, false));
        for (size_t i = 0; i < CHECK_CLASSES; i++)
            near((double)bias[i], json_number_value(json_array_get(averages, i)), 2e-7, 1,
                 "average");
    }
    check_engine_free(&engine);
    yoke_model_destroy(model);
    json_decref(fixture);
}

/* The weights after each step, averaged by a plain loop. */
static void every_schedule_averages_its_own_weights(void **state) {
    (void)state;
    static const yoke_schedule schedules[] = {YOKE_SCHEDULE_OVERLAP, YOKE_SCHEDULE_CLASSIC,
                                              YOKE_SCHEDULE_SHARDED};
    yoke_model *model = check_model(true, 0);
    for (size_t s = 0; s < 3; s++) {
        check_engine engine = check_engine_make(model, 3, options_of(schedules[s], 0.75), &sgd);
        float *wanted = NULL;
        size_t count;
        for (int step = 0; step < 5; step++) {
            check_train(engine.parallel, 1);
            float *weights = check_read_all(engine.parallel, model, false, &count);
            for (size_t i = 0; wanted != NULL && i < count; i++)
                weights[i] = wanted[i] - 0.25f * (wanted[i] - weights[i]);
            free(wanted);
            wanted = weights;
        }
        EXPECT_OK(yoke_data_parallel_use_average(engine.parallel, true));
        float *average = check_read_all(engine.parallel, model, false, &count);
        assert_true(check_relative(average, wanted, count) < 1e-7); /* GPUs may fuse */
        free(average);
        free(wanted);
        check_engine_free(&engine);
    }
    yoke_model_destroy(model);
}

static double loss_of(yoke_data_parallel *parallel) {
    check_batch batch = check_batch_make(11, 99);
    yoke_step_result result = {.struct_size = sizeof result};
    EXPECT_OK(yoke_data_parallel_evaluate(parallel, &batch.batch, &result));
    check_batch_free(&batch);
    return result.loss;
}

static void all_devices_evaluate_with_the_average_and_train_on_without_it(void **state) {
    (void)state;
    yoke_model *model = check_model(true, 0);
    check_engine engine = check_engine_make(model, 3, options_of(YOKE_SCHEDULE_OVERLAP, 0.9), &sgd);
    check_engine other = check_engine_make(model, 3, options_of(YOKE_SCHEDULE_OVERLAP, 0), &sgd);
    check_train(engine.parallel, 4);
    uint64_t before = check_hash(engine.parallel);
    double own = loss_of(engine.parallel);
    EXPECT_OK(yoke_data_parallel_use_average(engine.parallel, true));
    double averaged = loss_of(engine.parallel);
    assert_true(averaged != own);
    for (int i = 0; i < yoke_model_tensor_count(model); i++) {
        yoke_tensor_info info = {.struct_size = sizeof info};
        float values[4096];
        EXPECT_OK(yoke_model_tensor(model, i, &info));
        if (info.integer) continue;
        EXPECT_OK(yoke_data_parallel_read(engine.parallel, info.name, values, info.count));
        EXPECT_OK(yoke_data_parallel_write(other.parallel, info.name, values, info.count));
    }
    assert_true(loss_of(other.parallel) == averaged);
    check_batch batch = check_batch_make(CHECK_BATCH, 1);
    yoke_step_result result = {.struct_size = sizeof result};
    assert_int_equal(yoke_data_parallel_step(engine.parallel, &batch.batch, 0.1, &result),
                     YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "has the average"));
    check_batch_free(&batch);
    EXPECT_OK(yoke_data_parallel_use_average(engine.parallel, true));
    EXPECT_OK(yoke_data_parallel_use_average(engine.parallel, false));
    assert_true(check_hash(engine.parallel) == before);
    assert_true(loss_of(engine.parallel) == own);
    check_train(engine.parallel, 1);
    assert_int_equal(yoke_data_parallel_use_average(other.parallel, true), YOKE_ERROR_ARGUMENT);
    check_engine_free(&other);
    check_engine_free(&engine);
    yoke_model_destroy(model);
}

/* Where weights and average have changed places, a state would have them changed, too. */
static void a_state_has_the_weights_and_the_average_each_in_its_place(void **state) {
    (void)state;
    char path[] = "/tmp/yoke_average_XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    yoke_model *model = check_model(true, 0);
    check_engine engine = check_engine_make(model, 2, options_of(YOKE_SCHEDULE_OVERLAP, 0.9), &sgd);
    check_train(engine.parallel, 3);
    uint64_t before = check_hash(engine.parallel);
    EXPECT_OK(yoke_state_save(engine.parallel, path));
    EXPECT_OK(yoke_data_parallel_use_average(engine.parallel, true));
    assert_int_equal(yoke_state_save(engine.parallel, path), YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "has the average"));
    assert_int_equal(yoke_state_load(engine.parallel, path, NULL), YOKE_ERROR_ARGUMENT);
    EXPECT_OK(yoke_data_parallel_use_average(engine.parallel, false));
    EXPECT_OK(yoke_state_load(engine.parallel, path, NULL));
    assert_true(check_hash(engine.parallel) == before);
    check_engine_free(&engine);
    yoke_model_destroy(model);
    unlink(path);
}

static void an_exchange_of_weights_forgets_a_gradient_in_progress(void **state) {
    (void)state;
    yoke_model *model = check_model(true, 0);
    check_engine engine = check_engine_make(model, 2, options_of(YOKE_SCHEDULE_CLASSIC, 0.9), &sgd);
    check_batch batch = check_batch_make(CHECK_BATCH, 1);
    check_train(engine.parallel, 1);
    EXPECT_OK(yoke_data_parallel_scatter(engine.parallel, &batch.batch));
    EXPECT_OK(yoke_data_parallel_replicate(engine.parallel));
    EXPECT_OK(yoke_data_parallel_forward_replicas(engine.parallel, true));
    EXPECT_OK(yoke_data_parallel_loss_replicas(engine.parallel));
    EXPECT_OK(yoke_data_parallel_backward_replicas(engine.parallel));
    EXPECT_OK(yoke_data_parallel_use_average(engine.parallel, true));
    EXPECT_OK(yoke_data_parallel_use_average(engine.parallel, false));
    assert_int_equal(yoke_data_parallel_reduce(engine.parallel), YOKE_ERROR_ARGUMENT);
    check_batch_free(&batch);
    check_engine_free(&engine);
    yoke_model_destroy(model);
}

static void a_decay_that_is_none_is_refused(void **state) {
    (void)state;
    static const double decays[] = {1, -0.1, NAN, INFINITY};
    yoke_model *model = check_model(false, 0);
    yoke_devices *devices = NULL;
    yoke_devices_options list = {.struct_size = sizeof list, .list = devices_of(1)};
    EXPECT_OK(yoke_devices_open(&devices, &list));
    for (size_t i = 0; i < 4; i++) {
        yoke_data_parallel *parallel = NULL;
        yoke_data_parallel_options options = options_of(YOKE_SCHEDULE_OVERLAP, decays[i]);
        options.struct_size = sizeof options;
        assert_int_equal(yoke_data_parallel_create(&parallel, model, devices, &sgd, &options),
                         YOKE_ERROR_ARGUMENT);
        assert_non_null(strstr(yoke_last_error(), "ema_decay"));
    }
    yoke_devices_close(devices);
    yoke_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(averages_are_pytorchs),
        cmocka_unit_test(every_schedule_averages_its_own_weights),
        cmocka_unit_test(all_devices_evaluate_with_the_average_and_train_on_without_it),
        cmocka_unit_test(a_state_has_the_weights_and_the_average_each_in_its_place),
        cmocka_unit_test(an_exchange_of_weights_forgets_a_gradient_in_progress),
        cmocka_unit_test(a_decay_that_is_none_is_refused),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
