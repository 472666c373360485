/* SPDX-License-Identifier: Apache-2.0 */
/* A network with an operation of the host program on 1 to 4 CPU devices: it learns what the same
 * network of elementary operations learns, in every schedule; the error of a callback and a value
 * that is not finite are named. */
#include "support/engine_check.h"

static yoke_optimizer_options sgd(void) {
    yoke_optimizer_options optimizer = YOKE_SGD_OPTIONS_INIT;
    optimizer.learning_rate = 0.05;
    optimizer.momentum = 0.9;
    return optimizer;
}

static void devices_learn_what_elementary_operations_learn(void **state) {
    (void)state;
    own_fault right = OWN_RIGHT;
    yoke_model *own = check_own(&right), *twin = check_own(NULL);
    yoke_optimizer_options optimizer = sgd();
    yoke_data_parallel_options options = check_options(CHECK_BATCH, YOKE_SCHEDULE_OVERLAP);
    size_t count;
    float *expected = check_weights_after(twin, 1, options, &optimizer, &count);
    for (int devices = 1; devices <= 4; devices++)
        for (int schedule = 0; schedule < 3; schedule++) {
            options.schedule = (yoke_schedule)schedule;
            float *found = check_weights_after(own, devices, options, &optimizer, &count);
            assert_true(check_relative(found, expected, count) < 1e-5);
            free(found);
        }
    free(expected);
    yoke_model_destroy(twin);
    yoke_model_destroy(own);
}

static void devices_evaluate_alike(void **state) {
    (void)state;
    own_fault right = OWN_RIGHT;
    yoke_model *models[] = {check_own(NULL), check_own(&right)};
    yoke_data_parallel_options options = check_options(CHECK_BATCH, YOKE_SCHEDULE_OVERLAP);
    double expected = 0;
    options.inference = true;
    for (int own = 0; own < 2; own++)
        for (int devices = 1; devices <= 3; devices++) {
            check_engine engine = check_engine_make(models[own], devices, options, NULL);
            check_batch batch = check_batch_make(11, 5);
            yoke_step_result gave = {.struct_size = sizeof gave};
            EXPECT_OK(yoke_data_parallel_evaluate(engine.parallel, &batch.batch, &gave));
            if (expected == 0) expected = gave.loss;
            assert_true(fabs(gave.loss - expected) < 1e-6 * expected);
            check_batch_free(&batch);
            check_engine_free(&engine);
        }
    yoke_model_destroy(models[0]);
    yoke_model_destroy(models[1]);
}

static void a_failure_is_named(void **state) {
    (void)state;
    static const struct {
        own_fault fault;
        yoke_status status;
        const char *text;
    } cases[] = {
        {OWN_FORWARD_FAILS, YOKE_ERROR_DATA, "gate: its forward: out of beta"},
        {OWN_BACKWARD_FAILS, YOKE_ERROR_SYSTEM, "gate: its backward returned YOKE_ERROR_SYSTEM"},
        {OWN_NAN, YOKE_ERROR_NUMERIC, "gate"},
    };
    yoke_optimizer_options optimizer = sgd();
    for (int schedule = 0; schedule < 3; schedule++)
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            own_fault fault = OWN_RIGHT;
            yoke_model *model = check_own(&fault);
            check_engine engine = check_engine_make(
                model, 2, check_options(CHECK_BATCH, (yoke_schedule)schedule), &optimizer);
            check_batch batch = check_batch_make(11, 3);
            EXPECT_OK(yoke_data_parallel_step(engine.parallel, &batch.batch,
                                              YOKE_OPTIMIZER_LEARNING_RATE, NULL));
            fault = cases[i].fault;
            yoke_status status = yoke_data_parallel_step(engine.parallel, &batch.batch,
                                                         YOKE_OPTIMIZER_LEARNING_RATE, NULL);
            bool replica = strstr(yoke_last_error(), "cpu:") != NULL;
            if (status != cases[i].status || !replica ||
                strstr(yoke_last_error(), cases[i].text) == NULL)
                fail_msg("case %zu: %s: %s", i, yoke_status_name(status), yoke_last_error());
            fault = OWN_RIGHT;
            check_batch_free(&batch);
            check_engine_free(&engine);
            yoke_model_destroy(model);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_learn_what_elementary_operations_learn),
        cmocka_unit_test(devices_evaluate_alike),
        cmocka_unit_test(a_failure_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
