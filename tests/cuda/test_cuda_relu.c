/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers that compute the ReLU behind them, or a bias in bfloat16, against the float64
 * reference and against the two operations apart. Skipped without a GPU. */
#include "joined_calls.h"
#include "with_setting.h"

/* Models. */

static yoke_model *perceptron(int width, bool bias) {
    yoke_model *model = NULL;
    assert_ok(yoke_model_create(&model, "perceptron", (yoke_shape){2, 3, 4, false}));
    yoke_value x = yoke_flatten(model, yoke_model_input(model));
    x = yoke_relu(model, dense(model, x, "fc1", width, bias));
    x = yoke_relu(model, dense(model, x, "fc2", width + 8, bias));
    assert_ok(yoke_model_finish(model, dense(model, x, "fc3", 3, true), NULL));
    return model;
}

/* Linear layers and ReLUs, of which others may read the value between them, or the value behind
 * both. Every layer reads the one before it, or the sum of all that have its width. */
static yoke_model *random_perceptron(uint32_t seed) {
    static const int widths[] = {8, 13, 16, 8, 40, 1};
    yoke_model *model = NULL;
    assert_ok(yoke_model_create(&model, "random", (yoke_shape){3, 2, 2, false}));
    yoke_value x = yoke_flatten(model, yoke_model_input(model));
    for (int i = 0; i < 7; i++) {
        uint32_t words[4];
        char name[32], output[32];
        yoke_random_words(seed, YOKE_RANDOM_PROBE, (uint64_t)i, 0, 0, words);
        snprintf(name, sizeof name, "fc%d", i);
        snprintf(output, sizeof output, "output%d", i);
        yoke_value before =
            dense(model, x, name, widths[words[0] % COUNT(widths)], words[1] % 3 != 0);
        x = yoke_relu(model, before);
        switch (words[2] % 9) {
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
            x = yoke_add(model, x, x);
            break;
        case 5:
            x = yoke_add(model, x, yoke_relu(model, before));
            break;
        default:
            break;
        }
    }
    assert_ok(yoke_model_finish(model, dense(model, x, "last", 3, true), NULL));
    return model;
}

static void random_perceptrons_equal_the_reference(void **state) {
    (void)state;
    struct rig rig;
    for (uint32_t seed = 1; seed <= 40; seed++) {
        open_model(&rig, random_perceptron(seed), "joined", YOKE_FLOAT32);
        assert_step_near(&rig, 1e-5);
        rig_destroy(&rig);
    }
}

static void perceptrons_equal_the_reference_in_every_precision(void **state) {
    (void)state;
    static const int widths[] = {8, 13, 128, 136};
    struct rig rig;
    for (size_t i = 0; i < COUNT(widths) * COUNT(precisions); i++) {
        size_t precision = i % COUNT(precisions);
        open_model(&rig, perceptron(widths[i / COUNT(precisions)], i % 2 == 0), "joined",
                   precisions[precision].precision);
        assert_step_near(&rig, precisions[precision].tolerance);
        rig_destroy(&rig);
    }
}

/* Each tensor of the first two layers frozen or not, with the gradient of the input and without. */
static void frozen_parameters(void) {
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

static void frozen_and_shared_parameters_equal_the_reference(void **state) {
    (void)state;
    frozen_parameters();
    struct rig rig;
    yoke_model *model = NULL;
    assert_ok(yoke_model_create(&model, "shared", (yoke_shape){16, 1, 1, false}));
    yoke_value x = yoke_flatten(model, yoke_model_input(model));
    x = yoke_relu(model, linear(model, x, "first", 16, NULL));
    for (int i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof name, "again%d", i);
        x = yoke_relu(model, linear(model, x, name, 16, "first"));
    }
    assert_ok(yoke_model_finish(model, linear(model, x, "last", 3, NULL), NULL));
    open_model(&rig, model, "joined", YOKE_FLOAT32);
    assert_step_near(&rig, 1e-5);
    rig_destroy(&rig);
}

