/* SPDX-License-Identifier: Apache-2.0 */
/* A linear layer that computes the loss behind it on a GPU: loss, correct rows and gradients equal
 * the float64 reference, whether somebody reads the outputs or not, with and without padding of the
 * vocabulary; and it takes no memory for what nobody reads. Skipped without a GPU. */
#include "bench/floor/kernel_time.h"
#include "model/joined_loss.h"

/* Of 515 words rows are no multiple of 16 bytes, and the products are padded; of 520 they are. */
enum { ROWS = 3, POSITIONS = 7, PADDED = 515, ALIGNED = 520 };
static const yoke_precision precisions[] = {YOKE_BFLOAT16, YOKE_FLOAT32, YOKE_TF32};
#define PRECISIONS (sizeof precisions / sizeof precisions[0])

static setting at(yoke_precision precision) {
    return (setting){.rows = ROWS, .precision = precision, .list = "cuda:0"};
}

static void a_language_model_equals_the_reference(void **state) {
    (void)state;
    for (size_t i = 0; i < 2 * PRECISIONS; i++) {
        setting by = at(precisions[i / 2]);
        int words = i % 2 == 0 ? PADDED : ALIGNED;
        check_step(language_of(words, POSITIONS, NULL, true, false), by, NULL);
        by.algorithm = YOKE_ALGORITHM_MEASURED;
        check_step(language_of(words, POSITIONS, NULL, false, false), by, NULL);
    }
}

static void smoothing_and_ignored_labels_count(void **state) {
    (void)state;
    yoke_loss_options loss = YOKE_LOSS_OPTIONS_INIT;
    loss.label_smoothing = 0.1;
    loss.set_ignore_index = true;
    loss.ignore_index = 12; /* of the rig's labels some */
    for (size_t i = 0; i < PRECISIONS; i++)
        check_step(language_of(PADDED, POSITIONS, &loss, false, false), at(precisions[i]), NULL);
}

static void class_weights_and_mixed_labels_count(void **state) {
    (void)state;
    enum { MIXED_ROWS = 40 };
    float weights[PADDED];
    yoke_label_mix mixes[MIXED_ROWS];
    for (int i = 0; i < PADDED; i++)
        weights[i] = 0.5f + (float)(i % 5);
    for (int i = 0; i < MIXED_ROWS; i++)
        mixes[i] = (yoke_label_mix){i * 5 % PADDED, (float)(i % 4) / 4};
    yoke_loss_options loss = YOKE_LOSS_OPTIONS_INIT;
    loss.label_smoothing = 0.2;
    loss.class_weights = weights;
    loss.weight_count = PADDED;
    for (size_t i = 0; i < PRECISIONS; i++) {
        setting by = at(precisions[i]);
        by.rows = MIXED_ROWS;
        by.input_gradients = true;
        check_step(flat(&loss, PADDED), by, mixes);
        check_step(flat(NULL, PADDED), by, mixes);
    }
}

static void frozen_layers_get_no_gradient(void **state) {
    (void)state;
    setting by = at(YOKE_BFLOAT16);
    by.frozen = "head";
    check_step(language_of(PADDED, POSITIONS, NULL, false, false), by, NULL);
    by.frozen = "fc"; /* nobody wants the input's gradient */
    check_step(flat(NULL, PADDED), by, NULL);
}

static void activation_checkpointing_makes_no_loss_again(void **state) {
    (void)state;
    setting by = at(YOKE_BFLOAT16);
    by.recomputes = true;
    check_step(language_of(PADDED, POSITIONS, NULL, false, false), by, NULL);
}

typedef struct outcome {
    yoke_loss_scalars scalars;
    float *gradients;
    size_t gradient_bytes, activation_bytes, allocated;
} outcome;

/* A step of a tied language model. */
static outcome take(int words, int positions, setting by, bool reads_logits) {
    struct rig rig;
    bool frozen[16];
    open_rig(&rig, language_of(words, positions, NULL, true, reads_logits), by, frozen);
    const yoke_replica_memory *memory = yoke_replica_memory_of(rig.replica);
    yoke_plan_step step = rig_step(&rig);
    step.loss_only = true;
    take_step(&rig, by.rows, true, &step);
    assert_int_equal(loss_node(&rig) == YOKE_NONE, reads_logits);
    assert_null(memory->targets);
    assert_int_equal(memory->outputs[0] != NULL, reads_logits);
    size_t bytes = yoke_replica_flat(rig.replica)->elements * sizeof(float);
    const outcome gave = {.scalars = scalars_of(&rig),
                          .gradients = device_values(rig.device, memory->gradients, bytes),
                          .gradient_bytes = bytes,
                          .activation_bytes = memory->activation_bytes,
                          .allocated = yoke_device_allocated(rig.device)};
    rig_destroy(&rig);
    return gave;
}

/* Against plans of their own, which a second reader of the logits forces: in float32 the same
 * bits. */
static void gradients_equal_those_of_separate_plans(void **state) {
    (void)state;
    outcome joined = take(PADDED, POSITIONS, at(YOKE_FLOAT32), false);
    outcome apart = take(PADDED, POSITIONS, at(YOKE_FLOAT32), true);
    assert_int_equal(joined.scalars.correct, apart.scalars.correct);
    assert_true(joined.scalars.loss_sum == apart.scalars.loss_sum);
    assert_int_equal(joined.gradient_bytes, apart.gradient_bytes);
    assert_memory_equal(joined.gradients, apart.gradients, joined.gradient_bytes);
    free(joined.gradients);
    free(apart.gradients);
}

