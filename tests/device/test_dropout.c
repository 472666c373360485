/* SPDX-License-Identifier: Apache-2.0 */
/* Dropout on the CPU: which elements fall depends on seed, step, layer, global row and position
 * in the row, and on nothing else. */
#include "operation_check.h"

static const yoke_dims image = {20, 5, 3};

static operation_check prepare(int rows, dnnl_format_tag_t tag, yoke_precision precision) {
    return (operation_check){.operation = {.kind = YOKE_OP_DROPOUT,
                                           .input = image,
                                           .output = image,
                                           .probability = 0.25,
                                           .layer = 3},
                             .rows = rows,
                             .training = true,
                             .precision = precision,
                             .tags = {tag}};
}

/* Output of rows first_row .. of a value of ones, in logical order; the caller frees it. */
static double *drop_ones(operation_check *check, int threads, const yoke_plan_step *step) {
    yoke_devices *devices = check_devices(threads);
    check_open(check, yoke_devices_at(devices, 0));
    check_bind(check);
    size_t count = check_count(&check->inputs[0]);
    double *ones = test_calloc(count, sizeof *ones);
    for (size_t i = 0; i < count; i++) {
        ones[i] = 1;
    }
    check_store(&check->inputs[0], check->binding.inputs[0], ones);
    CHECK(yoke_plan_forward(check->plan, step));
    double *output = check_load(&check->needs->output, check->binding.output);
    if (check->training) {
        check_store(&check->needs->output, check->binding.output_gradient, ones);
        CHECK(yoke_plan_backward(check->plan, step));
        check_memory("gradient", &check->inputs[0], check->binding.input_gradients[0], output, 0);
    }
    test_free(ones);
    check_close(check);
    yoke_devices_close(devices);
    return output;
}

static size_t differing(const double *a, const double *b, size_t count) {
    size_t different = 0;
    for (size_t i = 0; i < count; i++) {
        if (a[i] != b[i]) different++;
    }
    return different;
}

static const size_t row_elements = 20 * 5 * 3;

/* The definition, element by element. */
static void mask_is_philox_keyed_by_row_and_element(void **state) {
    (void)state;
    yoke_plan_step step = {.seed = 11, .step = 5, .first_row = 100};
    operation_check check = prepare(2, dnnl_nchw, YOKE_FLOAT32);
    double *output = drop_ones(&check, 1, &step);
    for (size_t row = 0; row < 2; row++) {
        for (size_t i = 0; i < row_elements; i++) {
            uint32_t words[4];
            yoke_random_words(11, YOKE_RANDOM_DROPOUT, (100 + row) << 40 ^ 5, 3, (uint32_t)(i / 4),
                              words);
            double expected = words[i % 4] < 0x40000000u ? 0 : (double)(float)(1 / 0.75);
            assert_true(output[row * row_elements + i] == expected);
        }
    }
    test_free(output);
}

static void keeps_the_expected_share_and_sum(void **state) {
    (void)state;
    yoke_plan_step step = {.seed = 1};
    operation_check check = prepare(64, dnnl_nchw, YOKE_FLOAT32);
    double *output = drop_ones(&check, 1, &step);
    size_t count = 64 * row_elements, kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (output[i] != 0) kept++;
    }
    /* Six standard deviations of a binomial share. */
    double std = sqrt(0.25 * 0.75 / (double)count);
    assert_true(fabs((double)kept / (double)count - 0.75) < 6 * std);
    test_free(output);
}

static void masks_do_not_depend_on_layout_precision_threads_or_place(void **state) {
    (void)state;
    yoke_plan_step step = {.seed = 7, .step = 2, .first_row = 40};
    size_t count = 64 * row_elements;
    operation_check plain = prepare(64, dnnl_nchw, YOKE_FLOAT32);
    double *expected = drop_ones(&plain, 1, &step);
    const dnnl_format_tag_t tags[] = {dnnl_nChw16c, dnnl_nhwc, dnnl_nChw8c};
    for (int i = 0; i < 6; i++) {
        operation_check check = prepare(64, tags[i % 3], YOKE_FLOAT32);
        check.in_place = i >= 3;
        double *output = drop_ones(&check, i == 1 ? 2 : 1, &step);
        assert_int_equal(differing(output, expected, count), 0);
        test_free(output);
    }
    test_free(expected);
}

