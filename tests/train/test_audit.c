/* SPDX-License-Identifier: Apache-2.0 */
/* A device that computes wrong: found within one turn of all shards, named, and left out. */
#include "survival_check.h"

/* A turn of all shards, and another: rows of a short batch leave some shards empty. */
enum { TURN = 2 * SHARDS, CASES = 50 };

static yoke_trainer_options auditing(int devices, int every) {
    yoke_trainer_options options = surviving(devices, YOKE_SCHEDULE_OVERLAP);
    options.evaluate_every = -1;
    small_engine.audit = every;
    return options;
}

/* The number behind `words`. */
static int step_in(const char *text, const char *words) {
    const char *at = strstr(text, words);
    assert_non_null(at);
    return atoi(at + strlen(words));
}

/* 50 cases: devices, schedules, the first wrong step. */
static void a_device_that_computes_wrong_is_left_out(void **state) {
    (void)state;
    char fault[64], named[16];
    int exact = 0;
    for (int i = 0; i < CASES; i++) {
        int devices = 3 + i % 3, wrong = i * 7 % devices, first = i % 11, every = 1 + i % 2;
        yoke_trainer_options options = auditing(devices, every);
        small_engine.schedule = i % 4 == 0 ? YOKE_SCHEDULE_SHARDED : YOKE_SCHEDULE_OVERLAP;
        options.steps = (uint64_t)(first + TURN * every);
        survivor without, run;
        EXPECT_OK(run_with(&without, &options, NULL));
        snprintf(fault, sizeof fault, "flip:%d@%d", wrong, first);
        snprintf(named, sizeof named, "lost cpu:%d ", wrong);
        EXPECT_OK(run_with(&run, &options, fault));
        if (run.lost != 1 || strstr(run.text, named) == NULL)
            fail_msg("%s on %d devices: %d lost: %s", fault, devices, run.lost, run.text);
        assert_int_equal(run.devices, devices - 1);
        assert_true(step_in(run.text, "audit of step ") < first + TURN * every);
        /* What was wrong before its audit may be in the state that the run went back to. */
        bool clean = step_in(run.text, "go on from step ") <= first;
        assert_true(!clean || run.hash == without.hash);
        exact += clean;
    }
    assert_true(exact > 0);
}

/* What two devices differ in once, both compute right when it is done again: the one whose gradient
 * was not that is wrong. */
static void a_bit_that_flips_once_is_found_by_two_devices(void **state) {
    (void)state;
    yoke_trainer_options options = auditing(2, 1);
    survivor without, run;
    EXPECT_OK(run_with(&without, &options, NULL));
    EXPECT_OK(run_with(&run, &options, "flip-once:1@5")); /* shard 5 is device 1's */
    assert_int_equal(run.lost, 1);
    assert_non_null(strstr(run.text, "lost cpu:1 "));
    assert_true(run.hash == without.hash);
    /* Without a third device nobody can say which one is wrong for good. */
    assert_int_equal(run_with(&run, &options, "flip:1@5"), YOKE_ERROR_DEVICE);
    assert_non_null(strstr(yoke_last_error(), "three or more devices"));
}

static void without_survival_the_run_stops(void **state) {
    (void)state;
    yoke_trainer_options options = auditing(3, 1);
    survivor run;
    options.survive = false;
    assert_int_equal(run_with(&run, &options, "flip:2@0"), YOKE_ERROR_DEVICE);
    assert_non_null(strstr(yoke_last_error(), "cpu:2 computed another gradient"));
    assert_int_equal(run_with(&run, &options, "error:2@2"), YOKE_ERROR_DEVICE);
    assert_int_equal(run.lost, 0);
}

/* Batch norm and dropout: the second device leaves no trace, and neither does the root. */
static void an_audit_changes_nothing(void **state) {
    (void)state;
    static const char *const models[] = {"resnet20", "mlp:width=32"};
    for (int i = 0; i < 2; i++)
        for (int devices = 2; devices <= 3; devices++) {
            yoke_trainer_options options = auditing(devices, 0);
            survivor without, run;
            options.model = models[i];
            options.dataset = "synthetic:3x32x32,classes=3,rows=40";
            options.steps = 9;
            EXPECT_OK(run_with(&without, &options, NULL));
            small_engine.audit = 1;
            EXPECT_OK(run_with(&run, &options, NULL));
            assert_int_equal(run.lost, 0);
            assert_true(run.hash == without.hash);
        }
}

static void expect_needs(yoke_trainer_options options, const char *needs) {
    survivor run;
    assert_int_equal(run_with(&run, &options, NULL), YOKE_ERROR_ARGUMENT);
    if (strstr(yoke_last_error(), needs) == NULL) fail_msg("%s: %s", needs, yoke_last_error());
}

static void what_cannot_be_audited_is_refused(void **state) {
    (void)state;
    yoke_trainer_options options = auditing(1, 2);
    expect_needs(options, "two devices");
    options = auditing(2, 2);
    small_engine.shards = 0;
    expect_needs(options, "needs shards");
    options = auditing(2, 2);
    small_engine.schedule = YOKE_SCHEDULE_CLASSIC;
    expect_needs(options, "schedule overlap or sharded");
    expect_needs(auditing(2, -1), "audit is -1");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_that_computes_wrong_is_left_out),
        cmocka_unit_test(a_bit_that_flips_once_is_found_by_two_devices),
        cmocka_unit_test(without_survival_the_run_stops),
        cmocka_unit_test(an_audit_changes_nothing),
        cmocka_unit_test(what_cannot_be_audited_is_refused),
    };
    if (!devices_are_cpus()) return DEVICES_SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
