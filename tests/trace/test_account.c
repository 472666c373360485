/* SPDX-License-Identifier: Apache-2.0 */
/* The account of a device: at every instant one stage or none, and all of them make the step. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trace/account.h"
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

static void read_accounts(const yoke_trace *trace, yoke_account_window window,
                          yoke_account accounts[LANES]) {
    yoke_spans spans;
    assert_int_equal(yoke_spans_read(trace, 0, &spans), YOKE_OK);
    assert_int_equal(yoke_account_read(&spans, &window, accounts, LANES), YOKE_OK);
    yoke_spans_free(&spans);
}

static void expect(double found, double wanted) {
    if (fabs(found - wanted) > 1e-9) fail_msg("%.12g, expected %.12g", found, wanted);
}

static void expect_a_whole(const yoke_account *account) {
    double sum = 0;
    for (int stage = 0; stage < YOKE_ACCOUNT_STAGES; stage++)
        sum += account->stage_ms[stage];
    expect(sum, account->step_ms);
}

/* The rule, on one lane from 0 to 10 us. */

typedef struct row {
    yoke_stage stage;
    uint64_t begin, end;
} row;

/* Expects pieces as rows; YOKE_STAGE_IDLE where none counts. */
static void expect_pieces(const row *spans, size_t count, const row *wanted, size_t wanted_count) {
    yoke_span_info all[8];
    const yoke_span_info *list[8];
    yoke_piece pieces[17];
    for (size_t i = 0; i < count; i++) {
        all[i] = (yoke_span_info){
            .stage = spans[i].stage, .begin_ns = spans[i].begin, .end_ns = spans[i].end};
        list[i] = &all[i];
    }
    assert_int_equal(yoke_account_cut(list, count, 0, 10, pieces), wanted_count);
    for (size_t i = 0; i < wanted_count; i++) {
        int stage = pieces[i].span != NULL ? (int)pieces[i].span->stage : YOKE_STAGE_IDLE;
        assert_int_equal(stage, wanted[i].stage);
        assert_int_equal(pieces[i].begin_ns, wanted[i].begin);
        assert_int_equal(pieces[i].end_ns, wanted[i].end);
    }
}

#define ROWS(...) (const row[]){__VA_ARGS__}, sizeof((const row[]){__VA_ARGS__}) / sizeof(row)
#define IDLE ((yoke_stage)YOKE_STAGE_IDLE)

static void gaps_are_idle(void **state) {
    (void)state;
    expect_pieces(ROWS({YOKE_STAGE_BACKWARD, 5, 8}, {YOKE_STAGE_FORWARD, 1, 4}),
                  ROWS({IDLE, 0, 1}, {YOKE_STAGE_FORWARD, 1, 4}, {IDLE, 4, 5},
                       {YOKE_STAGE_BACKWARD, 5, 8}, {IDLE, 8, 10}));
    expect_pieces(NULL, 0, ROWS({IDLE, 0, 10}));
}

static void an_all_reduce_behind_backward_shows_its_end_alone(void **state) {
    (void)state;
    expect_pieces(ROWS({YOKE_STAGE_BACKWARD, 0, 6}, {YOKE_STAGE_ALL_REDUCE, 2, 9}),
                  ROWS({YOKE_STAGE_BACKWARD, 0, 6}, {YOKE_STAGE_ALL_REDUCE, 6, 9}, {IDLE, 9, 10}));
    expect_pieces(ROWS({YOKE_STAGE_BACKWARD, 0, 10}, {YOKE_STAGE_ALL_REDUCE, 2, 9}),
                  ROWS({YOKE_STAGE_BACKWARD, 0, 10}));
}

static void the_inner_of_two_spans_of_a_kind_counts(void **state) {
    (void)state;
    expect_pieces(
        ROWS({YOKE_STAGE_FORWARD, 0, 10}, {YOKE_STAGE_PYTHON, 2, 4}),
        ROWS({YOKE_STAGE_FORWARD, 0, 2}, {YOKE_STAGE_PYTHON, 2, 4}, {YOKE_STAGE_FORWARD, 4, 10}));
    expect_pieces(ROWS({YOKE_STAGE_PYTHON, 0, 3}, {YOKE_STAGE_FORWARD, 0, 10}), /* begin together */
                  ROWS({YOKE_STAGE_PYTHON, 0, 3}, {YOKE_STAGE_FORWARD, 3, 10}));
}

