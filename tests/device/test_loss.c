/* SPDX-License-Identifier: Apache-2.0 */
/* The losses on the CPU equal PyTorch's written in double; their gradients equal finite
 * differences. */
#include "operation_check.h"

static const int32_t labels[] = {2, 0, 6, 3, 3};

static const yoke_label_mix *mixes; /* [rows]; NULL: each row has one label */

/* What a row is compared with, before smoothing and weights. */
static double target_of(size_t row, int32_t class) {
    double share = mixes != NULL ? (double)mixes[row].share : 1;
    double target = class == labels[row] ? share : 0;
    return mixes != NULL && class == mixes[row].label ? target + 1 - share : target;
}

static double cross_entropy(const operation_check *check, const double *logits) {
    size_t classes = (size_t)check->operation.input.channels;
    double smoothing = check->operation.label_smoothing, total = 0;
    const float *weights = check->operation.weights;
    for (size_t row = 0; row < (size_t)check->rows; row++, logits += classes) {
        double largest = -INFINITY, sum = 0;
        if (check->operation.ignores && labels[row] == check->operation.ignored) continue;
        for (size_t j = 0; j < classes; j++) {
            largest = fmax(largest, logits[j]);
        }
        for (size_t j = 0; j < classes; j++) {
            sum += exp(logits[j] - largest);
        }
        for (size_t j = 0; j < classes; j++) {
            double share = smoothing / (double)classes;
            share += (1 - smoothing) * target_of(row, (int32_t)j);
            if (weights != NULL) share *= (double)weights[j];
            total -= share * (logits[j] - largest - log(sum));
        }
    }
    return total;
}

static double *targets; /* [rows, outputs], read by mean_squares */

static double mean_squares(const operation_check *check, const double *outputs) {
    size_t count = (size_t)check->operation.input.channels, rows = (size_t)check->rows;
    double total = 0;
    for (size_t i = 0; i < rows * count; i++) {
        total += (outputs[i] - targets[i]) * (outputs[i] - targets[i]);
    }
    return total / (double)count;
}

/* By its definition: the naive formula, so for small logits only. */
static double binary_cross_entropy(const operation_check *check, const double *logits) {
    size_t count = (size_t)check->operation.input.channels, rows = (size_t)check->rows;
    const float *weights = check->operation.weights;
    double total = 0;
    for (size_t i = 0; i < rows * count; i++) {
        double p = 1 / (1 + exp(-logits[i])), target = (double)(float)targets[i];
        double weight = weights != NULL ? (double)weights[i % count] : 1;
        total -= weight * target * log(p) + (1 - target) * log(1 - p);
    }
    return total / (double)count;
}

static double huber(const operation_check *check, const double *outputs) {
    size_t count = (size_t)check->operation.input.channels, rows = (size_t)check->rows;
    double total = 0, delta = check->operation.delta;
    for (size_t i = 0; i < rows * count; i++) {
        double size = fabs(outputs[i] - (double)(float)targets[i]);
        total += size <= delta ? size * size / 2 : delta * size - delta * delta / 2;
    }
    return total / (double)count;
}

typedef double (*loss_reference)(const operation_check *check, const double *values);

static operation_check prepare(yoke_operation_kind kind, int rows, int outputs, double smoothing) {
    return (operation_check){
        .operation = {.kind = kind, .input = {outputs, 1, 1}, .label_smoothing = smoothing},
        .rows = rows,
        .training = true};
}

