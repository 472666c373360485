/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers that compute the GELU behind them and backward of the GELU before them, against the
 * float64 reference and against the operations apart. Skipped without a GPU. */
#include "joined_calls.h"

#define WITH_INPUT "matrix product with GELU and its input"
#define GRADIENT "matrix product, gradient of GELU"
#define GRADIENT_SUMS GRADIENT " and summed"

/* Models. */

typedef yoke_value activation_layer(yoke_model *model, yoke_value input);

static yoke_model *perceptron_of(activation_layer *activation, int width, bool bias) {
    yoke_model *model = NULL;
    assert_ok(yoke_model_create(&model, "perceptron", (yoke_shape){2, 3, 4, false}));
    yoke_value x = yoke_flatten(model, yoke_model_input(model));
    x = activation(model, dense(model, x, "fc1", width, bias));
    x = activation(model, dense(model, x, "fc2", width + 8, bias));
    assert_ok(yoke_model_finish(model, dense(model, x, "fc3", 3, true), NULL));
    return model;
}

static yoke_model *perceptron(int width, bool bias) {
    return perceptron_of(yoke_gelu_tanh, width, bias);
}

/* A transformer's block: positions of a sequence, with residual sums around a layer norm. */
static yoke_model *blocks(void) {
    yoke_model *model = NULL;
    assert_ok(yoke_model_create(&model, "blocks", (yoke_shape){8, 3, 2, false}));
    yoke_value x = yoke_sequence(model, yoke_model_input(model));
    for (int i = 0; i < 2; i++) {
        static const char *const names[][3] = {{"norm1", "up1", "down1"},
                                               {"norm2", "up2", "down2"}};
        yoke_layer_norm_options norm = YOKE_LAYER_NORM_OPTIONS_INIT;
        norm.name = names[i][0];
        yoke_value inner = dense(model, yoke_layer_norm(model, x, &norm), names[i][1], 32, true);
        inner = dense(model, yoke_gelu_tanh(model, inner), names[i][2], 8, true);
        x = yoke_add(model, x, inner);
    }
    assert_ok(yoke_model_finish(model, dense(model, x, "last", 3, true), NULL));
    return model;
}

/* Linear layers and activations, of which others may read the value between them, or the value
 * behind both; a range of them may run again for backward. */
static yoke_model *random_perceptron(uint32_t seed) {
    static const int widths[] = {8, 13, 16, 8, 40, 1};
    static activation_layer *const activations[] = {yoke_gelu_tanh, yoke_gelu_tanh, yoke_relu,
                                                    yoke_gelu};
    yoke_model *model = NULL;
    assert_ok(yoke_model_create(&model, "random", (yoke_shape){3, 2, 2, false}));
    yoke_value x = yoke_flatten(model, yoke_model_input(model));
    for (int i = 0; i < 7; i++) {
        uint32_t words[4];
        char name[32], output[32];
        yoke_random_words(seed, YOKE_RANDOM_PROBE, (uint64_t)i, 0, 0, words);
        snprintf(name, sizeof name, "fc%d", i);
        snprintf(output, sizeof output, "output%d", i);
        activation_layer *activation = activations[words[3] % COUNT(activations)];
        bool again = words[2] % 10 == 5, apart = words[2] % 10 == 6;
        if (again || apart) yoke_activation_checkpoint_begin(model);
        yoke_value before =
            dense(model, x, name, widths[words[0] % COUNT(widths)], words[1] % 3 != 0);
        if (apart) yoke_activation_checkpoint_end(model);
        x = activation(model, before);
        if (again) yoke_activation_checkpoint_end(model);
        switch (words[2] % 10) {
        case 0:
            yoke_model_add_output(model, output, before);
            break;
        case 1:
            yoke_model_add_output(model, output, x);
            break;
        case 2:
            x = yoke_add(model, x, before);
            break;
        case 3:
            x = yoke_dropout(model, x, 0.2);
            break;
        case 4:
            x = yoke_add(model, x, activation(model, before));
            break;
        default:
            break;
        }
    }
    assert_ok(yoke_model_finish(model, dense(model, x, "last", 3, true), NULL));
    return model;
}

/* Values and gradients. */

static void random_perceptrons_equal_the_reference(void **state) {
    (void)state;
    struct rig rig;
    for (uint32_t seed = 1; seed <= 40; seed++) {
        open_model(&rig, random_perceptron(seed), "joined", YOKE_FLOAT32);
        assert_step_near(&rig, 1e-5);
        rig_destroy(&rig);
    }
}

