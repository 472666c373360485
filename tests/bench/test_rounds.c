/* SPDX-License-Identifier: Apache-2.0 */
/* The rounds of a race: fair turns, ratios within a round, an interval that holds them. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/compare/rounds.h"
#include "support/clock.h"

static yoke_status run_known(void *context, int steps, double *milliseconds) {
    const double *own = context;
    (void)steps;
    *milliseconds = *own;
    return YOKE_OK;
}

static yoke_status run_failing(void *context, int steps, double *milliseconds) {
    (void)context;
    (void)steps;
    *milliseconds = 1;
    return YOKE_ERROR_NUMERIC;
}

typedef struct diary {
    char turns[64]; /* who ran, in order */
    int count;
} diary;

typedef struct diarist {
    diary *diary;
    char name;
} diarist;

static yoke_status run_noting(void *context, int steps, double *milliseconds) {
    const diarist *self = context;
    (void)steps;
    if (self->diary->count < 63) self->diary->turns[self->diary->count++] = self->name;
    *milliseconds = 1;
    return YOKE_OK;
}

static void the_interval_of_equal_values_is_a_point(void **state) {
    (void)state;
    double values[9];
    for (int i = 0; i < 9; i++)
        values[i] = 1.5;
    race_ratio ratio = race_interval(values, 9);
    assert_true(ratio.median == 1.5 && ratio.low == 1.5 && ratio.high == 1.5);
}

static void the_interval_holds_the_median_and_ignores_one_outlier(void **state) {
    (void)state;
    double values[9] = {1.00, 1.01, 1.02, 1.03, 1.04, 1.05, 1.06, 1.07, 50};
    race_ratio ratio = race_interval(values, 9);
    assert_true(ratio.median == 1.04);
    assert_true(ratio.low >= 1.00 && ratio.low < 1.04);
    assert_true(ratio.high > 1.04 && ratio.high <= 1.07);
}

static void an_even_number_of_values_has_the_mean_of_the_middle_ones(void **state) {
    (void)state;
    double values[4] = {4, 1, 3, 2};
    assert_true(race_interval(values, 4).median == 2.5);
}

static void ratios_are_formed_within_a_round(void **state) {
    (void)state;
    /* Both slow down tenfold in the second round; b is always twice as slow. */
    rounds race = {.count = 2, .done = 3, .milliseconds = {{1, 2}, {10, 20}, {1.5, 3}}};
    race_ratio ratio = race_compare(&race, 0, 1, 1);
    assert_true(ratio.median == 2 && ratio.low == 2 && ratio.high == 2);
    assert_true(race_compare(&race, 0, 1, 3).median == 6);
    assert_true(race_times(&race, 0, 1).median == 1.5);
}

/* A speed-up beside step times must be their quotient: the median of the quotients would be 1. */
static void ratios_agree_with_the_times_beside_them(void **state) {
    (void)state;
    rounds race = {.count = 2, .done = 3, .milliseconds = {{10, 10}, {20, 40}, {30, 15}}};
    double a = race_times(&race, 0, 1).median, b = race_times(&race, 1, 1).median;
    assert_true(a == 20 && b == 15);
    assert_true(race_compare(&race, 0, 1, 1).median == b / a);
    assert_true(race_compare(&race, 1, 0, 1).median == a / b);
}

static void fewer_than_six_rounds_give_their_range(void **state) {
    (void)state;
    const double values[6] = {5, 1, 4, 2, 3, 2.5};
    race_ratio five = race_interval(values, 5), six = race_interval(values, 6);
    assert_true(five.median == 3 && five.low == 1 && five.high == 5);
    assert_true(six.low >= 1 && six.high < 5);
}