/* The root's link carries all gradients while its worker waits, and the other way round. */
static void communication_counts_before_a_wait_around_it_or_in_it(void **state) {
    (void)state;
    expect_pieces(ROWS({YOKE_STAGE_REDUCE, 0, 10}, {YOKE_STAGE_WAIT, 2, 4}),
                  ROWS({YOKE_STAGE_REDUCE, 0, 10}));
    expect_pieces(
        ROWS({YOKE_STAGE_WAIT, 0, 10}, {YOKE_STAGE_REDUCE, 2, 4}),
        ROWS({YOKE_STAGE_WAIT, 0, 2}, {YOKE_STAGE_REDUCE, 2, 4}, {YOKE_STAGE_WAIT, 4, 10}));
}

static void the_span_that_began_last_counts_until_it_ends(void **state) {
    (void)state;
    expect_pieces(ROWS({YOKE_STAGE_SCATTER, 0, 5}, {YOKE_STAGE_REPLICATE, 3, 10}),
                  ROWS({YOKE_STAGE_SCATTER, 0, 3}, {YOKE_STAGE_REPLICATE, 3, 10}));
}

static void spans_are_cut_at_the_ends_and_whole_steps_do_not_count(void **state) {
    (void)state;
    expect_pieces(ROWS({YOKE_STAGE_STEP, 0, 10}, {YOKE_STAGE_EVALUATE, 0, 10},
                       {YOKE_STAGE_UPDATE, 8, 30}, {YOKE_STAGE_LOSS, 3, 3}),
                  ROWS({IDLE, 0, 8}, {YOKE_STAGE_UPDATE, 8, 10}));
}

/* Accounts. */

/* A step from 10 to 20 ms; lane 1 starts late and ends early. */
static void time_outside_all_stages_is_idle(void **state) {
    (void)state;
    yoke_account accounts[LANES];
    yoke_trace *trace = start(64);
    put(trace, 0, YOKE_STAGE_FORWARD, 0, 10000, 13000, 0);
    put(trace, 0, YOKE_STAGE_BACKWARD, 0, 14000, 19000, 0);
    put(trace, 1, YOKE_STAGE_FORWARD, 0, 12000, 14000, 0);
    put(trace, 0, YOKE_STAGE_STEP, 0, 10000, 20000, 0);
    read_accounts(trace, (yoke_account_window){10000 * US, 20000 * US, 1}, accounts);
    expect(accounts[0].stage_ms[YOKE_STAGE_FORWARD], 3);
    expect(accounts[0].stage_ms[YOKE_STAGE_BACKWARD], 5);
    expect(accounts[0].stage_ms[YOKE_STAGE_IDLE], 2);
    expect(accounts[1].stage_ms[YOKE_STAGE_FORWARD], 2);
    expect(accounts[1].stage_ms[YOKE_STAGE_IDLE], 8);
    for (int lane = 0; lane < LANES; lane++) {
        expect(accounts[lane].step_ms, 10);
        expect_a_whole(&accounts[lane]);
    }
    yoke_trace_destroy(trace);
}

/* As on a GPU, where a copy stream runs behind backward. */
static void communication_behind_computation_costs_nothing(void **state) {
    (void)state;
    yoke_account accounts[LANES];
    yoke_trace *trace = start(64);
    put(trace, 0, YOKE_STAGE_EXCHANGE, 0, 2000, 9000, 600);
    put(trace, 0, YOKE_STAGE_BACKWARD, 0, 0, 6000, 0);
    put(trace, 0, YOKE_STAGE_STEP, 0, 0, 10000, 0);
    read_accounts(trace, (yoke_account_window){0, 10000 * US, 1}, accounts);
    expect(accounts[0].stage_ms[YOKE_STAGE_BACKWARD], 6);
    expect(accounts[0].stage_ms[YOKE_STAGE_EXCHANGE], 3);
    expect(accounts[0].stage_ms[YOKE_STAGE_IDLE], 1);
    expect(accounts[0].bytes[YOKE_STAGE_EXCHANGE], 600);
    expect_a_whole(&accounts[0]);
    yoke_trace_destroy(trace);
}

