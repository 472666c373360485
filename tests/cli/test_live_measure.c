/* SPDX-License-Identifier: Apache-2.0 */
/* What devices do in the last steps: shares of the whole, and stages that make the step. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cli/live/live_measure.h"
#include "trace/trace.h"

enum { LANES = 2, US = 1000 };
static const char *const names[] = {"cpu:0", "cpu:1"};

static yoke_trace *start(uint32_t capacity) {
    yoke_trace *trace = NULL;
    yoke_trace_options options = {.lanes = names, .lane_count = LANES, .capacity = capacity};
    assert_int_equal(yoke_trace_create(&trace, &options), YOKE_OK);
    return trace;
}

static void put(yoke_trace *trace, int lane, yoke_stage stage, uint64_t step, uint64_t begin_us,
                uint64_t end_us) {
    yoke_span span = {
        .begin_ns = begin_us * US, .end_ns = end_us * US, .step = step, .stage = stage};
    yoke_trace_past_span(trace, lane, &span);
}

/* 10 ms from the end of the step before: the root loads for 1 ms and works for 9, lane 1 works for
 * 6 and waits for 3. */
static void put_step(yoke_trace *trace, uint64_t step, uint64_t begin_us) {
    put(trace, 0, YOKE_STAGE_LOAD, step, begin_us, begin_us + 1000);
    put(trace, 0, YOKE_STAGE_FORWARD, step, begin_us + 1000, begin_us + 10000);
    put(trace, 0, YOKE_STAGE_STEP, step, begin_us + 1000, begin_us + 10000);
    put(trace, 1, YOKE_STAGE_FORWARD, step, begin_us + 1000, begin_us + 7000);
    put(trace, 1, YOKE_STAGE_WAIT, step, begin_us + 7000, begin_us + 10000);
}

static void expect(double found, double wanted) {
    if (fabs(found - wanted) > 1e-9) fail_msg("%.12g, expected %.12g", found, wanted);
}

static double stage_ms(const live_numbers *numbers, const char *name) {
    for (int i = 0; i < numbers->stage_count; i++)
        if (strcmp(numbers->stages[i].name, name) == 0) return numbers->stages[i].ms;
    return 0;
}

static void expect_the_step_of_put_step(const live_numbers *numbers) {
    expect(numbers->devices[0].work, 0.9);
    expect(numbers->devices[0].wait, 0.1);
    expect(numbers->devices[0].idle, 0);
    expect(numbers->devices[1].work, 0.6);
    expect(numbers->devices[1].wait, 0.3);
    expect(numbers->devices[1].idle, 0.1);
    expect(numbers->step_ms, 10);
    expect(stage_ms(numbers, "load"), 0.5);
    expect(stage_ms(numbers, "forward"), 7.5);
    expect(stage_ms(numbers, "wait"), 1.5);
    expect(stage_ms(numbers, "idle"), 0.5);
}

static void shares_and_stages_make_the_whole(void **state) {
    (void)state;
    yoke_trace *trace = start(64);
    live_numbers numbers = {.device_count = LANES};
    put(trace, 0, YOKE_STAGE_BACKWARD, 0, 0, 500000); /* a first step that is long */
    put(trace, 0, YOKE_STAGE_STEP, 0, 0, 500000);
    for (uint64_t step = 1; step < 5; step++)
        put_step(trace, step, 490000 + 10000 * step);
    assert_int_equal(live_measure(trace, 4, &numbers), 22 / 5 + 1);
    assert_int_equal(numbers.measured_steps, 4);
    expect_the_step_of_put_step(&numbers);
    assert_int_equal(live_measure(trace, 2, &numbers), 15 / 3 + 1);
    assert_int_equal(numbers.measured_steps, 2);
    expect_the_step_of_put_step(&numbers);
    yoke_trace_destroy(trace);
}

static void evaluations_do_not_count(void **state) {
    (void)state;
    yoke_trace *trace = start(64);
    live_numbers numbers = {.device_count = LANES};
    for (uint64_t step = 0; step < 3; step++)
        put_step(trace, step, 10000 * step);
    put(trace, 0, YOKE_STAGE_FORWARD, 3, 30000, 90000);
    put(trace, 0, YOKE_STAGE_EVALUATE, 3, 30000, 90000);
    assert_int_equal(live_measure(trace, 8, &numbers), 0); /* keeps the numbers of before */
    assert_int_equal(numbers.measured_steps, 0);
    for (uint64_t step = 3; step < 6; step++)
        put_step(trace, step, 100000 + 10000 * step);
    assert_true(live_measure(trace, 8, &numbers) > 0);
    assert_int_equal(numbers.measured_steps, 2);
    expect_the_step_of_put_step(&numbers);
    yoke_trace_destroy(trace);
}

static void a_first_step_is_not_enough(void **state) {
    (void)state;
    yoke_trace *trace = start(64);
    live_numbers numbers = {.device_count = LANES};
    assert_int_equal(live_measure(trace, 8, &numbers), 0);
    put_step(trace, 0, 0);
    assert_int_equal(live_measure(trace, 8, &numbers), 0);
    put_step(trace, 1, 10000);
    assert_true(live_measure(trace, 8, &numbers) > 0);
    assert_int_equal(numbers.measured_steps, 1);
    expect_the_step_of_put_step(&numbers);
    yoke_trace_destroy(trace);
}

static void a_full_ring_is_no_hindrance(void **state) {
    (void)state;
    yoke_trace *trace = start(16);
    live_numbers numbers = {.device_count = LANES};
    for (uint64_t step = 0; step < 100; step++)
        put_step(trace, step, 10000 * step);
    assert_true(live_measure(trace, 32, &numbers) > 0);
    assert_true(numbers.measured_steps >= 3);
    expect_the_step_of_put_step(&numbers);
    yoke_trace_destroy(trace);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_and_stages_make_the_whole),
        cmocka_unit_test(evaluations_do_not_count),
        cmocka_unit_test(a_first_step_is_not_enough),
        cmocka_unit_test(a_full_ring_is_no_hindrance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