/* Two contenders of equal speed on a machine whose speed drifts: 95 % of the intervals hold 1. */
static void intervals_of_equal_contenders_hold_one(void **state) {
    (void)state;
    int held = 0, races = 300;
    srand(1);
    for (int i = 0; i < races; i++) {
        rounds race = {.count = 2, .done = RACE_INTERVAL_ROUNDS};
        for (int k = 0; k < race.done; k++) {
            double drift = 1 + 0.2 * rand() / RAND_MAX;
            race.milliseconds[k][0] = drift * (1 + 0.1 * rand() / RAND_MAX);
            race.milliseconds[k][1] = drift * (1 + 0.1 * rand() / RAND_MAX);
        }
        race_ratio ratio = race_compare(&race, 0, 1, 1);
        held += ratio.low <= 1 && ratio.high >= 1;
    }
    assert_true(held >= 0.92 * races);
}

static void noise_is_how_far_equals_part(void **state) {
    (void)state;
    rounds same = {.count = 2, .done = 3, .milliseconds = {{1, 1}, {2, 2}, {3, 3}}};
    rounds apart = {.count = 2, .done = 3, .milliseconds = {{1, 1.1}, {1, 1.1}, {1, 1.1}}};
    assert_true(race_noise(&same, 0, 1) == 0);
    assert_true(fabs(race_noise(&apart, 0, 1) - 0.1) < 1e-12);
}

static void a_race_measures_what_its_contenders_say(void **state) {
    (void)state;
    double a = 2, b = 3;
    rounds race = {.title = "known",
                   .contenders = {{run_known, &a}, {run_known, &b}},
                   .count = 2,
                   .rounds = 5,
                   .steps = 1,
                   .seconds = 0};
    assert_int_equal(race_run(&race), YOKE_OK);
    assert_true(race.done >= 3);
    assert_true(race_compare(&race, 0, 1, 1).median == 1.5);
}

static void steps_are_chosen_to_fill_half_a_second(void **state) {
    (void)state;
    double slow = 400, fast = 1;
    rounds race = {.contenders = {{run_known, &slow}}, .count = 1, .rounds = 3, .seconds = 10};
    assert_int_equal(race_run(&race), YOKE_OK);
    assert_int_equal(race.steps, 2);
    race = (rounds){.contenders = {{run_known, &fast}}, .count = 1, .rounds = 3, .seconds = 10};
    assert_int_equal(race_run(&race), YOKE_OK);
    assert_int_equal(race.steps, 500);
}

static void steps_are_fewer_when_the_rounds_would_not_fit_the_time(void **state) {
    (void)state;
    double a = 1, b = 3; /* 10 rounds of n steps take 40 n ms: 60 % of a second */
    rounds race = {
        .contenders = {{run_known, &a}, {run_known, &b}}, .count = 2, .rounds = 10, .seconds = 1};
    assert_int_equal(race_run(&race), YOKE_OK);
    assert_int_equal(race.steps, 15);
}

static yoke_status run_asleep(void *context, int steps, double *milliseconds) {
    (void)context;
    (void)steps;
    usleep(100000);
    *milliseconds = 100;
    return YOKE_OK;
}

static void a_race_ends_before_a_round_that_would_exceed_the_time(void **state) {
    (void)state;
    rounds race = {
        .contenders = {{run_asleep, NULL}}, .count = 1, .rounds = 99, .steps = 1, .seconds = 1.5};
    double begin = race_clock();
    assert_int_equal(race_run(&race), YOKE_OK);
    assert_true(race.done >= RACE_FEWEST && race.done < 15);
    /* 99 rounds take 10 s; a busy machine may make the last one longer than those before it. */
    if (race.done > RACE_FEWEST && judges_clock()) assert_true(race_clock() - begin < 2.5);
}

/* The processor time of helpers, as the gate asks for it before and after a round: where it
 * shrinks, others must have used the time. */
typedef struct false_clock {
    int calls, disturbed; /* rounds, the first ones */
} false_clock;

static double false_seconds(void *context) {
    false_clock *clock = context;
    int round = clock->calls / 2;
    bool after = clock->calls++ % 2 != 0;
    if (!after) return 0;
    return round < clock->disturbed ? -1000 : 1000;
}

