/* The rounds of a race: fair turns, ratios within a round, an interval that holds them. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "bench/race/rounds.h"

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
    rounds race = {.title = "slow", .contenders = {{run_known, &slow}}, .count = 1, .rounds = 3};
    assert_int_equal(race_run(&race), YOKE_OK);
    assert_int_equal(race.steps, 2);
    race = (rounds){.title = "fast", .contenders = {{run_known, &fast}}, .count = 1, .rounds = 3};
    assert_int_equal(race_run(&race), YOKE_OK);
    assert_int_equal(race.steps, 500);
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
        cmocka_unit_test(a_failing_contender_ends_the_race),
        cmocka_unit_test(every_contender_runs_once_a_round_in_changing_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
