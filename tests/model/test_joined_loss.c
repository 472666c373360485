/* SPDX-License-Identifier: Apache-2.0 */
/* A linear layer that computes the loss behind it: loss, correct rows and gradients equal the
 * float64 reference, whether somebody reads the outputs or not. Tables of logits are just large
 * enough for it. */
#include "joined_loss.h"

enum { WORDS = 8209, POSITIONS = 1030, ROWS = 2 };

static yoke_model *language(const yoke_loss_options *loss, bool tied, bool reads_logits) {
    return language_of(WORDS, POSITIONS, loss, tied, reads_logits);
}

static const yoke_precision precisions[] = {YOKE_FLOAT32, YOKE_BFLOAT16};

static bool has_bfloat16(void) {
    struct rig rig = {.list = "cpu"};
    rig_devices(&rig);
    bool has = yoke_device_supports(rig.device, YOKE_BFLOAT16);
    yoke_algorithms_destroy(rig.algorithms);
    yoke_device_leave(rig.device, &rig.scope);
    yoke_devices_close(rig.devices);
    return has;
}

static void test_a_language_model_equals_the_reference(void **state) {
    (void)state;
    for (int i = 0; i < 1 + has_bfloat16(); i++) {
        setting by = {ROWS, precisions[i], YOKE_ALGORITHM_DIRECT};
        check_step(language(NULL, false, false), by, NULL);
        by.algorithm = YOKE_ALGORITHM_MEASURED;
        check_step(language(NULL, true, false), by, NULL);
    }
}

static void test_smoothing_and_ignored_labels_count(void **state) {
    (void)state;
    yoke_loss_options loss = YOKE_LOSS_OPTIONS_INIT;
    loss.label_smoothing = 0.1;
    loss.set_ignore_index = true;
    loss.ignore_index = 12; /* of the rig's labels some */
    check_step(language(&loss, false, false), (setting){ROWS}, NULL);
}

static void test_class_weights_and_mixed_labels_count(void **state) {
    (void)state;
    enum { CLASSES = 2053, FLAT_ROWS = 8200 };
    float weights[CLASSES];
    yoke_label_mix *mixes = calloc(FLAT_ROWS, sizeof *mixes);
    assert_non_null(mixes);
    for (int i = 0; i < CLASSES; i++)
        weights[i] = 0.5f + (float)(i % 5);
    for (int i = 0; i < FLAT_ROWS; i++)
        mixes[i] = (yoke_label_mix){i * 5 % CLASSES, (float)(i % 4) / 4};
    yoke_loss_options loss = YOKE_LOSS_OPTIONS_INIT;
    loss.label_smoothing = 0.2;
    loss.class_weights = weights;
    loss.weight_count = CLASSES;
    setting by = {.rows = FLAT_ROWS, .input_gradients = true};
    check_step(flat(&loss, CLASSES), by, mixes);
    check_step(flat(NULL, CLASSES), by, mixes);
    free(mixes);
}

static void test_frozen_layers_get_no_gradient(void **state) {
    (void)state;
    check_step(language(NULL, false, false), (setting){.rows = ROWS, .frozen = "head"}, NULL);
    setting by = {.rows = 8200, .frozen = "fc"}; /* nobody wants the input's gradient */
    check_step(flat(NULL, 2053), by, NULL);
}

static void test_activation_checkpointing_makes_no_loss_again(void **state) {
    (void)state;
    check_step(language(NULL, false, false), (setting){.rows = ROWS, .recomputes = true}, NULL);
}

/* Against plans of their own, which a second reader of the logits forces. */
static void test_gradients_equal_those_of_separate_plans(void **state) {
    (void)state;
    struct rig joined, apart;
    bool frozen[16];
    setting by = {.rows = ROWS};
    open_rig(&joined, language(NULL, false, false), by, frozen);
    open_rig(&apart, language(NULL, false, true), by, frozen);
    assert_int_equal(loss_node(&apart), YOKE_NONE);
    yoke_plan_step step = rig_step(&joined);
    step.loss_only = true;
    take_step(&joined, ROWS, true, &step);
    take_step(&apart, ROWS, true, &step);
    yoke_loss_scalars one = scalars_of(&joined), other = scalars_of(&apart);
    assert_int_equal(one.correct, other.correct);
    assert_true(fabs(one.loss_sum - other.loss_sum) <= 1e-7 * other.loss_sum);
    for (int i = 0; i < joined.model->tensor_count; i++) {
        size_t count = joined.model->tensors[i].count;
        float *values = malloc(2 * count * sizeof *values);
        double *expected = malloc(count * sizeof *expected);
        assert_ok(yoke_replica_read(joined.replica, i, true, values));
        assert_ok(yoke_replica_read(apart.replica, i, true, values + count));
        for (size_t k = 0; k < count; k++)
            expected[k] = (double)values[count + k];
        assert_near(values, expected, count, (struct nearness){1e-6, 0},
                    joined.model->tensors[i].name);
        free(values);
        free(expected);
    }
    rig_destroy(&joined);
    rig_destroy(&apart);
}