static void models_equal_the_reference_in_every_precision(void **state) {
    (void)state;
    static const int widths[] = {8, 13, 136, 0};
    struct rig rig;
    for (size_t i = 0; i < COUNT(widths) * COUNT(precisions); i++) {
        size_t precision = i % COUNT(precisions);
        int width = widths[i / COUNT(precisions)];
        open_model(&rig, width > 0 ? perceptron(width, i % 2 == 0) : blocks(), "joined",
                   precisions[precision].precision);
        assert_step_near(&rig, precisions[precision].tolerance);
        rig_destroy(&rig);
    }
}

/* Each tensor of the first two layers frozen or not, with the gradient of the input and without. */
static void frozen_parameters_equal_the_reference(void **state) {
    (void)state;
    for (unsigned bits = 0; bits < 32; bits++) {
        bool frozen[6] = {bits & 1, bits & 2, bits & 4, bits & 8, false, false};
        struct rig rig = {.model = perceptron(16, true),
                          .rows = 3,
                          .algorithm = YOKE_ALGORITHM_DIRECT,
                          .frozen = frozen,
                          .input_gradients = bits & 16};
        open_rig(&rig, "joined");
        assert_step_near(&rig, 1e-5);
        rig_destroy(&rig);
    }
}

static void measured_algorithms_equal_the_reference(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(precisions); i++) {
        struct rig rig = {
            .model = perceptron(40, true), .rows = 5, .precision = precisions[i].precision};
        open_rig(&rig, "joined");
        assert_step_near(&rig, precisions[i].tolerance);
        rig_destroy(&rig);
    }
}

static float *perceptron_results(const char *choice, yoke_precision precision, bool training,
                                 bool inference, size_t *count) {
    const struct rig rig = {
        .model = perceptron(24, true), .rows = 5, .precision = precision, .inference = inference};
    return results_of(rig, choice, training, count);
}

/* The joined product reads the sum where the kernel reads it rounded. */
static void joined_and_apart_differ_by_rounding_alone(void **state) {
    (void)state;
    static const double tolerances[] = {2e-6, 2e-3, 2e-2, 2e-3};
    for (size_t i = 0; i < COUNT(precisions) * 3; i++) {
        size_t count;
        yoke_precision precision = precisions[i / 3].precision;
        bool training = i % 3 == 0, inference = i % 3 == 2;
        float *joined = perceptron_results("joined", precision, training, inference, &count);
        float *apart = perceptron_results("apart", precision, training, inference, &count);
        double *wanted = malloc(count * sizeof *wanted);
        for (size_t k = 0; k < count; k++)
            wanted[k] = (double)apart[k];
        assert_near(joined, wanted, count, (struct nearness){tolerances[i / 3], 0}, "joined");
        free(wanted);
        free(joined);
        free(apart);
    }
}

static void two_runs_give_the_same_bits(void **state) {
    (void)state;
    size_t count;
    float *once = perceptron_results("joined", YOKE_BFLOAT16, true, false, &count);
    float *again = perceptron_results("joined", YOKE_BFLOAT16, true, false, &count);
    assert_memory_equal(once, again, count * sizeof *once);
    free(once);
    free(again);
}

/* The passes of a step. */

static void a_gelu_between_linear_layers_costs_no_pass_of_its_own(void **state) {
    (void)state;
    bench_kernel_call calls[CALLS];
    for (size_t i = 0; i < COUNT(precisions); i++) {
        yoke_precision precision = precisions[i].precision;
        int count = list_calls(perceptron(16, true), "apart", precision, calls);
        assert_int_equal(passes_of(calls, count, "gelu_tanh", "forward"), 2);
        assert_int_equal(passes_of(calls, count, "gelu_tanh", "backward"), 2);
        assert_int_equal(passes_by(calls, count, WITH_INPUT), 0);
        count = list_calls(perceptron(16, true), "joined", precision, calls);
        int forward = passes_by(calls, count, WITH_INPUT);
        int backward = passes_by(calls, count, GRADIENT) + passes_by(calls, count, GRADIENT_SUMS);
#ifdef YOKE_SIMCUDA /* the library may have less */
        assert_int_equal(forward, 2);
        assert_int_equal(backward, 2);
        /* Where values have 16 bits it rounds sums. */
        assert_int_equal(passes_by(calls, count, GRADIENT), is_half(precision) ? 2 : 0);
#endif
        assert_int_equal(passes_of(calls, count, "gelu_tanh", "forward"), 2 - forward);
        assert_int_equal(passes_of(calls, count, "gelu_tanh", "backward"), 2 - backward);
    }
}

/* The library's GELU is the form with tanh. */
static void other_activations_keep_their_passes(void **state) {
    (void)state;
    bench_kernel_call calls[CALLS];
    int count = list_calls(perceptron_of(yoke_gelu, 16, true), "joined", YOKE_FLOAT32, calls);
    assert_int_equal(passes_of(calls, count, "gelu", "forward"), 2);
    assert_int_equal(passes_of(calls, count, "gelu", "backward"), 2);
}

