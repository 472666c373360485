/* SPDX-License-Identifier: Apache-2.0 */
/* A run that goes on when devices fail: every stage of a step, every device, every kind of failure.
 * With shards it ends with the weights, losses and evaluations of the run without a failure. */
#include "survival_check.h"

/* forward, loss, backward and exchange on every device; the evaluation after step 4. */
static void an_error_in_any_stage_on_any_device(void **state) {
    (void)state;
    if (!devices_are_cpus()) {
        assert_true(try_all("error", 2, YOKE_SCHEDULE_OVERLAP) >= 6);
        return;
    }
    for (int devices = 2; devices <= DEVICES; devices++)
        assert_true(try_all("error", devices, YOKE_SCHEDULE_OVERLAP) >= 4 * devices);
    assert_true(try_all("memory", 8, YOKE_SCHEDULE_OVERLAP) >= 4 * 8);
    assert_true(try_all("error", 3, YOKE_SCHEDULE_SHARDED) >= 4 * 3);
    assert_true(try_all("error", 2, YOKE_SCHEDULE_CLASSIC) >= 4 * 2);
}

/* Several epochs between two kept states: each is reported once. */
static void epochs_without_an_evaluation_are_done_again(void **state) {
    (void)state;
    yoke_trainer_options options = surviving(2, YOKE_SCHEDULE_OVERLAP);
    survivor without;
    options.evaluate_every = -1;
    EXPECT_OK(run_with(&without, &options, NULL));
    assert_int_equal(without.epochs, 2);
    assert_true(survives(&options, &without, "error:1@6", 2));
    assert_true(survives(&options, &without, "error:0@4", 2));
}

static void an_evaluation_is_made_again(void **state) {
    (void)state;
    yoke_trainer_options options = surviving(2, YOKE_SCHEDULE_OVERLAP);
    survivor without;
    EXPECT_OK(run_with(&without, &options, NULL));
    assert_true(survives(&options, &without, "error:1@4:evaluate", 2));
    assert_true(survives(&options, &without, "error:0@7:evaluate", 2));
}

static void one_device_after_the_other_fails(void **state) {
    (void)state;
    yoke_trainer_options options = surviving(DEVICES, YOKE_SCHEDULE_OVERLAP);
    survivor without, run;
    EXPECT_OK(run_with(&without, &options, NULL));
    EXPECT_OK(run_with(&run, &options, "error:2@1,error:0@1:forward,memory:3@5"));
    expect_as_without(&run, &without);
    assert_int_equal(run.lost, 3);
    assert_int_equal(run.devices, 1);
    assert_non_null(strstr(run.text, "1 of 4 devices go on"));
    assert_int_equal(run_with(&run, &options, "error:0@1,error:1@2,error:2@3,error:3@4"),
                     YOKE_ERROR_DEVICE);
    assert_int_equal(run.lost, 3);
}

/* Rows of other shares give other rounding. */
static void rows_are_dealt_anew_without_shards(void **state) {
    (void)state;
    yoke_trainer_options options = surviving(3, YOKE_SCHEDULE_OVERLAP);
    const double shares[] = {2, 1, 1};
    survivor without, run;
    small_engine.shards = 0;
    small_engine.shares = shares;
    small_engine.share_count = 3;
    EXPECT_OK(run_with(&without, &options, NULL));
    EXPECT_OK(run_with(&run, &options, "error:1@2"));
    assert_int_equal(run.devices, 2);
    for (int step = 1; step <= STEPS; step++)
        assert_true(run.events[step] == 1 && fabs(run.losses[step] - without.losses[step]) < 1e-5);
}

