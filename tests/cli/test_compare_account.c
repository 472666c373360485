/* SPDX-License-Identifier: Apache-2.0 */
/* The account of a device: at every instant one stage or none, and all of them make the step. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cli/compare/compare_account.h"
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
                uint64_t end_us, uint64_t bytes) {
    yoke_span span = {.begin_ns = begin_us * US,
                      .end_ns = end_us * US,
                      .step = step,
                      .bytes = bytes,
                      .stage = stage};
    yoke_trace_past_span(trace, lane, &span);
}

static void read_accounts(const yoke_trace *trace, compare_window window,
                          compare_account accounts[LANES]) {
    compare_spans spans;
    assert_int_equal(compare_spans_read(trace, &spans), YOKE_OK);
    assert_int_equal(compare_account_read(&spans, &window, accounts, LANES), YOKE_OK);
    compare_spans_free(&spans);
}

static void expect(double found, double wanted) {
    if (fabs(found - wanted) > 1e-9) fail_msg("%.12g, expected %.12g", found, wanted);
}

static void expect_a_whole(const compare_account *account) {
    double sum = account->idle_ms;
    for (int stage = 0; stage < YOKE_STAGE_COUNT; stage++)
        sum += account->stage_ms[stage];
    expect(sum, account->step_ms);
}

/* A step from 10 to 20 ms; lane 1 starts late and ends early. */
static void time_outside_all_stages_is_idle(void **state) {
    (void)state;
    compare_account accounts[LANES];
    yoke_trace *trace = start(64);
    put(trace, 0, YOKE_STAGE_FORWARD, 0, 10000, 13000, 0);
    put(trace, 0, YOKE_STAGE_BACKWARD, 0, 14000, 19000, 0);
    put(trace, 1, YOKE_STAGE_FORWARD, 0, 12000, 14000, 0);
    put(trace, 0, YOKE_STAGE_STEP, 0, 10000, 20000, 0);
    read_accounts(trace, (compare_window){10000 * US, 20000 * US, 1}, accounts);
    expect(accounts[0].stage_ms[YOKE_STAGE_FORWARD], 3);
    expect(accounts[0].stage_ms[YOKE_STAGE_BACKWARD], 5);
    expect(accounts[0].idle_ms, 2);
    expect(accounts[1].stage_ms[YOKE_STAGE_FORWARD], 2);
    expect(accounts[1].idle_ms, 8);
    for (int lane = 0; lane < LANES; lane++) {
        expect(accounts[lane].step_ms, 10);
        expect_a_whole(&accounts[lane]);
    }
    yoke_trace_destroy(trace);
}

/* As on a GPU, where a copy stream runs behind backward. */
static void communication_behind_computation_costs_nothing(void **state) {
    (void)state;
    compare_account accounts[LANES];
    yoke_trace *trace = start(64);
    put(trace, 0, YOKE_STAGE_EXCHANGE, 0, 2000, 9000, 600);
    put(trace, 0, YOKE_STAGE_BACKWARD, 0, 0, 6000, 0);
    put(trace, 0, YOKE_STAGE_STEP, 0, 0, 10000, 0);
    read_accounts(trace, (compare_window){0, 10000 * US, 1}, accounts);
    expect(accounts[0].stage_ms[YOKE_STAGE_BACKWARD], 6);
    expect(accounts[0].stage_ms[YOKE_STAGE_EXCHANGE], 3);
    expect(accounts[0].idle_ms, 1);
    expect(accounts[0].bytes[YOKE_STAGE_EXCHANGE], 600);
    expect_a_whole(&accounts[0]);
    yoke_trace_destroy(trace);
}

static void an_account_is_the_mean_of_the_steps_in_the_window(void **state) {
    (void)state;
    compare_account accounts[LANES];
    yoke_trace *trace = start(64);
    put(trace, 0, YOKE_STAGE_UPDATE, 0, 0, 900, 10); /* before the window */
    put(trace, 0, YOKE_STAGE_STEP, 0, 0, 1000, 0);
    for (uint64_t step = 1; step <= 4; step++) {
        put(trace, 0, YOKE_STAGE_UPDATE, step, 1000 * step, 1000 * step + 100 * step, 10);
        put(trace, 0, YOKE_STAGE_STEP, step, 1000 * step, 1000 * step + 1000, 0);
    }
    read_accounts(trace, (compare_window){1000 * US, 5000 * US, 4}, accounts);
    expect(accounts[0].stage_ms[YOKE_STAGE_UPDATE], 0.25);
    expect(accounts[0].bytes[YOKE_STAGE_UPDATE], 10);
    expect(accounts[0].step_ms, 1);
    expect_a_whole(&accounts[0]);
    yoke_trace_destroy(trace);
}

/* A ring of seven spans has lost a part of the first step. */
static void steps_that_the_trace_has_lost_do_not_count(void **state) {
    (void)state;
    compare_account accounts[LANES];
    yoke_trace *trace = start(7);
    for (uint64_t step = 0; step < 4; step++) {
        put(trace, 0, YOKE_STAGE_UPDATE, step, 1000 * step, 1000 * step + 500, 10);
        put(trace, 0, YOKE_STAGE_STEP, step, 1000 * step, 1000 * step + 1000, 0);
    }
    read_accounts(trace, (compare_window){0, 4000 * US, 4}, accounts);
    expect(accounts[0].stage_ms[YOKE_STAGE_UPDATE], 0.5);
    expect(accounts[0].step_ms, 1);
    expect(accounts[0].bytes[YOKE_STAGE_UPDATE], 10);
    yoke_trace_destroy(trace);
}