/* The library wants rows of a multiple of 8 elements. */
static void a_width_without_an_epilogue_keeps_its_passes(void **state) {
    (void)state;
    bench_kernel_call calls[CALLS];
    int count = list_calls(perceptron(13, true), "joined", YOKE_FLOAT32, calls);
    assert_int_equal(passes_of(calls, count, "gelu_tanh", "forward"), 2);
    assert_int_equal(passes_of(calls, count, "gelu_tanh", "backward"), 2);
}

static yoke_model *around(bool recomputed) {
    yoke_model *model = NULL;
    assert_ok(yoke_model_create(&model, "around", (yoke_shape){8, 1, 1, false}));
    yoke_value from = yoke_flatten(model, yoke_model_input(model));
    if (recomputed) yoke_activation_checkpoint_begin(model);
    yoke_value x = dense(model, from, "fc1", 8, true);
    if (!recomputed) yoke_model_add_output(model, "between", x);
    x = yoke_gelu_tanh(model, x);
    if (recomputed) yoke_activation_checkpoint_end(model);
    x = dense(model, x, "fc2", 16, true);
    assert_ok(yoke_model_finish(model, dense(model, x, "fc3", 3, true), NULL));
    return model;
}

static void a_value_that_others_read_or_that_is_made_again_is_not_joined(void **state) {
    (void)state;
    bench_kernel_call calls[CALLS];
    for (int recomputed = 0; recomputed < 2; recomputed++) {
        int count = list_calls(around(recomputed != 0), "joined", YOKE_FLOAT32, calls);
        assert_in_range(passes_of(calls, count, "gelu_tanh", "forward"), 1, 2);
        assert_int_equal(passes_of(calls, count, "gelu_tanh", "backward"), 1);
        assert_int_equal(passes_by(calls, count, WITH_INPUT), 0);
    }
}

/* Whatever wins, the record names it, and the plans compute it. */
static void a_contest_decides_and_its_record_decides_again(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(precisions); i++) {
        struct rig rig = {.list = "cuda:0",
                          .model = perceptron(16, true),
                          .rows = 5,
                          .precision = precisions[i].precision};
        rig_devices(&rig);
        rig_replica(&rig, 1);
        assert_step_near(&rig, precisions[i].tolerance);
        const char *key, *name;
        double milliseconds;
        int decisions = 0, forward = 0, gradients = 0, backward = 0;
        for (int k = 0; yoke_algorithms_at(rig.algorithms, k, &key, &name, &milliseconds); k++) {
            bool joined = strcmp(name, "joined") == 0;
            bool behind = strstr(key, " and GELU that keeps its input") != NULL;
            bool before = strstr(key, " of a GELU") != NULL;
            assert_true((!behind && !before) || milliseconds > 0);
            decisions += behind;
            forward += behind && joined;
            gradients += before;
            backward += before && joined;
        }
        assert_int_equal(decisions, 2);
        assert_int_equal(gradients, forward); /* where the input is kept */
        bench_kernel_call calls[CALLS];
        for (int again = 0; again < 2; again++) {
            int count = 0;
            assert_ok(bench_replica_calls(rig.replica, rig.rows, 1, calls, CALLS, &count));
            assert_int_equal(passes_of(calls, count, "gelu_tanh", "forward"), 2 - forward);
            assert_int_equal(passes_of(calls, count, "gelu_tanh", "backward"), 2 - backward);
            yoke_replica_destroy(rig.replica);
            rig_replica(&rig, 1);
        }
        rig_destroy(&rig);
    }
}

int main(void) {
    if (devices_gpus() == 0) {
        print_message("skipped: no usable GPU\n");
        return DEVICES_SKIPPED;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_perceptrons_equal_the_reference),
        cmocka_unit_test(models_equal_the_reference_in_every_precision),
        cmocka_unit_test(frozen_parameters_equal_the_reference),
        cmocka_unit_test(measured_algorithms_equal_the_reference),
        cmocka_unit_test(joined_and_apart_differ_by_rounding_alone),
        cmocka_unit_test(two_runs_give_the_same_bits),
        cmocka_unit_test(a_gelu_between_linear_layers_costs_no_pass_of_its_own),
        cmocka_unit_test(other_activations_keep_their_passes),
        cmocka_unit_test(a_width_without_an_epilogue_keeps_its_passes),
        cmocka_unit_test(a_value_that_others_read_or_that_is_made_again_is_not_joined),
        cmocka_unit_test(a_contest_decides_and_its_record_decides_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