static void test_other_losses_and_small_tables_stay_apart(void **state) {
    (void)state;
    struct rig rig;
    bool frozen[16];
    yoke_loss_options loss = YOKE_LOSS_OPTIONS_INIT;
    open_rig(&rig, flat(NULL, 2053), (setting){.rows = 8}, frozen);
    assert_int_equal(loss_node(&rig), YOKE_NONE);
    assert_non_null(yoke_replica_memory_of(rig.replica)->outputs[0]);
    assert_null(yoke_replica_memory_of(rig.replica)->targets);
    rig_destroy(&rig);
    loss.kind = YOKE_LOSS_MSE;
    open_rig(&rig, flat(&loss, 2053), (setting){.rows = 8200}, frozen);
    assert_int_equal(loss_node(&rig), YOKE_NONE);
    assert_non_null(yoke_replica_memory_of(rig.replica)->targets);
    rig_destroy(&rig);
}

/* A short batch computes in the same blocks, however few rows it has. */
static void test_few_rows_of_a_replica_of_many_are_joined_too(void **state) {
    (void)state;
    struct rig rig;
    bool frozen[16];
    open_rig(&rig, language(NULL, true, false), (setting){.rows = ROWS}, frozen);
    yoke_plan_step step = rig_step(&rig);
    step.loss_only = true;
    take_step(&rig, ROWS, false, &step);
    double both = scalars_of(&rig).loss_sum;
    take_step(&rig, 1, true, &step);
    assert_null(yoke_replica_memory_of(rig.replica)->outputs[0]);
    double first = scalars_of(&rig).loss_sum;
    assert_true(first > 0 && first < both);
    step.loss_only = false;
    take_step(&rig, 1, true, &step);
    assert_true(scalars_of(&rig).loss_sum == first);
    rig_destroy(&rig);
}

static void test_a_loss_that_is_not_finite_names_the_layer(void **state) {
    (void)state;
    struct rig rig;
    bool frozen[16];
    open_rig(&rig, language(NULL, false, false), (setting){.rows = ROWS}, frozen);
    const char *near = NULL;
    int bias = yoke_model_find_tensor(rig.model, "head.bias", &near);
    float *values = calloc(WORDS, sizeof *values);
    assert_non_null(values);
    values[3] = INFINITY;
    yoke_plan_step step = rig_step(&rig);
    step.loss_only = true;
    take_step(&rig, ROWS, true, &step);
    assert_null(yoke_replica_first_nonfinite(rig.replica));
    assert_ok(yoke_replica_write(rig.replica, bias, false, values));
    take_step(&rig, ROWS, true, &step);
    assert_true(!isfinite(scalars_of(&rig).loss_sum));
    const char *name = yoke_replica_first_nonfinite(rig.replica);
    assert_non_null(name);
    assert_string_equal(name, "head");
    free(values);
    rig_destroy(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_language_model_equals_the_reference),
        cmocka_unit_test(test_smoothing_and_ignored_labels_count),
        cmocka_unit_test(test_class_weights_and_mixed_labels_count),
        cmocka_unit_test(test_frozen_layers_get_no_gradient),
        cmocka_unit_test(test_activation_checkpointing_makes_no_loss_again),
        cmocka_unit_test(test_gradients_equal_those_of_separate_plans),
        cmocka_unit_test(test_other_losses_and_small_tables_stay_apart),
        cmocka_unit_test(test_few_rows_of_a_replica_of_many_are_joined_too),
        cmocka_unit_test(test_a_loss_that_is_not_finite_names_the_layer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
