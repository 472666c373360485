/* SPDX-License-Identifier: Apache-2.0 */
/* Layer norms that compute the sum of a residual that they read, against the float64 reference and
 * with the bits of the two operations apart. Skipped without a GPU. */
#include "joined_calls.h"

static yoke_value normed(yoke_model *model, yoke_value input, const char *name) {
    yoke_layer_norm_options options = YOKE_LAYER_NORM_OPTIONS_INIT;
    options.name = name;
    return yoke_layer_norm(model, input, &options);
}

/* Sums of `features` at 6 positions, of which a layer norm reads each. A range of which each sum is
 * the last operation, and alone in it, is computed again, and so joined by nobody: with the same
 * bits. */
static yoke_model *blocks(int features, bool apart) {
    static const char *const names[][2] = {{"norm0", "fc0"}, {"norm1", "fc1"}, {"norm2", "fc2"}};
    yoke_model *model = NULL;
    assert_ok(yoke_model_create(&model, "blocks", (yoke_shape){8, 3, 2, false}));
    yoke_value x =
        dense(model, yoke_sequence(model, yoke_model_input(model)), "first", features, true);
    for (size_t i = 0; i < COUNT(names); i++) {
        yoke_value inner = dense(model, normed(model, x, names[i][0]), names[i][1], features, true);
        if (apart) yoke_activation_checkpoint_begin(model);
        x = yoke_add(model, x, inner);
        if (apart) yoke_activation_checkpoint_end(model);
    }
    static const yoke_loss_options loss = {.struct_size = sizeof loss, .kind = YOKE_LOSS_MSE};
    x = normed(model, x, "last norm");
    assert_ok(yoke_model_finish(model, dense(model, x, "last", 3, true), &loss));
    return model;
}

/* A warp for a position, a block for it, and features that are read again for each sum. */
static const int widths[] = {8, 16, 13, 1040};

static void models_equal_the_reference_in_every_precision(void **state) {
    (void)state;
    struct rig rig;
    for (size_t i = 0; i < COUNT(widths) * COUNT(precisions); i++) {
        size_t precision = i % COUNT(precisions);
        open_model(&rig, blocks(widths[i / COUNT(precisions)], false), "apart",
                   precisions[precision].precision);
        assert_step_near(&rig, precisions[precision].tolerance);
        rig_destroy(&rig);
    }
}

/* Values that several later operations read; sums of sums; a range that runs again. */
static yoke_model *random_residuals(uint32_t seed) {
    yoke_model *model = NULL;
    assert_ok(yoke_model_create(&model, "random", (yoke_shape){8, 3, 2, false}));
    yoke_value values[16] = {
        dense(model, yoke_sequence(model, yoke_model_input(model)), "first", 8, true)};
    for (int i = 1; i < (int)COUNT(values); i++) {
        uint32_t words[4];
        char name[32], other[32];
        yoke_random_words(seed, YOKE_RANDOM_PROBE, (uint64_t)i, 0, 0, words);
        snprintf(name, sizeof name, "layer%d", i);
        yoke_value near = values[i - 1], far = values[words[1] % (uint32_t)i];
        bool again = words[3] % 8 == 0;
        if (again) yoke_activation_checkpoint_begin(model);
        switch (words[0] % 6) {
        case 0:
        case 1:
            values[i] = yoke_add(model, near, far);
            break;
        case 2:
        case 3:
            values[i] = normed(model, near, name);
            break;
        case 4:
            snprintf(other, sizeof other, "fc%d", i);
            values[i] =
                yoke_add(model, near, dense(model, normed(model, far, name), other, 8, true));
            break;
        default:
            values[i] = yoke_dropout(model, near, 0.2);
            break;
        }
        if (again) yoke_activation_checkpoint_end(model);
    }
    yoke_value last = yoke_add(model, values[COUNT(values) - 1], values[COUNT(values) - 2]);
    assert_ok(
        yoke_model_finish(model, dense(model, normed(model, last, "norm"), "last", 3, true), NULL));
    return model;
}

static void random_residuals_equal_the_reference(void **state) {
    (void)state;
    for (uint32_t seed = 1; seed <= 60; seed++) {
        struct rig rig = {.model = random_residuals(seed),
                          .rows = 3,
                          .algorithm = YOKE_ALGORITHM_DIRECT,
                          .input_gradients = seed % 3 == 0,
                          .recomputes = seed % 5 == 0};
        open_rig(&rig, seed % 2 == 0 ? "added by the same pass" : "apart");
        assert_step_near(&rig, 1e-4);
        rig_destroy(&rig);
    }
}