static void positions_of_a_sequence_equal_the_reference(void **state) {
    (void)state;
    struct rig rig;
    for (size_t i = 0; i < COUNT(precisions); i++) {
        yoke_model *model = NULL;
        assert_ok(yoke_model_create(&model, "sequence", (yoke_shape){8, 3, 2, false}));
        yoke_value x = yoke_sequence(model, yoke_model_input(model));
        x = yoke_relu(model, dense(model, x, "fc1", 24, true));
        x = yoke_relu(model, dense(model, x, "fc2", 8, true));
        assert_ok(yoke_model_finish(model, dense(model, x, "fc3", 3, true), NULL));
        open_model(&rig, model, "joined", precisions[i].precision);
        assert_step_near(&rig, precisions[i].tolerance);
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

/* The passes of a step. */

/* Whatever wins, the record names it, and the plans compute it. `most_joined`: of the two. */
static void hold_contests(int most_joined) {
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
        int decisions = 0, joined = 0, biases = 0;
        for (int k = 0; yoke_algorithms_at(rig.algorithms, k, &key, &name, &milliseconds); k++) {
            biases += strstr(key, "forward and bias") != NULL;
            if (strstr(key, "ReLU that keeps a mask") == NULL) continue;
            assert_true(milliseconds > 0);
            joined += strcmp(name, "joined") == 0;
            decisions++;
        }
        assert_int_equal(decisions, 2);
        assert_in_range(joined, 0, most_joined);
        /* A ReLU that is computed apart leaves the bias. */
        assert_int_equal(biases, is_half(precisions[i].precision) ? 3 - joined : 0);
        bench_kernel_call calls[CALLS];
        for (int again = 0; again < 2; again++) {
            int count = 0;
            assert_ok(bench_replica_calls(rig.replica, rig.rows, 1, calls, CALLS, &count));
            assert_int_equal(passes_of(calls, count, "relu", "forward"), 2 - joined);
            yoke_replica_destroy(rig.replica);
            rig_replica(&rig, 1);
        }
        rig_destroy(&rig);
    }
}

static void a_contest_decides_and_its_record_decides_again(void **state) {
    (void)state;
    hold_contests(2);
}

#ifdef YOKE_SIMCUDA
static void a_contest_decides_where_the_librarys_relu_keeps_a_nan(void **state) {
    WITH("SIMCUDA_RELU_KEEPS_NAN", "1");
    hold_contests(2);
}

static void a_relu_that_turns_a_nan_into_0_wins_no_contest(void **state) {
    WITH("SIMCUDA_RELU_KEEPS_NAN", "0");
    hold_contests(0);
}
#endif

static void a_relu_between_linear_layers_costs_no_pass_of_its_own(void **state) {
    (void)state;
    bench_kernel_call calls[CALLS];
    for (size_t i = 0; i < COUNT(precisions); i++) {
        yoke_precision precision = precisions[i].precision;
        bool half = is_half(precision); /* it rounds sums */
        const char *masked = half ? "matrix product, masked" : "matrix product, masked and summed";
        int count = list_calls(perceptron(16, true), "apart", precision, calls);
        assert_int_equal(passes_of(calls, count, "relu", "forward"), 2);
        assert_int_equal(passes_of(calls, count, "relu", "backward"), 2);
        assert_int_equal(passes_by(calls, count, "matrix product with ReLU and mask"), 0);
        count = list_calls(perceptron(16, true), "joined", precision, calls);
        int masks = passes_by(calls, count, "matrix product with ReLU and mask");
        int read = passes_by(calls, count, masked);
#ifdef YOKE_SIMCUDA /* the library may have less */
        assert_int_equal(masks, 2);
        assert_int_equal(read, 2);
#else
        masks += passes_by(calls, count, "matrix product with ReLU");
        if (!half) read += passes_by(calls, count, "matrix product, masked");
#endif
        assert_int_equal(passes_of(calls, count, "relu", "forward"), 2 - masks);
        assert_int_equal(passes_of(calls, count, "relu", "backward"), 2 - read);
    }
}

static void without_a_bias_nothing_is_summed(void **state) {
    (void)state;
    bench_kernel_call calls[CALLS];
    int count = list_calls(perceptron(16, false), "joined", YOKE_FLOAT32, calls);
    assert_int_equal(passes_by(calls, count, "matrix product, masked and summed"), 0);
#ifdef YOKE_SIMCUDA
    assert_int_equal(passes_by(calls, count, "matrix product, masked"), 2);
#endif
}

static void a_bias_in_16_bits_costs_no_pass_of_its_own(void **state) {
    (void)state;
    bench_kernel_call calls[CALLS];
    for (size_t i = 0; i < COUNT(precisions); i++) {
        bool half = is_half(precisions[i].precision);
        int count = list_calls(perceptron(16, true), "apart", precisions[i].precision, calls);
        assert_int_equal(passes_by(calls, count, "matrix product with bias"), 0);
        count = list_calls(perceptron(16, true), "joined", precisions[i].precision, calls);
        int with_bias = passes_by(calls, count, "matrix product with bias");
#ifdef YOKE_SIMCUDA /* the library may have less */
        assert_int_equal(with_bias, half ? 1 : 0);
#else
        assert_in_range(with_bias, 0, half ? 3 : 0);
#endif
    }
}

/* The simulated library has no masks of 13 or 21 features. */
static void a_width_without_a_mask_keeps_backward_of_the_relu(void **state) {
    (void)state;
    bench_kernel_call calls[CALLS];
    int count = list_calls(perceptron(13, true), "joined", YOKE_FLOAT32, calls);
    int masks = passes_by(calls, count, "matrix product with ReLU and mask");
    assert_int_equal(passes_by(calls, count, "matrix product with ReLU") + masks, 2);
    assert_int_equal(passes_of(calls, count, "relu", "backward") + masks, 2);
    assert_int_equal(passes_by(calls, count, "matrix product, masked and summed"), masks);
#ifdef YOKE_SIMCUDA
    assert_int_equal(masks, 0);
#endif
}

static yoke_model *read_between(void) {
    yoke_model *model = NULL;
    assert_ok(yoke_model_create(&model, "between", (yoke_shape){8, 1, 1, false}));
    yoke_value x = dense(model, yoke_flatten(model, yoke_model_input(model)), "fc1", 8, true);
    yoke_model_add_output(model, "between", x);
    assert_ok(yoke_model_finish(model, dense(model, yoke_relu(model, x), "fc2", 3, true), NULL));
    return model;
}

static void a_value_that_others_read_stays_as_it_was_before_the_relu(void **state) {
    (void)state;
    bench_kernel_call calls[CALLS];
    int count = list_calls(read_between(), "joined", YOKE_FLOAT32, calls);
    assert_int_equal(passes_of(calls, count, "relu", "forward"), 1);
    assert_int_equal(passes_by(calls, count, "matrix product with ReLU"), 0);
}

/* Output 0 in training, or in evaluation; freed by the caller. */
static float *outputs_of(const char *choice, yoke_precision precision, bool training,
                         size_t *bytes) {
    struct rig rig;
    open_model(&rig, perceptron(24, true), choice, precision);
    yoke_plan_step step = rig_step(&rig);
    assert_ok(yoke_replica_prepare(rig.replica, rig.rows, training));
    assert_ok(yoke_replica_forward(rig.replica, rig.rows, training, &step));
    *bytes = (size_t)rig.rows * yoke_model_output_elements(rig.model, 0) * sizeof(float);
    float *values =
        device_values(rig.device, yoke_replica_memory_of(rig.replica)->outputs[0], *bytes);
    rig_destroy(&rig);
    return values;
}

/* A real library may take other algorithms with an epilogue than without. */
static void float32_has_the_bits_of_the_two_operations_apart(void **state) {
    (void)state;
    for (int training = 0; training < 2; training++) {
        size_t bytes;
        float *joined = outputs_of("joined", YOKE_FLOAT32, training != 0, &bytes);
        float *apart = outputs_of("apart", YOKE_FLOAT32, training != 0, &bytes);
#ifdef YOKE_SIMCUDA
        assert_memory_equal(joined, apart, bytes);
#endif
        for (size_t i = 0; i < bytes / sizeof(float); i++)
            assert_true(fabsf(joined[i] - apart[i]) <= 1e-6f);
        free(joined);
        free(apart);
    }
}

/* The gradients of one step, freed by the caller. */
static float *gradients_of(size_t *bytes) {
    struct rig rig;
    open_model(&rig, perceptron(136, true), "joined", YOKE_BFLOAT16);
    yoke_plan_step step = rig_step(&rig);
    assert_ok(yoke_replica_forward(rig.replica, rig.rows, true, &step));
    assert_ok(yoke_replica_loss(rig.replica, &step));
    rig_backward(&rig, &step);
    *bytes = yoke_replica_flat(rig.replica)->trainable_elements * sizeof(float);
    float *gradients =
        device_values(rig.device, yoke_replica_memory_of(rig.replica)->gradients, *bytes);
    rig_destroy(&rig);
    return gradients;
}

static void two_runs_give_the_same_bits(void **state) {
    (void)state;
    size_t bytes;
    float *once = gradients_of(&bytes), *again = gradients_of(&bytes);
    assert_memory_equal(once, again, bytes);
    free(once);
    free(again);
}

#ifdef YOKE_SIMCUDA
static const bench_kernel_call *forward_of(const bench_kernel_call *calls, int count,
                                           const char *layer) {
    for (int i = 0; i < count; i++)
        if (strcmp(calls[i].layer, layer) == 0 && strcmp(calls[i].direction, "forward") == 0)
            return &calls[i];
    fail_msg("no forward of %s", layer);
    return NULL;
}

/* Only joined passes are measured, and all candidates of the first, forward of fc1, fail. */
static void an_epilogue_that_is_offered_but_does_not_run_is_given_up(void **state) {
    WITH("SIMCUDA_FAULT", "cublasLtMatmul@1=15;cublasLtMatmul@2=15;cublasLtMatmul@3=15");
    struct rig rig = {.model = perceptron(40, true), .rows = 5, .precision = YOKE_FLOAT32};
    open_rig(&rig, "matrix product");
    bench_kernel_call calls[CALLS];
    int count = 0;
    assert_ok(bench_replica_calls(rig.replica, rig.rows, 1, calls, CALLS, &count));
    assert_string_equal(forward_of(calls, count, "fc1")->algorithm, "matrix product");
    assert_step_near(&rig, 1e-5);
    rig_destroy(&rig);
}

/* The library has no algorithm for the first linear layer with its ReLU: with a mask, or at all. */
static void a_shape_without_a_mask_still_has_its_relu(void **state) {
    WITH("SIMCUDA_FAULT", "cublasLtMatmulAlgoGetHeuristic@1=15"); /* NOT_SUPPORTED */
    bench_kernel_call calls[CALLS];
    int count = list_calls(perceptron(16, true), "joined", YOKE_FLOAT32, calls);
    assert_int_equal(passes_of(calls, count, "relu", "forward"), 0);
    assert_int_equal(passes_of(calls, count, "relu", "backward"), 1);
    assert_int_equal(passes_by(calls, count, "matrix product with ReLU"), 1);
    assert_int_equal(passes_by(calls, count, "matrix product with ReLU and mask"), 1);
}

static void a_shape_without_an_algorithm_keeps_its_passes(void **state) {
    WITH("SIMCUDA_FAULT",
         "cublasLtMatmulAlgoGetHeuristic@1=15;cublasLtMatmulAlgoGetHeuristic@2=15");
    bench_kernel_call calls[CALLS];
    int count = list_calls(perceptron(16, true), "joined", YOKE_FLOAT32, calls);
    assert_int_equal(passes_of(calls, count, "relu", "forward"), 1);
    assert_int_equal(passes_of(calls, count, "relu", "backward"), 1);
    assert_int_equal(passes_by(calls, count, "matrix product with ReLU"), 0);
    assert_int_equal(passes_by(calls, count, "matrix product with ReLU and mask"), 1);
}
#endif

int main(void) {
    if (devices_gpus() == 0) {
        print_message("skipped: no usable GPU\n");
        return DEVICES_SKIPPED;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_perceptrons_equal_the_reference),
        cmocka_unit_test(perceptrons_equal_the_reference_in_every_precision),
        cmocka_unit_test(frozen_and_shared_parameters_equal_the_reference),
        cmocka_unit_test(positions_of_a_sequence_equal_the_reference),
        cmocka_unit_test(measured_algorithms_equal_the_reference),
        cmocka_unit_test(a_contest_decides_and_its_record_decides_again),
#ifdef YOKE_SIMCUDA
        cmocka_unit_test(a_contest_decides_where_the_librarys_relu_keeps_a_nan),
        cmocka_unit_test(a_relu_that_turns_a_nan_into_0_wins_no_contest),
#endif
        cmocka_unit_test(a_relu_between_linear_layers_costs_no_pass_of_its_own),
        cmocka_unit_test(without_a_bias_nothing_is_summed),
        cmocka_unit_test(a_bias_in_16_bits_costs_no_pass_of_its_own),
        cmocka_unit_test(a_width_without_a_mask_keeps_backward_of_the_relu),
        cmocka_unit_test(a_value_that_others_read_stays_as_it_was_before_the_relu),
        cmocka_unit_test(float32_has_the_bits_of_the_two_operations_apart),
        cmocka_unit_test(two_runs_give_the_same_bits),
#ifdef YOKE_SIMCUDA
        cmocka_unit_test(a_shape_without_a_mask_still_has_its_relu),
        cmocka_unit_test(an_epilogue_that_is_offered_but_does_not_run_is_given_up),
        cmocka_unit_test(a_shape_without_an_algorithm_keeps_its_passes),
#endif
    };
    with_setting_filter();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