static void disturbed_rounds_are_dropped_when_six_quiet_ones_are_there(void **state) {
    (void)state;
    double a = 1;
    false_clock clock = {.disturbed = 3};
    rounds race = {.contenders = {{run_known, &a}},
                   .count = 1,
                   .rounds = 6,
                   .steps = 1,
                   .seconds = 30,
                   .helpers = false_seconds,
                   .context = &clock};
    assert_int_equal(race_run(&race), YOKE_OK);
    assert_int_equal(race.done, 6);
    assert_int_equal(race.noisy, 0);
    assert_true(race.repeated >= 3 && race.number[0] >= 3);
    for (int i = 1; i < race.done; i++)
        assert_true(race.number[i] > race.number[i - 1]);
}

static void disturbed_rounds_are_counted_when_there_are_no_others(void **state) {
    (void)state;
    double a = 1;
    false_clock clock = {.disturbed = RACE_ROUNDS};
    rounds race = {.contenders = {{run_known, &a}},
                   .count = 1,
                   .rounds = 7,
                   .steps = 1,
                   .seconds = 0.5,
                   .helpers = false_seconds,
                   .context = &clock};
    assert_int_equal(race_run(&race), YOKE_OK);
    assert_in_range(race.done, 3, 7);
    assert_int_equal(race.noisy, race.done);
}

static void a_failing_contender_ends_the_race(void **state) {
    (void)state;
    double a = 1;
    rounds race = {.title = "failing",
                   .contenders = {{run_known, &a}, {run_failing, NULL}},
                   .count = 2,
                   .rounds = 3,
                   .steps = 1};
    assert_int_equal(race_run(&race), YOKE_ERROR_NUMERIC);
    assert_int_equal(race.done, 0);
}

static void every_contender_runs_once_a_round_in_changing_order(void **state) {
    (void)state;
    diary book = {.count = 0};
    diarist a = {&book, 'a'}, b = {&book, 'b'}, c = {&book, 'c'};
    rounds race = {.title = "turns",
                   .contenders = {{run_noting, &a}, {run_noting, &b}, {run_noting, &c}},
                   .count = 3,
                   .rounds = 12,
                   .steps = 1,
                   .seconds = 5};
    assert_int_equal(race_run(&race), YOKE_OK);
    bool changed = false;
    for (int i = 3; i + 3 <= book.count; i += 3) { /* the first three: warm-up */
        const char *turn = book.turns + i;
        assert_true(turn[0] != turn[1] && turn[1] != turn[2] && turn[0] != turn[2]);
        changed = changed || memcmp(turn, book.turns + 3, 3) != 0;
    }
    assert_true(changed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_interval_of_equal_values_is_a_point),
        cmocka_unit_test(the_interval_holds_the_median_and_ignores_one_outlier),
        cmocka_unit_test(an_even_number_of_values_has_the_mean_of_the_middle_ones),
        cmocka_unit_test(ratios_are_formed_within_a_round),
        cmocka_unit_test(noise_is_how_far_equals_part),
        cmocka_unit_test(a_race_measures_what_its_contenders_say),
        cmocka_unit_test(steps_are_chosen_to_fill_half_a_second),
        cmocka_unit_test(ratios_agree_with_the_times_beside_them),
        cmocka_unit_test(fewer_than_six_rounds_give_their_range),
        cmocka_unit_test(intervals_of_equal_contenders_hold_one),
        cmocka_unit_test(steps_are_fewer_when_the_rounds_would_not_fit_the_time),
        cmocka_unit_test(a_race_ends_before_a_round_that_would_exceed_the_time),
        cmocka_unit_test(disturbed_rounds_are_dropped_when_six_quiet_ones_are_there),
        cmocka_unit_test(disturbed_rounds_are_counted_when_there_are_no_others),
        cmocka_unit_test(a_failing_contender_ends_the_race),
        cmocka_unit_test(every_contender_runs_once_a_round_in_changing_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