/* 511 classes, another loss, and a model that only predicts. */
static void others_stay_apart(void **state) {
    (void)state;
    struct rig rig;
    bool frozen[16];
    yoke_loss_options loss = YOKE_LOSS_OPTIONS_INIT;
    setting by = at(YOKE_BFLOAT16);
    open_rig(&rig, flat(NULL, 511), by, frozen);
    assert_int_equal(loss_node(&rig), YOKE_NONE);
    assert_null(yoke_replica_memory_of(rig.replica)->targets);
    rig_destroy(&rig);
    loss.kind = YOKE_LOSS_MSE;
    open_rig(&rig, flat(&loss, PADDED), by, frozen);
    assert_int_equal(loss_node(&rig), YOKE_NONE);
    rig_destroy(&rig);
    rig = (struct rig){.list = "cuda:0", .model = flat(NULL, PADDED), .rows = ROWS};
    rig.inference = true;
    rig_devices(&rig);
    rig_replica(&rig, 1);
    assert_int_equal(loss_node(&rig), YOKE_NONE);
    rig_destroy(&rig);
}

/* A value that no finite loss has, in a logit of the batch. */
static void infinite_logits_do_not_pass(void **state) {
    (void)state;
    struct rig rig;
    bool frozen[16];
    open_rig(&rig, language_of(PADDED, POSITIONS, NULL, false, false), at(YOKE_BFLOAT16), frozen);
    const char *near = NULL;
    int bias = yoke_model_find_tensor(rig.model, "head.bias", &near);
    yoke_plan_step step = rig_step(&rig);
    step.loss_only = true;
    take_step(&rig, ROWS, true, &step);
    assert_null(yoke_replica_first_nonfinite(rig.replica));
    static const float bad[] = {INFINITY, NAN};
    for (int i = 0; i < 4; i++) {
        float values[PADDED] = {0};
        values[i < 2 ? 3 : PADDED - 1] = bad[i % 2];
        assert_ok(yoke_replica_write(rig.replica, bias, false, values));
        take_step(&rig, ROWS, true, &step);
        assert_true(!isfinite(scalars_of(&rig).loss_sum));
        const char *name = yoke_replica_first_nonfinite(rig.replica);
        assert_non_null(name);
        assert_string_equal(name, "head");
    }
    /* No row has such a label: to rule out a class is no loss. */
    float values[PADDED] = {0};
    for (int i = 300; i < PADDED; i++)
        values[i] = -INFINITY;
    assert_ok(yoke_replica_write(rig.replica, bias, false, values));
    take_step(&rig, ROWS, true, &step);
    assert_true(isfinite(scalars_of(&rig).loss_sum));
    rig_destroy(&rig);
}

/* Beside a replica whose logits, their copies in float32, and the gradients of all have memory of
 * their own. */
static void logits_take_two_bytes_each(void **state) {
    (void)state;
    enum { WORDS = 4099, ALL_WORDS = 4160, LONG = 64 };
    outcome joined = take(WORDS, LONG, at(YOKE_BFLOAT16), false);
    outcome apart = take(WORDS, LONG, at(YOKE_BFLOAT16), true);
    size_t logits = (size_t)ROWS * LONG * WORDS, padded = (size_t)ROWS * LONG * ALL_WORDS;
    assert_true(joined.activation_bytes >= 2 * padded);
    assert_true(joined.activation_bytes < 2 * padded + logits / 2);
    size_t second = 2 * logits * sizeof(float); /* the second reader's copy, and its gradient */
    size_t saved = apart.allocated - second - joined.allocated;
    assert_true(saved < apart.allocated && saved > 8 * logits);
    free(joined.gradients);
    free(apart.gradients);
}

/* The benchmark of kernels times the step that training takes: without outputs. */
static void the_kernels_of_a_step_are_timed(void **state) {
    (void)state;
    enum { CALLS = 64 };
    struct rig rig;
    bool frozen[16], padded = false;
    bench_kernel_call calls[CALLS];
    int count = 0;
    open_rig(&rig, language_of(PADDED, POSITIONS, NULL, true, false), at(YOKE_BFLOAT16), frozen);
    assert_ok(bench_replica_calls(rig.replica, ROWS, 2, calls, CALLS, &count));
    assert_null(yoke_replica_memory_of(rig.replica)->outputs[0]);
    assert_true(count > 0 && count <= CALLS);
    for (int i = 0; i < count; i++) {
        bool head = strcmp(calls[i].layer, "head") == 0;
        if (head) padded = strstr(calls[i].algorithm, ", 576 outputs") != NULL;
        assert_true(calls[i].milliseconds > 0);
    }
    assert_true(padded);
    rig_destroy(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_language_model_equals_the_reference),
        cmocka_unit_test(smoothing_and_ignored_labels_count),
        cmocka_unit_test(class_weights_and_mixed_labels_count),
        cmocka_unit_test(frozen_layers_get_no_gradient),
        cmocka_unit_test(activation_checkpointing_makes_no_loss_again),
        cmocka_unit_test(gradients_equal_those_of_separate_plans),
        cmocka_unit_test(others_stay_apart),
        cmocka_unit_test(infinite_logits_do_not_pass),
        cmocka_unit_test(logits_take_two_bytes_each),
        cmocka_unit_test(the_kernels_of_a_step_are_timed),
    };
    if (devices_gpus() == 0) return DEVICES_SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