static void an_account_is_the_mean_of_the_steps_in_the_window(void **state) {
    (void)state;
    yoke_account accounts[LANES];
    yoke_trace *trace = start(64);
    put(trace, 0, YOKE_STAGE_UPDATE, 0, 0, 900, 10); /* before the window */
    put(trace, 0, YOKE_STAGE_STEP, 0, 0, 1000, 0);
    for (uint64_t step = 1; step <= 4; step++) {
        put(trace, 0, YOKE_STAGE_UPDATE, step, 1000 * step, 1000 * step + 100 * step, 10);
        put(trace, 0, YOKE_STAGE_STEP, step, 1000 * step, 1000 * step + 1000, 0);
    }
    read_accounts(trace, (yoke_account_window){1000 * US, 5000 * US, 4}, accounts);
    expect(accounts[0].stage_ms[YOKE_STAGE_UPDATE], 0.25);
    expect(accounts[0].bytes[YOKE_STAGE_UPDATE], 10);
    expect(accounts[0].step_ms, 1);
    expect_a_whole(&accounts[0]);
    yoke_trace_destroy(trace);
}

/* A ring of seven spans has lost a part of the first step. */
static void steps_that_the_trace_has_lost_do_not_count(void **state) {
    (void)state;
    yoke_account accounts[LANES];
    yoke_trace *trace = start(7);
    for (uint64_t step = 0; step < 4; step++) {
        put(trace, 0, YOKE_STAGE_UPDATE, step, 1000 * step, 1000 * step + 500, 10);
        put(trace, 0, YOKE_STAGE_STEP, step, 1000 * step, 1000 * step + 1000, 0);
    }
    read_accounts(trace, (yoke_account_window){0, 4000 * US, 4}, accounts);
    expect(accounts[0].stage_ms[YOKE_STAGE_UPDATE], 0.5);
    expect(accounts[0].step_ms, 1);
    expect(accounts[0].bytes[YOKE_STAGE_UPDATE], 10);
    yoke_trace_destroy(trace);
}

/* The lost step was shorter than the others: idle time must not become negative. */
static void steps_that_are_left_stand_for_those_that_are_lost(void **state) {
    (void)state;
    yoke_account accounts[LANES];
    yoke_trace *trace = start(7);
    put(trace, 0, YOKE_STAGE_UPDATE, 0, 0, 100, 10);
    put(trace, 0, YOKE_STAGE_STEP, 0, 0, 200, 0);
    for (uint64_t step = 1; step < 4; step++) {
        uint64_t begin = 200 + 1000 * (step - 1);
        put(trace, 0, YOKE_STAGE_UPDATE, step, begin, begin + 1000, 10);
        put(trace, 0, YOKE_STAGE_STEP, step, begin, begin + 1000, 0);
    }
    read_accounts(trace, (yoke_account_window){0, 3200 * US, 4}, accounts);
    yoke_account_stretch(&accounts[0], 0.8);
    expect(accounts[0].stage_ms[YOKE_STAGE_UPDATE], 0.8);
    expect(accounts[0].stage_ms[YOKE_STAGE_IDLE], 0);
    expect_a_whole(&accounts[0]);
    yoke_trace_destroy(trace);
}

static void a_longer_step_is_more_idle_time(void **state) {
    (void)state;
    yoke_account account = {.step_ms = 4,
                            .stage_ms = {[YOKE_STAGE_FORWARD] = 3, [YOKE_STAGE_IDLE] = 1}};
    yoke_account_stretch(&account, 6);
    expect(account.step_ms, 6);
    expect(account.stage_ms[YOKE_STAGE_IDLE], 3);
    expect(account.stage_ms[YOKE_STAGE_FORWARD], 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gaps_are_idle),
        cmocka_unit_test(an_all_reduce_behind_backward_shows_its_end_alone),
        cmocka_unit_test(the_inner_of_two_spans_of_a_kind_counts),
        cmocka_unit_test(communication_counts_before_a_wait_around_it_or_in_it),
        cmocka_unit_test(the_span_that_began_last_counts_until_it_ends),
        cmocka_unit_test(spans_are_cut_at_the_ends_and_whole_steps_do_not_count),
        cmocka_unit_test(time_outside_all_stages_is_idle),
        cmocka_unit_test(communication_behind_computation_costs_nothing),
        cmocka_unit_test(an_account_is_the_mean_of_the_steps_in_the_window),
        cmocka_unit_test(steps_that_the_trace_has_lost_do_not_count),
        cmocka_unit_test(steps_that_are_left_stand_for_those_that_are_lost),
        cmocka_unit_test(a_longer_step_is_more_idle_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
