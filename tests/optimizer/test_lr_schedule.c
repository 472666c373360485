/* SPDX-License-Identifier: Apache-2.0 */
/* Learning rates over a run equal values worked out by hand, and PyTorch's own loop for one-
 * cycle. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "yoke/optimizer.h"

static const double pi = 3.14159265358979323846;

static double rate(yoke_lr_schedule_kind kind, uint64_t steps, uint64_t warmup_steps,
                   uint64_t step) {
    yoke_lr_schedule schedule = {.struct_size = sizeof schedule,
                                 .kind = kind,
                                 .learning_rate = 0.4,
                                 .steps = steps,
                                 .warmup_steps = warmup_steps};
    return yoke_lr_schedule_rate(&schedule, step);
}

static void assert_near(double value, double expected) {
    if (!(fabs(value - expected) <= 1e-12 + 1e-10 * fabs(expected)))
        fail_msg("%.15g, expected %.15g", value, expected);
}

static void a_constant_rate_stays(void **state) {
    (void)state;
    for (uint64_t step = 0; step < 200; step += 7)
        assert_true(rate(YOKE_LR_CONSTANT, 100, 0, step) == 0.4);
}

static void steps_fall_at_half_and_three_quarters(void **state) {
    (void)state;
    assert_near(rate(YOKE_LR_STEP, 100, 0, 0), 0.4);
    assert_near(rate(YOKE_LR_STEP, 100, 0, 49), 0.4);
    assert_near(rate(YOKE_LR_STEP, 100, 0, 50), 0.04);
    assert_near(rate(YOKE_LR_STEP, 100, 0, 74), 0.04);
    assert_near(rate(YOKE_LR_STEP, 100, 0, 75), 0.004);
    assert_near(rate(YOKE_LR_STEP, 100, 0, 99), 0.004);
    assert_near(rate(YOKE_LR_STEP, 100, 0, 1000), 0.004);
    /* The quarters are the run's, warm-up or not. */
    assert_near(rate(YOKE_LR_STEP, 100, 20, 49), 0.4);
    assert_near(rate(YOKE_LR_STEP, 100, 20, 50), 0.04);
}

static void a_cosine_goes_from_the_peak_to_zero(void **state) {
    (void)state;
    for (uint64_t step = 0; step <= 30; step++)
        assert_near(rate(YOKE_LR_COSINE, 30, 0, step), 0.2 * (1 + cos(pi * (double)step / 30)));
    assert_near(rate(YOKE_LR_COSINE, 30, 0, 10), 0.3);
    assert_near(rate(YOKE_LR_COSINE, 30, 0, 31), 0);
    /* After a warm-up the wave has the rest of the run. */
    assert_near(rate(YOKE_LR_COSINE, 30, 10, 10), 0.4);
    assert_near(rate(YOKE_LR_COSINE, 30, 10, 20), 0.2);
    assert_near(rate(YOKE_LR_COSINE, 30, 10, 30), 0);
}

static void warm_up_is_linear_and_ends_at_the_peak(void **state) {
    (void)state;
    static const yoke_lr_schedule_kind kinds[] = {YOKE_LR_CONSTANT, YOKE_LR_STEP, YOKE_LR_COSINE};
    for (size_t i = 0; i < 3; i++) {
        assert_near(rate(kinds[i], 100, 4, 0), 0.1);
        assert_near(rate(kinds[i], 100, 4, 1), 0.2);
        assert_near(rate(kinds[i], 100, 4, 2), 0.3);
        assert_near(rate(kinds[i], 100, 4, 3), 0.4);
        assert_near(rate(kinds[i], 100, 4, 4), 0.4);
    }
}

static void warm_up_does_not_touch_one_cycle(void **state) {
    (void)state;
    for (uint64_t step = 0; step < 50; step++)
        assert_true(rate(YOKE_LR_ONECYCLE, 50, 20, step) == rate(YOKE_LR_ONECYCLE, 50, 0, step));
}

/* torch.optim.lr_scheduler.OneCycleLR.get_lr, loop over phases and all. */
static double torch_one_cycle(double peak, double total_steps, double step_num) {
    double initial = peak / 25.0, minimum = initial / 1e4;
    struct {
        double end_step, start_lr, end_lr;
    } phases[2] = {{0.3 * total_steps - 1, initial, peak}, {total_steps - 1, peak, minimum}};
    double start_step = 0;
    for (int i = 0; i < 2; i++) {
        double end_step = phases[i].end_step;
        if (step_num <= end_step || i == 1) {
            double pct = (step_num - start_step) / (end_step - start_step);
            double cos_out = cos(pi * pct) + 1;
            return phases[i].end_lr + (phases[i].start_lr - phases[i].end_lr) / 2.0 * cos_out;
        }
        start_step = end_step;
    }
    return -1;
}

static void one_cycle_is_torch_one_cycle_for_every_length(void **state) {
    (void)state;
    for (uint64_t steps = 1; steps <= 60; steps++) {
        for (uint64_t step = 0; step < steps; step++)
            assert_near(rate(YOKE_LR_ONECYCLE, steps, 0, step),
                        torch_one_cycle(0.4, (double)steps, (double)step));
    }
}