/* Forward and, in training, backward with loss_scale 1/8; gradient [rows, outputs] may be NULL. */
static yoke_loss_scalars run(operation_check *check, const double *values,
                             const int32_t *row_labels, double *gradient) {
    yoke_devices *devices = check_devices(1);
    check_open(check, yoke_devices_at(devices, 0));
    size_t count = check_count(&check->inputs[0]);
    yoke_loss_scalars result = {.loss_sum = NAN, .correct = -1};
    float *wanted = check_allocate(check, count * sizeof *wanted);
    for (size_t i = 0; i < count && targets != NULL; i++) {
        wanted[i] = (float)targets[i];
    }
    check->binding.labels = row_labels;
    check->binding.mixes = mixes;
    check->binding.targets = wanted;
    check->binding.scalars = &result;
    check_bind(check);
    check_store(&check->inputs[0], check->binding.inputs[0], values);
    yoke_plan_step step = {.loss_scale = 0.125f, .mixed = mixes != NULL};
    CHECK(yoke_plan_forward(check->plan, &step));
    if (gradient != NULL) {
        CHECK(yoke_plan_backward(check->plan, &step));
        double *loaded = check_load(&check->inputs[0], check->binding.input_gradients[0]);
        memcpy(gradient, loaded, count * sizeof *gradient);
        test_free(loaded);
    }
    check_close(check);
    yoke_devices_close(devices);
    return result;
}

static void compare(operation_check *check, loss_reference reference, double spread) {
    size_t count = (size_t)check->rows * (size_t)check->operation.input.channels;
    double *values = check_random(count, -spread, spread, 5);
    double *gradient = test_calloc(count, sizeof *gradient);
    double *differences = test_calloc(count, sizeof *differences);
    yoke_loss_scalars result = run(check, values, labels, gradient);
    double expected = reference(check, values);
    assert_true(fabs(result.loss_sum - expected) <= 1e-6 * fmax(1, fabs(expected)));
    for (size_t i = 0; i < count; i++) {
        double kept = values[i], h = 1e-5;
        values[i] = kept + h;
        double above = reference(check, values);
        values[i] = kept - h;
        differences[i] = 0.125 * (above - reference(check, values)) / (2 * h);
        values[i] = kept;
    }
    check_close_values("gradient", gradient, differences, count, 1e-6);
    test_free(values);
    test_free(gradient);
    test_free(differences);
}

static void cross_entropy_is_torchs_with_and_without_smoothing(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        operation_check check =
            prepare(YOKE_OP_CROSS_ENTROPY, i < 2 ? 5 : 1, 7, i % 2 == 0 ? 0 : 0.1);
        compare(&check, cross_entropy, 3);
    }
}

static void cross_entropy_is_stable_for_huge_logits(void **state) {
    (void)state;
    operation_check check = prepare(YOKE_OP_CROSS_ENTROPY, 5, 7, 0.1);
    compare(&check, cross_entropy, 5000);
}

static void mean_squared_error_is_torchs_summed_over_rows(void **state) {
    (void)state;
    targets = check_random(15, -1, 1, 8);
    for (int rows = 1; rows <= 5; rows += 4) {
        operation_check check = prepare(YOKE_OP_MSE, rows, 3, 0);
        compare(&check, mean_squares, 2);
    }
    test_free(targets);
    targets = NULL;
}

static const float weights[] = {0.5f, 2, 0, 1, 3, 0.25f, 1.5f};

static void class_weights_and_ignored_labels_are_torchs(void **state) {
    (void)state;
    for (int i = 0; i < 8; i++) {
        operation_check check = prepare(YOKE_OP_CROSS_ENTROPY, 5, 7, i % 2 == 0 ? 0 : 0.1);
        check.operation.weights = i / 2 % 2 == 0 ? weights : NULL;
        check.operation.ignores = i / 4 == 1 || check.operation.weights == NULL;
        check.operation.ignored = 3;
        compare(&check, cross_entropy, 3);
    }
}

static void mixed_labels_are_torchs_with_smoothing_and_weights(void **state) {
    (void)state;
    static const yoke_label_mix given[] = {{5, 0.3f}, {1, 0.5f}, {2, 0}, {3, 0.8f}, {0, 1}};
    mixes = given;
    for (int i = 0; i < 4; i++) {
        operation_check check = prepare(YOKE_OP_CROSS_ENTROPY, 5, 7, i % 2 == 0 ? 0 : 0.1);
        if (i / 2 == 1) check.operation.weights = weights;
        compare(&check, cross_entropy, 3);
    }
    mixes = NULL;
}