static void masks_are_the_same_in_bfloat16(void **state) {
    (void)state;
    if (check_no_bfloat16()) skip();
    yoke_plan_step step = {.seed = 7, .step = 2, .first_row = 40};
    operation_check plain = prepare(3, dnnl_nchw, YOKE_FLOAT32);
    operation_check half = prepare(3, dnnl_nChw16c, YOKE_BFLOAT16);
    double *expected = drop_ones(&plain, 1, &step), *output = drop_ones(&half, 1, &step);
    for (size_t i = 0; i < 3 * row_elements; i++) {
        assert_int_equal(output[i] != 0, expected[i] != 0);
    }
    check_close_values("scaled values", output, expected, 3 * row_elements, 4e-3);
    test_free(expected);
    test_free(output);
}

/* One batch of five rows is what shards of two and three rows are. */
static void shards_drop_what_the_whole_batch_drops(void **state) {
    (void)state;
    yoke_plan_step step = {.seed = 3, .step = 9};
    operation_check whole = prepare(5, dnnl_nchw, YOKE_FLOAT32);
    double *expected = drop_ones(&whole, 1, &step);
    operation_check left = prepare(2, dnnl_nChw16c, YOKE_FLOAT32);
    double *output = drop_ones(&left, 1, &step);
    assert_int_equal(differing(output, expected, 2 * row_elements), 0);
    test_free(output);
    step.first_row = 2;
    operation_check right = prepare(3, dnnl_nchw, YOKE_FLOAT32);
    output = drop_ones(&right, 1, &step);
    assert_int_equal(differing(output, expected + 2 * row_elements, 3 * row_elements), 0);
    test_free(output);
    test_free(expected);
}

static void every_seed_step_layer_and_row_draws_anew(void **state) {
    (void)state;
    const yoke_plan_step base = {.seed = 3, .step = 9, .first_row = 1};
    operation_check check = prepare(2, dnnl_nchw, YOKE_FLOAT32);
    double *expected = drop_ones(&check, 1, &base);
    for (int i = 0; i < 4; i++) {
        yoke_plan_step step = base;
        operation_check other = prepare(2, dnnl_nchw, YOKE_FLOAT32);
        if (i == 0) step.seed++;
        if (i == 1) step.step++;
        if (i == 2) step.first_row += 2;
        if (i == 3) other.operation.layer++;
        double *output = drop_ones(&other, 1, &step);
        /* Two independent masks of keep 3/4 differ in 3/8 of the places. */
        size_t different = differing(output, expected, 2 * row_elements);
        assert_in_range(different, row_elements / 2, row_elements);
        test_free(output);
    }
    test_free(expected);
}

static void evaluation_and_probability_zero_are_the_identity(void **state) {
    (void)state;
    yoke_plan_step step = {.seed = 3};
    for (int i = 0; i < 4; i++) {
        operation_check check = prepare(1, dnnl_nChw16c, YOKE_FLOAT32);
        if (i % 2 == 0)
            check.training = false;
        else
            check.operation.probability = 0;
        check.in_place = i >= 2;
        double *output = drop_ones(&check, 1, &step);
        for (size_t e = 0; e < row_elements; e++) {
            assert_true(output[e] == 1);
        }
        test_free(output);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mask_is_philox_keyed_by_row_and_element),
        cmocka_unit_test(keeps_the_expected_share_and_sum),
        cmocka_unit_test(masks_do_not_depend_on_layout_precision_threads_or_place),
        cmocka_unit_test(masks_are_the_same_in_bfloat16),
        cmocka_unit_test(shards_drop_what_the_whole_batch_drops),
        cmocka_unit_test(every_seed_step_layer_and_row_draws_anew),
        cmocka_unit_test(evaluation_and_probability_zero_are_the_identity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