static float *block_results(int features, bool apart, yoke_precision precision, bool training,
                            bool inference, size_t *count) {
    const struct rig rig = {.model = blocks(features, apart),
                            .rows = 3,
                            .precision = precision,
                            .inference = inference};
    return results_of(rig, "apart", training, count);
}

static void a_sum_has_the_bits_of_the_two_operations_apart(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(widths) * COUNT(precisions) * 3; i++) {
        size_t count, apart_count;
        int features = widths[i / 3 / COUNT(precisions)];
        yoke_precision precision = precisions[i / 3 % COUNT(precisions)].precision;
        bool training = i % 3 == 0, inference = i % 3 == 2;
        float *joined = block_results(features, false, precision, training, inference, &count);
        float *apart = block_results(features, true, precision, training, inference, &apart_count);
        assert_int_equal(count, apart_count);
        assert_memory_equal(joined, apart, count * sizeof *joined);
        free(joined);
        free(apart);
    }
}

static void a_sum_costs_no_pass_of_its_own(void **state) {
    (void)state;
    bench_kernel_call calls[CALLS];
    for (int apart = 0; apart < 2; apart++) {
        int count = list_calls(blocks(8, apart != 0), "apart", YOKE_BFLOAT16, calls);
        assert_int_equal(passes_of(calls, count, "add", "forward"), apart == 0 ? 0 : 3);
    }
}

/* Somebody reads the sum before the layer norm does. */
static void a_sum_that_is_read_earlier_is_made_in_its_place(void **state) {
    (void)state;
    struct rig rig;
    yoke_model *model = NULL;
    bench_kernel_call calls[CALLS];
    int count = 0;
    assert_ok(yoke_model_create(&model, "early", (yoke_shape){8, 3, 2, false}));
    yoke_value x = dense(model, yoke_sequence(model, yoke_model_input(model)), "first", 8, true);
    x = yoke_add(model, x, dense(model, x, "inner", 8, true));
    yoke_value early = dense(model, x, "early", 8, true);
    x = yoke_multiply(model, normed(model, x, "norm"), early);
    assert_ok(yoke_model_finish(model, dense(model, x, "last", 3, true), NULL));
    open_model(&rig, model, "apart", YOKE_FLOAT32);
    assert_step_near(&rig, 1e-5);
    assert_ok(bench_replica_calls(rig.replica, rig.rows, 1, calls, CALLS, &count));
    assert_int_equal(passes_of(calls, count, "add", "forward"), 1);
    rig_destroy(&rig);
}

/* The search for values that are not finite names the sum, not the layer norm that computes it. */
static void a_sum_that_overflows_is_found(void **state) {
    (void)state;
    struct rig rig;
    yoke_model *model = NULL;
    assert_ok(yoke_model_create(&model, "overflow", (yoke_shape){8, 3, 2, false}));
    yoke_value x = dense(model, yoke_sequence(model, yoke_model_input(model)), "first", 8, true);
    x = yoke_add(model, x, x);
    assert_ok(
        yoke_model_finish(model, dense(model, normed(model, x, "norm"), "last", 3, true), NULL));
    open_model(&rig, model, "apart", YOKE_FLOAT32);
    yoke_plan_step step = rig_step(&rig);
    float weights[64], bias[8];
    for (int i = 0; i < 64; i++)
        weights[i] = 0;
    for (int i = 0; i < 8; i++)
        bias[i] = 3e38f;
    assert_ok(yoke_replica_write(rig.replica, 0, false, weights));
    assert_ok(yoke_replica_write(rig.replica, 1, false, bias));
    assert_ok(yoke_replica_forward(rig.replica, rig.rows, true, &step));
    assert_ok(yoke_replica_loss(rig.replica, &step));
    const char *name = yoke_replica_first_nonfinite(rig.replica);
    assert_non_null(name);
    assert_non_null(strstr(name, "add"));
    rig_destroy(&rig);
}

int main(void) {
    if (devices_gpus() == 0) {
        print_message("skipped: no usable GPU\n");
        return DEVICES_SKIPPED;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_equal_the_reference_in_every_precision),
        cmocka_unit_test(random_residuals_equal_the_reference),
        cmocka_unit_test(a_sum_has_the_bits_of_the_two_operations_apart),
        cmocka_unit_test(a_sum_costs_no_pass_of_its_own),
        cmocka_unit_test(a_sum_that_is_read_earlier_is_made_in_its_place),
        cmocka_unit_test(a_sum_that_overflows_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