static void the_label_with_the_larger_share_counts_and_one_without_is_no_loss(void **state) {
    (void)state;
    const double logits[] = {3, 0, -INFINITY, /**/ 3, 0, 1, /**/ 3, 0, 1};
    const int32_t row_labels[] = {2, 1, 0};
    static const yoke_label_mix given[] = {{0, 0}, {0, 0.49f}, {1, 0.5f}};
    double gradient[9];
    operation_check check = prepare(YOKE_OP_CROSS_ENTROPY, 3, 3, 0);
    mixes = given;
    yoke_loss_scalars result = run(&check, logits, row_labels, gradient);
    mixes = NULL;
    double rest = log(1 + exp(-3) + exp(-2)), own = (double)0.49f;
    double expected = log(1 + exp(-3)) + rest + own * 3 + rest + 0.5 * 3;
    assert_int_equal(result.correct, 3);
    assert_true(fabs(result.loss_sum - expected) < 1e-6);
}

static void an_ignored_row_is_never_correct_and_may_have_any_label(void **state) {
    (void)state;
    const double logits[] = {0, 1, 2, /**/ NAN, 1, INFINITY};
    const int32_t row_labels[] = {2, -100};
    double gradient[6];
    operation_check check = prepare(YOKE_OP_CROSS_ENTROPY, 2, 3, 0);
    check.operation.ignores = true;
    check.operation.ignored = -100;
    yoke_loss_scalars result = run(&check, logits, row_labels, gradient);
    assert_int_equal(result.correct, 1);
    assert_true(fabs(result.loss_sum - log(1 + exp(-1) + exp(-2))) < 1e-6);
    for (int i = 3; i < 6; i++)
        assert_true(gradient[i] == 0);
}

static void binary_cross_entropy_is_torchs_with_and_without_weights(void **state) {
    (void)state;
    targets = check_random(15, 0, 1, 8);
    targets[0] = targets[7] = 1;
    targets[1] = targets[8] = 0;
    for (int i = 0; i < 4; i++) {
        operation_check check = prepare(YOKE_OP_BCE, i < 2 ? 5 : 1, 3, 0);
        if (i % 2 == 1) check.operation.weights = weights;
        compare(&check, binary_cross_entropy, 4);
    }
    test_free(targets);
    targets = NULL;
}

static void binary_cross_entropy_is_exact_for_huge_logits(void **state) {
    (void)state;
    double values[] = {-5000, 5000, -80, 80}, wanted[] = {1, 0, 0, 1}, gradient[4];
    targets = wanted;
    operation_check check = prepare(YOKE_OP_BCE, 1, 4, 0);
    yoke_loss_scalars result = run(&check, values, labels, gradient);
    assert_true(fabs(result.loss_sum - 2500) < 1e-9);
    const double slopes[] = {-1, 1, 1.8048513878454153e-35, -1.8048513878454153e-35};
    for (int i = 0; i < 4; i++)
        assert_true(fabs(gradient[i] * 32 - slopes[i]) <= 1e-6 * fabs(slopes[i]));
    targets = NULL;
}

static void huber_is_torchs(void **state) {
    (void)state;
    targets = check_random(15, -1, 1, 8);
    for (int i = 0; i < 4; i++) {
        operation_check check = prepare(YOKE_OP_HUBER, i < 2 ? 5 : 1, 3, 0);
        check.operation.delta = i % 2 == 0 ? 1 : 0.3;
        compare(&check, huber, 3);
    }
    test_free(targets);
    targets = NULL;
}

static void losses_of_targets_show_what_is_not_finite(void **state) {
    (void)state;
    static const yoke_operation_kind kinds[] = {YOKE_OP_MSE, YOKE_OP_BCE, YOKE_OP_HUBER};
    double values[] = {0.5, NAN}, wanted[] = {1, 0}, gradient[2];
    targets = wanted;
    for (int i = 0; i < 3; i++) {
        operation_check check = prepare(kinds[i], 1, 2, 0);
        check.operation.delta = 1;
        assert_true(isnan(run(&check, values, labels, gradient).loss_sum));
        assert_true(isnan(gradient[1]));
    }
    targets = NULL;
}

