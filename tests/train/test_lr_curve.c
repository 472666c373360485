/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of a range test, beside numpy's in float64
 * (tests/fixtures/make_lr_find_fixture.py). */
#include <string.h>

#include "fixtures/fixture.h"
#include "train/lr_curve.h"

static yoke_lr_curve begin(const yoke_lr_find_options *options) {
    yoke_lr_curve curve = {0};
    must(yoke_lr_curve_create(&curve, options));
    return curve;
}

static void compare(const json_t *wanted) {
    yoke_lr_find_options options = YOKE_LR_FIND_OPTIONS_INIT;
    options.steps = integer(wanted, "steps");
    options.smoothing = real(wanted, "smoothing");
    yoke_lr_curve curve = begin(&options);
    size_t count = json_array_size(json_object_get(wanted, "rates"));
    for (size_t i = 0; i < count; i++) {
        assert_false(curve.diverged);
        near(yoke_lr_curve_rate(&curve), real_at(wanted, "rates", i), 1e-12, 0, "rate");
        yoke_lr_curve_add(&curve, real_at(wanted, "losses", i));
        near(curve.smoothed[i], real_at(wanted, "smoothed", i), 1e-12, 1e-3, "smoothed");
    }
    assert_int_equal(curve.count, (int)count);
    assert_int_equal(curve.diverged, truth(wanted, "diverged"));
    yoke_lr_curve_suggest(&curve);
    assert_int_equal(curve.suggested, integer(wanted, "suggested"));
    double tenth = real_at(wanted, "rates", (size_t)integer(wanted, "lowest")) / 10;
    near(curve.cautious, fmin(tenth, curve.rates[curve.suggested]), 1e-12, 0, "cautious");
    yoke_lr_curve_clear(&curve);
}

static void curves_and_suggestions_are_those_of_fastai_and_lightning(void **state) {
    (void)state;
    json_t *fixture = read_fixture("lr_find"), *curves = json_object_get(fixture, "curves"), *one;
    size_t i;
    assert_int_equal(json_array_size(curves), 4);
    json_array_foreach(curves, i, one) compare(one);
    json_decref(fixture);
}

/* By hand: 0.5 * 4 / 0.5 = 4; (0.25 * 4 + 0.5 * 2) / 0.75 = 8 / 3. */
static void the_first_smoothed_loss_is_the_first_loss(void **state) {
    (void)state;
    yoke_lr_find_options options = YOKE_LR_FIND_OPTIONS_INIT;
    options.smoothing = 0.5;
    yoke_lr_curve curve = begin(&options);
    yoke_lr_curve_add(&curve, 4);
    yoke_lr_curve_add(&curve, 2);
    assert_true(curve.smoothed[0] == 4);
    assert_true(fabs(curve.smoothed[1] - 8.0 / 3) < 1e-15);
    yoke_lr_curve_clear(&curve);
}

static void a_loss_without_a_fall_gets_no_suggestion(void **state) {
    (void)state;
    for (int noisy = 0; noisy < 2; noisy++) {
        yoke_lr_curve curve = begin(NULL);
        for (int i = 0; i < 100; i++)
            yoke_lr_curve_add(&curve, 2 + (noisy ? 0.1 * sin(1.7 * i * i) : 0.0));
        yoke_lr_curve_suggest(&curve);
        assert_int_equal(curve.suggested, -1);
        assert_non_null(strstr(curve.text, "no suggestion: between rates of 1e-07 and 10 "));
        assert_non_null(strstr(curve.text, "never falls"));
        assert_non_null(strstr(curve.text, "take more steps or a larger batch"));
        yoke_lr_curve_clear(&curve);
    }
}

/* Nearly normal: the sum of twelve uniform numbers. */
static double draw(uint64_t *state) {
    double sum = -6;
    for (int i = 0; i < 12; i++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        sum += (double)(*state >> 11) / (double)(1ull << 53);
    }
    return sum;
}

/* Losses that fall from 2.3 to 1.3 around a rate of 0.01, in noise as of small batches: nothing
 * happens below 0.001. */