/* The engine is another one, of the devices that are left. */
static void the_engine_names_the_devices_that_are_left(void **state) {
    (void)state;
    yoke_trainer *trainer = NULL;
    survivor run = {.lost = 0};
    yoke_trainer_options options = surviving(3, YOKE_SCHEDULE_OVERLAP);
    options.on_event = on_survivor;
    options.payload = &run;
    small_engine.shards = 0;
    small_engine.fault = "error:1@2";
    EXPECT_OK(yoke_trainer_create(&trainer, &options));
    EXPECT_OK(yoke_trainer_run(trainer));
    const yoke_data_parallel *engine = yoke_trainer_engine(trainer);
    yoke_trainer_summary summary = {.struct_size = sizeof summary};
    EXPECT_OK(yoke_trainer_summarize(trainer, &summary));
    assert_int_equal(summary.lost, 1);
    assert_int_equal(summary.devices, 2);
    assert_true(summary.lost_seconds > 0);
    if (devices_are_cpus()) {
        assert_string_equal(yoke_data_parallel_device_name(engine, 0), "cpu:0");
        assert_string_equal(yoke_data_parallel_device_name(engine, 1), "cpu:2");
    }
    assert_string_equal(yoke_data_parallel_device_name(engine, 2), "");
    assert_string_equal(yoke_data_parallel_device_name(NULL, 0), "");
    /* Another run goes on with them. */
    EXPECT_OK(yoke_trainer_evaluate(trainer,
                                    &(yoke_step_result){.struct_size = sizeof(yoke_step_result)}));
    yoke_trainer_destroy(trainer);
}

static void what_is_no_failure_of_a_device_ends_the_run(void **state) {
    (void)state;
    yoke_trainer_options options = surviving(2, YOKE_SCHEDULE_OVERLAP);
    static const yoke_optimizer_options wild = {.struct_size = sizeof wild, .learning_rate = 1e38};
    survivor run;
    options.optimizer = &wild;
    assert_int_equal(run_with(&run, &options, NULL), YOKE_ERROR_NUMERIC);
    assert_int_equal(run.lost, 0);
    options = surviving(2, YOKE_SCHEDULE_OVERLAP);
    options.survive = false;
    assert_int_equal(run_with(&run, &options, "error:1@2"), YOKE_ERROR_DEVICE);
    assert_non_null(strstr(yoke_last_error(), "replica 1"));
}

static void metrics_have_every_step_once(void **state) {
    (void)state;
    char path[128], line[4096];
    int lines = 0, lost = 0;
    yoke_trainer_options options = surviving(2, YOKE_SCHEDULE_OVERLAP);
    survivor run;
    options.metrics = in_folder("metrics", path);
    EXPECT_OK(run_with(&run, &options, "error:0@5"));
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        lines += strstr(line, "\"train_loss\"") != NULL;
        lost += strstr(line, "\"lost\"") != NULL;
    }
    fclose(file);
    unlink(path);
    assert_int_equal(lines, STEPS);
    assert_int_equal(lost, 1);
}

static void wrong_options_are_refused(void **state) {
    (void)state;
    static const char *const wrong[] = {"",
                                        "error",
                                        "error:1",
                                        "error:1@",
                                        "bug:1@2",
                                        "error:x@2",
                                        "error:1@2:",
                                        "error:1@2:x",
                                        "error:1@2,",
                                        "error:1@2;a",
                                        "error:1@2:forward:x"};
    survivor run;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        yoke_trainer_options options = surviving(2, YOKE_SCHEDULE_OVERLAP);
        assert_int_equal(run_with(&run, &options, wrong[i]), YOKE_ERROR_ARGUMENT);
        assert_non_null(strstr(yoke_last_error(), "KIND:DEVICE@STEP"));
    }
    yoke_trainer_options options = surviving(2, YOKE_SCHEDULE_OVERLAP);
    small_engine.deadline = -1;
    assert_int_equal(run_with(&run, &options, NULL), YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "deadline"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_error_in_any_stage_on_any_device),
        cmocka_unit_test(epochs_without_an_evaluation_are_done_again),
        cmocka_unit_test(an_evaluation_is_made_again),
        cmocka_unit_test(one_device_after_the_other_fails),
        cmocka_unit_test(rows_are_dealt_anew_without_shards),
        cmocka_unit_test(the_engine_names_the_devices_that_are_left),
        cmocka_unit_test(what_is_no_failure_of_a_device_ends_the_run),
        cmocka_unit_test(metrics_have_every_step_once),
        cmocka_unit_test(wrong_options_are_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
