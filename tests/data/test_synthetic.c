/* SPDX-License-Identifier: Apache-2.0 */
/* The synthetic dataset: the same every time, balanced, its splits disjoint, and too hard for a
 * linear model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/data.h"

#define CLASSES 10
#define VALUES 3072

static yoke_dataset *open_drawn(const char *spec, yoke_split split) {
    yoke_dataset *dataset = NULL;
    if (yoke_dataset_open(&dataset, spec, split) != YOKE_OK) fail_msg("%s", yoke_last_error());
    return dataset;
}

static void the_same_spec_draws_the_same_bytes(void **state) {
    (void)state;
    yoke_dataset *one = open_drawn("synthetic:3x32x32,rows=200", YOKE_SPLIT_TRAIN);
    yoke_dataset *two = open_drawn("synthetic:3x32x32,rows=300", YOKE_SPLIT_TRAIN);
    assert_memory_equal(one->bytes, two->bytes, 200 * VALUES);
    assert_memory_equal(one->labels, two->labels, 200 * sizeof *one->labels);
    yoke_dataset_close(one);
    yoke_dataset_close(two);
}

static uint64_t hash_row(const yoke_dataset *dataset, size_t row) {
    uint64_t hash = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < VALUES; i++)
        hash = (hash ^ dataset->bytes[row * VALUES + i]) * UINT64_C(1099511628211);
    return hash;
}

static int compare(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void no_row_appears_twice_within_or_across_splits(void **state) {
    (void)state;
    yoke_dataset *train = open_drawn("synthetic", YOKE_SPLIT_TRAIN);
    yoke_dataset *test = open_drawn("synthetic", YOKE_SPLIT_TEST);
    assert_int_equal(train->rows, 5000);
    assert_int_equal(test->rows, 1000);
    static uint64_t hashes[6000];
    for (size_t row = 0; row < 6000; row++)
        hashes[row] = row < 5000 ? hash_row(train, row) : hash_row(test, row - 5000);
    qsort(hashes, 6000, sizeof *hashes, compare);
    for (size_t i = 1; i < 6000; i++)
        assert_true(hashes[i] != hashes[i - 1]);
    yoke_dataset_close(train);
    yoke_dataset_close(test);
}

static void classes_differ_in_number_by_one_at_most(void **state) {
    (void)state;
    yoke_dataset *dataset = open_drawn("synthetic:1x16x16,classes=7,rows=500", YOKE_SPLIT_TRAIN);
    int counts[7] = {0};
    for (size_t row = 0; row < dataset->rows; row++)
        counts[dataset->labels[row]]++;
    for (int i = 0; i < 7; i++)
        assert_in_range(counts[i], 500 / 7, 500 / 7 + 1);
    yoke_dataset_close(dataset);
}

static void any_shape_and_all_hundred_classes_can_be_drawn(void **state) {
    (void)state;
    static const struct {
        const char *spec;
        int channels, height, width;
    } rows[] = {
        {"synthetic:1x8x8,classes=100,rows=200", 1, 8, 8},
        {"synthetic:5x9x40,classes=100,rows=200", 5, 9, 40},
        {"synthetic:64x40x9,classes=100,rows=200", 64, 40, 9},
        {"synthetic:classes=100,rows=200", 3, 32, 32},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        yoke_dataset *dataset = open_drawn(rows[i].spec, YOKE_SPLIT_TRAIN);
        assert_int_equal(dataset->shape.channels, rows[i].channels);
        assert_int_equal(dataset->shape.height, rows[i].height);
        assert_int_equal(dataset->shape.width, rows[i].width);
        assert_int_equal(dataset->labels[199], 99);
        yoke_dataset_close(dataset);
    }
    yoke_dataset *tiny = open_drawn("synthetic:rows=1", YOKE_SPLIT_TEST);
    assert_int_equal(tiny->rows, 1);
    yoke_dataset_close(tiny);
}

static void the_stated_mean_and_deviation_are_those_of_the_pixels(void **state) {
    (void)state;
    yoke_dataset *dataset = open_drawn("synthetic", YOKE_SPLIT_TRAIN);
    double sum = 0, squares = 0, count = (double)(dataset->rows * VALUES);
    for (size_t i = 0; i < dataset->rows * VALUES; i++) {
        double value = dataset->bytes[i] / 255.0;
        sum += value;
        squares += value * value;
    }
    double mean = sum / count, std = sqrt(squares / count - mean * mean);
    assert_true(fabs(mean - (double)dataset->mean[0]) < 0.01);
    assert_true(fabs(std - (double)dataset->std[0]) < 0.01);
    yoke_dataset_close(dataset);
}

/* Rows as floats about zero. signal > 0 brightens a patch by class: what a linear model can see. */
static float *as_floats(const yoke_dataset *dataset, float signal) {
    float *inputs = malloc(dataset->rows * VALUES * sizeof *inputs);
    assert_non_null(inputs);
    for (size_t row = 0; row < dataset->rows; row++) {
        float *input = inputs + row * VALUES;
        for (size_t i = 0; i < VALUES; i++)
            input[i] = (float)dataset->bytes[row * VALUES + i] / 255.0f - 0.5f;
        for (size_t i = 0; i < 100; i++)
            input[(size_t)dataset->labels[row] * 300 + i] += signal;
    }
    return inputs;
}