static void noise_before_the_fall_is_not_suggested(void **state) {
    (void)state;
    const double noise[] = {0.05, 0.1, 0.2, 0.3, 0.5};
    for (size_t n = 0; n < sizeof noise / sizeof noise[0]; n++) {
        int suggestions = 0;
        for (uint64_t seed = 0; seed < 50; seed++) {
            uint64_t drawn = seed;
            yoke_lr_curve curve = begin(NULL);
            while (curve.count < 100 && !curve.diverged) {
                double at = log10(yoke_lr_curve_rate(&curve)), far = at > -0.5 ? at + 0.5 : 0;
                yoke_lr_curve_add(&curve, 2.3 - 1 / (1 + exp(-4 * (at + 2))) + 20 * far * far +
                                              noise[n] * draw(&drawn));
            }
            yoke_lr_curve_suggest(&curve);
            suggestions += curve.suggested >= 0;
            if (curve.suggested >= 0 && curve.rates[curve.suggested] < 1e-3)
                fail_msg("noise %g, seed %d: a rate of %g is suggested", noise[n], (int)seed,
                         curve.rates[curve.suggested]);
            yoke_lr_curve_clear(&curve);
        }
        if (noise[n] < 0.25) assert_true(suggestions >= 45);
    }
}

/* A recovery behind the explosion is steeper than the fall before it. */
static void a_fall_behind_the_lowest_loss_is_not_suggested(void **state) {
    (void)state;
    yoke_lr_find_options options = YOKE_LR_FIND_OPTIONS_INIT;
    options.smoothing = 0;
    options.divergence = 100;
    yoke_lr_curve curve = begin(&options);
    for (int i = 0; i < 100; i++)
        yoke_lr_curve_add(&curve, i < 40 ? 2.0 : i < 60 ? 2 - 0.05 * (i - 40) : i < 70 ? 9.0 : 3.0);
    yoke_lr_curve_suggest(&curve);
    assert_true(curve.suggested >= 40 && curve.suggested < 60);
    yoke_lr_curve_clear(&curve);
}

static void a_curve_that_ends_at_once_says_where(void **state) {
    (void)state;
    yoke_lr_curve curve = begin(NULL);
    for (int i = 0; i < 5; i++)
        yoke_lr_curve_add(&curve, 2);
    yoke_lr_curve_add(&curve, INFINITY);
    assert_true(curve.diverged && curve.count == 5);
    yoke_lr_curve_suggest(&curve);
    assert_int_equal(curve.suggested, -1);
    assert_non_null(strstr(curve.text, "the loss diverges behind step 5, at a rate of 2.54e-07"));
    yoke_lr_curve_clear(&curve);
}

static void a_negative_loss_that_falls_does_not_diverge(void **state) {
    (void)state;
    yoke_lr_curve curve = begin(NULL);
    for (int i = 0; i < 100; i++)
        yoke_lr_curve_add(&curve, -1 - 0.01 * i);
    assert_false(curve.diverged);
    yoke_lr_curve_clear(&curve);
}

static void refuse(const yoke_lr_find_options *options, const char *text) {
    yoke_lr_curve curve = {0};
    assert_int_equal(yoke_lr_curve_create(&curve, options), YOKE_ERROR_ARGUMENT);
    if (strstr(yoke_last_error(), text) == NULL)
        fail_msg("'%s' lacks '%s'", yoke_last_error(), text);
}

static void senseless_options_are_refused_with_their_value(void **state) {
    (void)state;
    const yoke_lr_find_options usual = YOKE_LR_FIND_OPTIONS_INIT;
    yoke_lr_find_options options = usual;
    options.steps = 19;
    refuse(&options, "is 19: from 20 to 1000000");
    options = usual;
    options.lowest = -1;
    refuse(&options, "from -1 to 10");
    options = usual;
    options.highest = options.lowest = 1e-7;
    refuse(&options, "from 1e-07 to 1e-07");
    options.highest = (double)NAN;
    refuse(&options, "to nan");
    options.highest = INFINITY;
    refuse(&options, "to inf");
    options.lowest = 1e-300;
    options.highest = 1e300;
    refuse(&options, "their quotient finite");
    options = usual;
    options.smoothing = 1;
    refuse(&options, "smoothing is 1");
    options = usual;
    options.divergence = 1;
    refuse(&options, "divergence is 1: above 1");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(curves_and_suggestions_are_those_of_fastai_and_lightning),
        cmocka_unit_test(the_first_smoothed_loss_is_the_first_loss),
        cmocka_unit_test(a_loss_without_a_fall_gets_no_suggestion),
        cmocka_unit_test(noise_before_the_fall_is_not_suggested),
        cmocka_unit_test(a_fall_behind_the_lowest_loss_is_not_suggested),
        cmocka_unit_test(a_curve_that_ends_at_once_says_where),
        cmocka_unit_test(a_negative_loss_that_falls_does_not_diverge),
        cmocka_unit_test(senseless_options_are_refused_with_their_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