/* 100 steps: up over steps 0 to 29, down to 99; peak 0.4, first 0.016, last 1.6e-6. */
static void a_line_goes_from_the_peak_to_zero_and_with_a_warm_up_makes_a_triangle(void **state) {
    (void)state;
    assert_near(rate(YOKE_LR_LINEAR, 100, 0, 0), 0.4);
    assert_near(rate(YOKE_LR_LINEAR, 100, 0, 25), 0.3);
    assert_near(rate(YOKE_LR_LINEAR, 100, 0, 99), 0.004);
    assert_near(rate(YOKE_LR_LINEAR, 100, 0, 200), 0);
    assert_near(rate(YOKE_LR_LINEAR, 100, 20, 9), 0.2);
    assert_near(rate(YOKE_LR_LINEAR, 100, 20, 20), 0.4);
    assert_near(rate(YOKE_LR_LINEAR, 100, 20, 60), 0.2);
    assert_near(rate(YOKE_LR_LINEAR, 100, 20, 100), 0);
    assert_true(rate(YOKE_LR_LINEAR, 0, 0, 1000) == 0.4);
}

static void one_cycle_has_the_values_worked_out_by_hand(void **state) {
    (void)state;
    static const struct {
        uint64_t step;
        double rate;
    } points[] = {{0, 0.016},
                  {29, 0.4},
                  {64, 0.2000008}, /* half way down: (0.4 + 1.6e-6) / 2 */
                  {99, 1.6e-6},
                  {100, 1.6e-6}};
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++)
        assert_near(rate(YOKE_LR_ONECYCLE, 100, 0, points[i].step), points[i].rate);
    /* 0.3 * 40 - 1 = 11 is the peak; of 10 steps, 1 is half way to 2. */
    assert_near(rate(YOKE_LR_ONECYCLE, 40, 0, 11), 0.4);
    assert_near(rate(YOKE_LR_ONECYCLE, 10, 0, 1), (0.016 + 0.4) / 2);
}

static void a_run_of_unknown_length_stays_at_its_peak(void **state) {
    (void)state;
    for (int kind = YOKE_LR_CONSTANT; kind <= YOKE_LR_ONECYCLE; kind++) {
        assert_true(rate((yoke_lr_schedule_kind)kind, 0, 0, 0) == 0.4);
        assert_true(rate((yoke_lr_schedule_kind)kind, 0, 0, 1000) == 0.4);
    }
}

static void every_rate_is_finite_and_within_its_peak(void **state) {
    (void)state;
    for (int kind = YOKE_LR_CONSTANT; kind <= YOKE_LR_ONECYCLE; kind++) {
        for (uint64_t steps = 0; steps < 6; steps++) {
            for (uint64_t warmup = 0; warmup < 8; warmup++) {
                for (uint64_t step = 0; step < 10; step++) {
                    double value = rate((yoke_lr_schedule_kind)kind, steps, warmup, step);
                    assert_true(value >= 0 && value <= 0.4 * (1 + 1e-15));
                }
            }
        }
    }
}

/* Its last fields are a program's own memory. */
static void a_schedule_of_an_older_program_is_read_to_its_end_only(void **state) {
    (void)state;
    yoke_lr_schedule schedule = {
        .kind = YOKE_LR_EXPONENTIAL, .learning_rate = 0.4, .gamma = 0.5, .epoch_steps = 1};
    schedule.struct_size = offsetof(yoke_lr_schedule, gamma);
    assert_true(yoke_lr_schedule_rate(&schedule, 3) == 0.4);
    yoke_lr_plateau plateau = YOKE_LR_PLATEAU_INIT;
    plateau.struct_size = offsetof(yoke_lr_plateau, bad);
    plateau.bad = 1234;
    (void)yoke_lr_plateau_update(&plateau, 1);
    assert_int_equal(plateau.bad, 1234);
}

static void a_schedule_without_its_size_has_no_rate(void **state) {
    (void)state;
    yoke_lr_schedule schedule = {.learning_rate = 0.4};
    assert_true(isnan(yoke_lr_schedule_rate(&schedule, 0)));
    assert_string_equal(yoke_last_error(), "yoke_lr_schedule.struct_size is 0: set it to "
                                           "sizeof(yoke_lr_schedule), which is 56 here");
    yoke_lr_plateau plateau = {.learning_rate = 0.4};
    assert_true(isnan(yoke_lr_plateau_update(&plateau, 1)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_constant_rate_stays),
        cmocka_unit_test(steps_fall_at_half_and_three_quarters),
        cmocka_unit_test(a_cosine_goes_from_the_peak_to_zero),
        cmocka_unit_test(warm_up_is_linear_and_ends_at_the_peak),
        cmocka_unit_test(warm_up_does_not_touch_one_cycle),
        cmocka_unit_test(one_cycle_is_torch_one_cycle_for_every_length),
        cmocka_unit_test(one_cycle_has_the_values_worked_out_by_hand),
        cmocka_unit_test(a_line_goes_from_the_peak_to_zero_and_with_a_warm_up_makes_a_triangle),
        cmocka_unit_test(a_run_of_unknown_length_stays_at_its_peak),
        cmocka_unit_test(every_rate_is_finite_and_within_its_peak),
        cmocka_unit_test(a_schedule_of_an_older_program_is_read_to_its_end_only),
        cmocka_unit_test(a_schedule_without_its_size_has_no_rate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