static void score(const float *weights, const float *input, float scores[CLASSES]) {
    for (int kind = 0; kind < CLASSES; kind++) {
        float sum = 0;
        for (size_t i = 0; i < VALUES; i++)
            sum += weights[(size_t)kind * VALUES + i] * input[i];
        scores[kind] = sum;
    }
}

static int best(const float scores[CLASSES]) {
    int winner = 0;
    for (int kind = 1; kind < CLASSES; kind++)
        if (scores[kind] > scores[winner]) winner = kind;
    return winner;
}

static void softmax_step(float *weights, const float *input, int label, float rate) {
    float scores[CLASSES], sum = 0;
    score(weights, input, scores);
    float top = scores[best(scores)];
    for (int kind = 0; kind < CLASSES; kind++)
        sum += scores[kind] = expf(scores[kind] - top);
    for (int kind = 0; kind < CLASSES; kind++) {
        float slope = rate * (scores[kind] / sum - (kind == label ? 1.0f : 0.0f));
        for (size_t i = 0; i < VALUES; i++)
            weights[(size_t)kind * VALUES + i] -= slope * input[i];
    }
}

static double linear_accuracy(const yoke_dataset *train, const yoke_dataset *test, float signal) {
    static float weights[CLASSES * VALUES];
    memset(weights, 0, sizeof weights);
    float *inputs = as_floats(train, signal), *unseen = as_floats(test, signal);
    for (int epoch = 0; epoch < 3; epoch++)
        for (size_t row = 0; row < train->rows; row++)
            softmax_step(weights, inputs + row * VALUES, train->labels[row], 0.001f);
    size_t right = 0;
    for (size_t row = 0; row < test->rows; row++) {
        float scores[CLASSES];
        score(weights, unseen + row * VALUES, scores);
        right += best(scores) == test->labels[row];
    }
    free(inputs);
    free(unseen);
    return (double)right / (double)test->rows;
}

static void a_linear_model_stays_weak(void **state) {
    (void)state;
    yoke_dataset *train = open_drawn("synthetic:3x32x32,rows=1500", YOKE_SPLIT_TRAIN);
    yoke_dataset *test = open_drawn("synthetic:3x32x32,rows=1500", YOKE_SPLIT_TEST);
    double drawn = linear_accuracy(train, test, 0), control = linear_accuracy(train, test, 0.5f);
    print_message("linear model: %.3f, with a visible mark %.3f\n", drawn, control);
    assert_true(drawn < 0.4);
    assert_true(control > 0.8);
    yoke_dataset_close(train);
    yoke_dataset_close(test);
}

static void the_nearest_class_mean_stays_near_chance(void **state) {
    (void)state;
    yoke_dataset *train = open_drawn("synthetic", YOKE_SPLIT_TRAIN);
    yoke_dataset *test = open_drawn("synthetic", YOKE_SPLIT_TEST);
    static float means[CLASSES * VALUES];
    for (size_t i = 0; i < train->rows * VALUES; i++)
        means[(size_t)train->labels[i / VALUES] * VALUES + i % VALUES] +=
            (float)train->bytes[i] / (float)(train->rows / CLASSES);
    size_t right = 0;
    for (size_t row = 0; row < test->rows; row++) {
        float scores[CLASSES] = {0};
        for (size_t i = 0; i < CLASSES * VALUES; i++) {
            float gap = means[i] - (float)test->bytes[row * VALUES + i % VALUES];
            scores[i / VALUES] -= gap * gap;
        }
        right += best(scores) == test->labels[row];
    }
    print_message("nearest mean: %.3f\n", (double)right / (double)test->rows);
    assert_true(right < test->rows / 4);
    yoke_dataset_close(train);
    yoke_dataset_close(test);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_spec_draws_the_same_bytes),
        cmocka_unit_test(no_row_appears_twice_within_or_across_splits),
        cmocka_unit_test(classes_differ_in_number_by_one_at_most),
        cmocka_unit_test(any_shape_and_all_hundred_classes_can_be_drawn),
        cmocka_unit_test(the_stated_mean_and_deviation_are_those_of_the_pixels),
        cmocka_unit_test(a_linear_model_stays_weak),
        cmocka_unit_test(the_nearest_class_mean_stays_near_chance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
