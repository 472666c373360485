/* SPDX-License-Identifier: Apache-2.0 */
/* A device that hangs: every stage of a step, every device. Its thread and what that holds is left
 * behind. */
#include "survival_check.h"

static void a_hang_in_any_stage_on_any_device(void **state) {
    (void)state;
    if (!devices_are_cpus()) {
        assert_true(try_all("hang", 2, YOKE_SCHEDULE_OVERLAP) >= 6);
        return;
    }
    assert_true(try_all("hang", 3, YOKE_SCHEDULE_OVERLAP) >= 4 * 3);
    assert_true(try_all("hang", 2, YOKE_SCHEDULE_CLASSIC) >= 4 * 2);
}

static void a_hang_without_survival_is_an_error(void **state) {
    (void)state;
    yoke_trainer_options options = surviving(2, YOKE_SCHEDULE_OVERLAP);
    survivor run;
    options.survive = false;
    small_engine.deadline = 1.5;
    assert_int_equal(run_with(&run, &options, "hang:1@2"), YOKE_ERROR_TIMEOUT);
    assert_non_null(strstr(yoke_last_error(), "replica 1"));
}

/* Where no device is left the run ends, and the trainer has no engine. */
static void the_last_device_hangs(void **state) {
    (void)state;
    survivor run;
    for (int devices = 1; devices <= 2; devices++) {
        yoke_trainer_options options = surviving(devices, YOKE_SCHEDULE_OVERLAP);
        small_engine.deadline = 1.5;
        assert_int_equal(run_with(&run, &options, "hang:1@1,hang:0@2"), YOKE_ERROR_TIMEOUT);
        assert_int_equal(run.lost, devices - 1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hang_in_any_stage_on_any_device),
        cmocka_unit_test(the_last_device_hangs),
        cmocka_unit_test(a_hang_without_survival_is_an_error),
    };
    setenv("SIMCUDA_LEAKS", "ignore", 1); /* what is left behind */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