static void a_row_is_correct_when_its_first_largest_output_is_the_label(void **state) {
    (void)state;
    const double logits[] = {0, 1, 1, /**/ 1, 1, 0, /**/ -3, -2, -1};
    const int32_t first[] = {1, 0, 2}, second[] = {2, 1, 2};
    operation_check check = prepare(YOKE_OP_CROSS_ENTROPY, 3, 3, 0);
    assert_int_equal(run(&check, logits, first, NULL).correct, 3);
    check = prepare(YOKE_OP_CROSS_ENTROPY, 3, 3, 0);
    assert_int_equal(run(&check, logits, second, NULL).correct, 1);
}

static void evaluation_gives_the_loss_of_training_and_keeps_nothing(void **state) {
    (void)state;
    const double logits[] = {0.5, -1, 2, /**/ 1, 1.5, 0};
    const int32_t row_labels[] = {2, 0};
    operation_check training = prepare(YOKE_OP_CROSS_ENTROPY, 2, 3, 0.1);
    yoke_loss_scalars expected = run(&training, logits, row_labels, NULL);
    operation_check evaluation = prepare(YOKE_OP_CROSS_ENTROPY, 2, 3, 0.1);
    evaluation.training = false;
    yoke_loss_scalars result = run(&evaluation, logits, row_labels, NULL);
    assert_true(result.loss_sum == expected.loss_sum);
    assert_int_equal(result.correct, expected.correct);
}

static void a_value_that_is_not_finite_shows_in_the_loss(void **state) {
    (void)state;
    const double logits[] = {0.5, NAN, 2, /**/ 1, 1.5, 0};
    const int32_t row_labels[] = {2, 0};
    operation_check check = prepare(YOKE_OP_CROSS_ENTROPY, 2, 3, 0);
    bool finite = isfinite(run(&check, logits, row_labels, NULL).loss_sum) != 0;
    assert_false(finite);
    const double huge[] = {0.5, INFINITY, 2, /**/ 1, 1.5, 0};
    check = prepare(YOKE_OP_CROSS_ENTROPY, 2, 3, 0);
    finite = isfinite(run(&check, huge, row_labels, NULL).loss_sum) != 0;
    assert_false(finite);
}

static void an_excluded_class_costs_nothing_without_smoothing(void **state) {
    (void)state;
    const double logits[] = {0, -INFINITY, 0};
    const int32_t row_labels[] = {2};
    operation_check check = prepare(YOKE_OP_CROSS_ENTROPY, 1, 3, 0);
    assert_true(fabs(run(&check, logits, row_labels, NULL).loss_sum - log(2)) < 1e-12);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cross_entropy_is_torchs_with_and_without_smoothing),
        cmocka_unit_test(cross_entropy_is_stable_for_huge_logits),
        cmocka_unit_test(mean_squared_error_is_torchs_summed_over_rows),
        cmocka_unit_test(class_weights_and_ignored_labels_are_torchs),
        cmocka_unit_test(mixed_labels_are_torchs_with_smoothing_and_weights),
        cmocka_unit_test(the_label_with_the_larger_share_counts_and_one_without_is_no_loss),
        cmocka_unit_test(an_ignored_row_is_never_correct_and_may_have_any_label),
        cmocka_unit_test(binary_cross_entropy_is_torchs_with_and_without_weights),
        cmocka_unit_test(binary_cross_entropy_is_exact_for_huge_logits),
        cmocka_unit_test(huber_is_torchs),
        cmocka_unit_test(losses_of_targets_show_what_is_not_finite),
        cmocka_unit_test(a_row_is_correct_when_its_first_largest_output_is_the_label),
        cmocka_unit_test(evaluation_gives_the_loss_of_training_and_keeps_nothing),
        cmocka_unit_test(an_excluded_class_costs_nothing_without_smoothing),
        cmocka_unit_test(a_value_that_is_not_finite_shows_in_the_loss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
