/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers: the published vectors, the stated intervals and moments, no collisions. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"

/* philox4x32-10 in Random123's kat_vectors. */
typedef struct known_answer {
    uint32_t counter[4], key[2], words[4];
} known_answer;

static const known_answer known_answers[] = {
    {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
     {0xffffffff, 0xffffffff},
     {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
     {0xa4093822, 0x299f31d0},
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

static uint64_t pair(const uint32_t words[2]) {
    return (uint64_t)words[1] << 32 | words[0];
}

static void words_are_philox_4x32_10(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof known_answers / sizeof known_answers[0]; i++) {
        const known_answer *known = &known_answers[i];
        uint32_t words[4];
        /* The first use leaves the key as it is. */
        yoke_random_words(pair(known->key), (yoke_random_use)0, pair(known->counter),
                          known->counter[2], known->counter[3], words);
        assert_memory_equal(words, known->words, sizeof words);
    }
}

static void every_coordinate_gives_another_stream(void **state) {
    (void)state;
    const uint64_t seeds[] = {1, 2}, as[] = {0, 1, (uint64_t)1 << 32};
    enum { STREAMS = 2 * 5 * 3 * 2 * 2 };
    uint32_t drawn[STREAMS][4];
    size_t count = 0;
    for (size_t seed = 0; seed < 2; seed++)
        for (int use = YOKE_RANDOM_INIT; use <= YOKE_RANDOM_PROBE; use++)
            for (size_t a = 0; a < 3; a++)
                for (uint32_t rest = 0; rest < 4; rest++)
                    yoke_random_words(seeds[seed], (yoke_random_use)use, as[a], rest % 2, rest / 2,
                                      drawn[count++]);
    assert_int_equal(count, STREAMS);
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < i; j++)
            assert_memory_not_equal(drawn[i], drawn[j], sizeof drawn[i]);
}

static void a_unit_is_in_zero_to_below_one(void **state) {
    (void)state;
    assert_true(yoke_random_unit(0) == 0);
    assert_true(yoke_random_unit(UINT32_MAX) < 1);
    assert_true(yoke_random_unit(UINT32_MAX) == 1 - 0x1p-24f);
    assert_true(yoke_random_unit(0x80000000) == 0.5f);
}

enum { DRAWS = 200000 };
static float values[DRAWS];

static void moments(double *mean, double *std) {
    double sum = 0, squares = 0;
    for (size_t i = 0; i < DRAWS; i++)
        sum += (double)values[i];
    *mean = sum / (double)DRAWS;
    for (size_t i = 0; i < DRAWS; i++)
        squares += ((double)values[i] - *mean) * ((double)values[i] - *mean);
    *std = sqrt(squares / (double)DRAWS);
}

/* Bounds are six standard errors. */
static void uniform_numbers_fill_their_interval(void **state) {
    (void)state;
    yoke_random_uniform(values, DRAWS, -2, 6, 42, YOKE_RANDOM_INIT, 7);
    double mean, std, lowest = 6, highest = -2;
    for (size_t i = 0; i < DRAWS; i++) {
        lowest = fmin(lowest, (double)values[i]);
        highest = fmax(highest, (double)values[i]);
    }
    moments(&mean, &std);
    assert_true(lowest >= -2 && lowest < -1.999);
    assert_true(highest < 6 && highest > 5.999);
    assert_true(fabs(mean - 2) < 6 * 2.3094 / sqrt(DRAWS));
    assert_true(fabs(std - 2.3094) < 0.01);
}

static void rounding_never_reaches_the_excluded_end(void **state) {
    (void)state;
    /* Between 2^24 and 2^24 + 2 there is one float: half of the draws would round up. */
    yoke_random_uniform(values, DRAWS, 0x1p24, 0x1p24 + 2, 1, YOKE_RANDOM_INIT, 0);
    for (size_t i = 0; i < DRAWS; i++)
        assert_true(values[i] == 0x1p24f);
}

static void normal_numbers_have_their_moments(void **state) {
    (void)state;
    yoke_random_normal(values, DRAWS, 0.5, 42, YOKE_RANDOM_INIT, 7);
    double mean, std, fourth = 0;
    moments(&mean, &std);
    size_t beyond = 0;
    for (size_t i = 0; i < DRAWS; i++) {
        assert_true(isfinite(values[i]));
        fourth += pow((double)values[i] / 0.5, 4) / (double)DRAWS;
        beyond += fabsf(values[i]) > 1.0f; /* two standard deviations: 4.55 % */
    }
    assert_true(fabs(mean) < 6 * 0.5 / sqrt(DRAWS));
    assert_true(fabs(std - 0.5) < 0.005);
    assert_true(fabs(fourth - 3) < 0.15);
    assert_true(fabs((double)beyond / (double)DRAWS - 0.0455) < 0.003);
}

static void a_longer_fill_begins_like_a_shorter_one(void **state) {
    (void)state;
    float some[7];
    yoke_random_normal(values, 1000, 1, 9, YOKE_RANDOM_SYNTHETIC, 3);
    yoke_random_normal(some, 7, 1, 9, YOKE_RANDOM_SYNTHETIC, 3);
    assert_memory_equal(values, some, sizeof some);
    yoke_random_uniform(values, 1000, 0, 1, 9, YOKE_RANDOM_SYNTHETIC, 3);
    yoke_random_uniform(some, 7, 0, 1, 9, YOKE_RANDOM_SYNTHETIC, 3);
    assert_memory_equal(values, some, sizeof some);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_philox_4x32_10),
        cmocka_unit_test(every_coordinate_gives_another_stream),
        cmocka_unit_test(a_unit_is_in_zero_to_below_one),
        cmocka_unit_test(uniform_numbers_fill_their_interval),
        cmocka_unit_test(rounding_never_reaches_the_excluded_end),
        cmocka_unit_test(normal_numbers_have_their_moments),
        cmocka_unit_test(a_longer_fill_begins_like_a_shorter_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