/* The lost step was shorter than the others: idle time must not become negative. */
static void steps_that_are_left_stand_for_those_that_are_lost(void **state) {
    (void)state;
    compare_account accounts[LANES];
    yoke_trace *trace = start(7);
    put(trace, 0, YOKE_STAGE_UPDATE, 0, 0, 100, 10);
    put(trace, 0, YOKE_STAGE_STEP, 0, 0, 200, 0);
    for (uint64_t step = 1; step < 4; step++) {
        uint64_t begin = 200 + 1000 * (step - 1);
        put(trace, 0, YOKE_STAGE_UPDATE, step, begin, begin + 1000, 10);
        put(trace, 0, YOKE_STAGE_STEP, step, begin, begin + 1000, 0);
    }
    read_accounts(trace, (compare_window){0, 3200 * US, 4}, accounts);
    compare_account_stretch(&accounts[0], 0.8);
    expect(accounts[0].stage_ms[YOKE_STAGE_UPDATE], 0.8);
    expect(accounts[0].idle_ms, 0);
    expect_a_whole(&accounts[0]);
    yoke_trace_destroy(trace);
}

static void a_longer_step_is_more_idle_time(void **state) {
    (void)state;
    compare_account account = {.step_ms = 4, .idle_ms = 1, .stage_ms = {[YOKE_STAGE_FORWARD] = 3}};
    compare_account_stretch(&account, 6);
    expect(account.step_ms, 6);
    expect(account.idle_ms, 3);
    expect(account.stage_ms[YOKE_STAGE_FORWARD], 3);
}

static compare_step read_step(const yoke_trace *trace, uint64_t number, yoke_span_info *spans,
                              int capacity) {
    compare_spans all;
    compare_step step = {.number = number, .milliseconds = 6, .spans = spans};
    assert_int_equal(compare_spans_read(trace, &all), YOKE_OK);
    compare_step_read(&all, &step, capacity);
    compare_spans_free(&all);
    return step;
}

/* Steps of 4 and 7 ms. */
static void spans_beyond_the_room_are_counted(void **state) {
    (void)state;
    yoke_span_info spans[4];
    yoke_trace *trace = start(64);
    put(trace, 0, YOKE_STAGE_STEP, 0, 0, 4000, 0);
    put(trace, 0, YOKE_STAGE_STEP, 1, 5000, 12000, 0);
    for (uint64_t i = 0; i < 5; i++)
        put(trace, 1, YOKE_STAGE_FORWARD, 1, 5000 + i * 100, 5050 + i * 100, 0);
    compare_step step = read_step(trace, COMPARE_NO_STEP, spans, 4);
    assert_int_equal(step.number, 1);
    assert_int_equal(step.count, 4);
    assert_int_equal(step.left_out, 1);
    expect(step.milliseconds, 7);
    assert_int_equal(read_step(trace, 1, spans, 4).left_out, 1);
    assert_int_equal(read_step(trace, 2, spans, 4).count, 0); /* no such step */
    yoke_trace_destroy(trace);
}

/* Rank 1 begins 2 ms before rank 0 and ends 3 ms after it. */
static void a_step_lasts_until_the_last_rank_ends(void **state) {
    (void)state;
    yoke_span_info spans[8], parts[2][4];
    compare_step both = {.spans = spans};
    for (uint64_t rank = 0; rank < 2; rank++) {
        yoke_trace *trace = start(64);
        uint64_t begin = 10000 - 2000 * rank, end = 20000 + 3000 * rank;
        put(trace, 0, YOKE_STAGE_STEP, 7, begin, end, 0);
        put(trace, 0, YOKE_STAGE_FORWARD, 7, begin, begin + 1000, 0);
        put(trace, 0, YOKE_STAGE_BACKWARD, 7, end - 1000, end, 0);
        compare_step part = read_step(trace, 7, parts[rank], 1 + 2 * (int)rank);
        if (rank == 0) both.begin_ns = part.begin_ns;
        compare_step_join(&both, &part, (int)rank);
        yoke_trace_destroy(trace);
    }
    assert_int_equal(both.count, 3);
    assert_int_equal(both.left_out, 1); /* rank 0 had room for one */
    assert_int_equal(both.begin_ns, 8000 * US);
    expect(both.milliseconds, 15);
    assert_int_equal(spans[2].lane, 1);
    assert_int_equal(spans[2].end_ns, both.end_ns);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(time_outside_all_stages_is_idle),
        cmocka_unit_test(communication_behind_computation_costs_nothing),
        cmocka_unit_test(an_account_is_the_mean_of_the_steps_in_the_window),
        cmocka_unit_test(steps_that_the_trace_has_lost_do_not_count),
        cmocka_unit_test(steps_that_are_left_stand_for_those_that_are_lost),
        cmocka_unit_test(spans_beyond_the_room_are_counted),
        cmocka_unit_test(a_step_lasts_until_the_last_rank_ends),
        cmocka_unit_test(a_longer_step_is_more_idle_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
