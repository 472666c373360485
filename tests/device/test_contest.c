/* SPDX-License-Identifier: Apache-2.0 */
/* Which candidate wins a contest, and how often each one runs, where the times are known. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "device/cpu/contest.h"

enum { RUNS = 16, DOES_NOT_SERVE = -1, FAILS = -2 };

typedef struct script {
    double times[3][RUNS]; /* of each candidate's runs, milliseconds */
    int runs[3];
} script;

static yoke_status play(void *context, int candidate, double *milliseconds) {
    script *self = context;
    assert_in_range(self->runs[candidate], 0, RUNS - 1);
    *milliseconds = self->times[candidate][self->runs[candidate]++];
    if (*milliseconds == DOES_NOT_SERVE) return FAIL(YOKE_ERROR_DEVICE, "does not serve");
    return *milliseconds == FAILS ? FAIL(YOKE_ERROR_SYSTEM, "fails") : YOKE_OK;
}

static void expect_of(bool cold, script played, int count, int best, double best_ms,
                      const int runs[3]) {
    const cpu_contest contest = {.count = count, .run = play, .context = &played, .cold = cold};
    int found;
    double milliseconds;
    assert_int_equal(cpu_contest_hold(&contest, NULL, &found, &milliseconds), YOKE_OK);
    assert_int_equal(found, best);
    if (best >= 0) assert_true(milliseconds == best_ms);
    for (int i = 0; i < 3; i++)
        assert_int_equal(played.runs[i], runs[i]);
}

static void expect(script played, int count, int best, double best_ms, const int runs[3]) {
    expect_of(false, played, count, best, best_ms, runs);
}

#define RAN(...) ((const int[3]){__VA_ARGS__})

static void nothing_to_choose_runs_nothing(void **state) {
    (void)state;
    expect((script){0}, 1, 0, 0, RAN(0, 0, 0));
    expect((script){0}, 0, -1, 0, RAN(0, 0, 0));
}

static void close_candidates_run_in_every_heat_and_slower_ones_in_one(void **state) {
    (void)state;
    expect((script){.times = {{20, 20}, {9, 8, 8.5, 8}, {8.2, 8.1, 8.1, 7.9}}}, 3, 2, 7.9,
           RAN(2, 4, 4));
    expect((script){.times = {{8, 8}, {12, 11}, {20, 20}}}, 3, 0, 8, RAN(2, 2, 2));
}

static void only_a_run_behind_an_own_one_counts(void **state) {
    (void)state;
    expect((script){.times = {{6, 8, 6, 8}, {9, 7.5, 9, 7.5}}}, 2, 1, 7.5, RAN(4, 4, 0));
}

static void one_disturbed_run_drops_nobody(void **state) {
    (void)state;
    /* The fastest generates kernels in its first run; another program delays the other's second. */
    expect((script){.times = {{20, 20}, {33, 10, 10, 10}, {11, 30, 11, 11}}}, 3, 1, 10,
           RAN(2, 4, 4));
    expect((script){.times = {{5, 5}, {25, 3}}}, 2, 1, 3, RAN(2, 2, 0));
    expect((script){.times = {{10, 10, 10, 10}, {9, 90, 9, 9}}}, 2, 1, 9, RAN(4, 4, 0));
}

static void a_hopeless_candidate_runs_once(void **state) {
    (void)state;
    expect((script){.times = {{65, 60}, {400}, {70, 70}}}, 3, 0, 60, RAN(2, 1, 2));
    expect((script){.times = {{9, 8}, {75}}}, 2, 0, 8, RAN(2, 1, 0));
}

static void long_runs_are_run_twice(void **state) {
    (void)state;
    expect((script){.times = {{61, 62}, {60, 60}}}, 2, 1, 60, RAN(2, 2, 0));
}

static void short_runs_are_run_more_often(void **state) {
    (void)state;
    expect((script){.times = {{0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3,
                               0.3, 0.2},
                              {0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25,
                               0.25, 0.25, 0.25, 0.25, 0.25},
                              {0.4, 0.4}}},
           3, 0, 0.2, RAN(16, 16, 2));
}

/* In turn, so that each finds what the others left: the first heat does not count, and a slower
 * candidate stays, since without it the others would find their own data. */
static void a_cold_contest_drops_nobody(void **state) {
    (void)state;
    expect_of(true,
              (script){.times = {{1, 7, 7, 7, 7, 7, 7, 7},
                                 {20, 6, 6, 6, 6, 5, 6, 6},
                                 {30, 30, 30, 30, 30, 30, 30, 30}}},
              3, 1, 5, RAN(8, 8, 8));
}

static void what_does_not_serve_drops_out(void **state) {
    (void)state;
    expect((script){.times = {{DOES_NOT_SERVE}, {9, 9}}}, 2, 1, 9, RAN(1, 2, 0));
    expect((script){.times = {{8, 8, DOES_NOT_SERVE}, {9, 9, 9, 9}}}, 2, 1, 9, RAN(3, 4, 0));
    expect((script){.times = {{DOES_NOT_SERVE}, {DOES_NOT_SERVE}}}, 2, -1, 0, RAN(1, 1, 0));
}

static yoke_status refuse(void *context) {
    (void)context;
    return FAIL(YOKE_ERROR_DEVICE, "the hook fails");
}

static void a_failure_ends_the_contest(void **state) {
    (void)state;
    script failing = {.times = {{9, 9}, {FAILS}}}, unheard = {0};
    cpu_contest contest = {.count = 2, .run = play, .context = &failing};
    int best;
    double milliseconds;
    assert_int_equal(cpu_contest_hold(&contest, NULL, &best, &milliseconds), YOKE_ERROR_SYSTEM);
    /* An error of the hook ends a contest, too, whatever its status. */
    yoke_algorithms *algorithms = NULL;
    assert_int_equal(yoke_algorithms_create(&algorithms), YOKE_OK);
    yoke_algorithms_watch(algorithms, refuse, NULL);
    contest.context = &unheard;
    assert_int_equal(cpu_contest_hold(&contest, algorithms, &best, &milliseconds),
                     YOKE_ERROR_DEVICE);
    assert_int_equal(unheard.runs[0], 0);
    yoke_algorithms_destroy(algorithms);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_to_choose_runs_nothing),
        cmocka_unit_test(close_candidates_run_in_every_heat_and_slower_ones_in_one),
        cmocka_unit_test(only_a_run_behind_an_own_one_counts),
        cmocka_unit_test(one_disturbed_run_drops_nobody),
        cmocka_unit_test(a_hopeless_candidate_runs_once),
        cmocka_unit_test(long_runs_are_run_twice),
        cmocka_unit_test(short_runs_are_run_more_often),
        cmocka_unit_test(a_cold_contest_drops_nobody),
        cmocka_unit_test(what_does_not_serve_drops_out),
        cmocka_unit_test(a_failure_ends_the_contest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
