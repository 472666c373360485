/* SPDX-License-Identifier: Apache-2.0 */
/* Multi-head attention on the CPU: softmax(q k^T / sqrt(size)) v of each head, whatever the tiles.
 */
#include "operation_check.h"

#include "fixtures/fixture.h"

typedef struct shape {
    int rows, positions, heads, size; /* size: features of a head */
} shape;

static void reference(const operation_check *check, double *const inputs[],
                      double *const parameters[], double *output) {
    (void)parameters;
    const yoke_operation *operation = &check->operation;
    int positions = operation->output.height, channels = operation->output.channels;
    int size = channels / operation->heads;
    double weights[512];
    assert_true(positions <= 512);
    for (int i = 0; i < check->rows * operation->heads * positions; i++) {
        int query = i % positions, head = i / positions % operation->heads;
        int row = i / positions / operation->heads * positions;
        int keys = operation->causal ? query + 1 : positions;
        const double *q = inputs[0] + (row + query) * 3 * channels + head * size;
        double *y = output + (row + query) * channels + head * size, sum = 0;
        for (int j = 0; j < keys; j++) {
            const double *k = inputs[0] + (row + j) * 3 * channels + channels + head * size;
            double score = 0;
            for (int d = 0; d < size; d++)
                score += q[d] * k[d];
            sum += weights[j] = exp(score / sqrt(size));
        }
        for (int d = 0; d < size; d++) {
            const double *v = inputs[0] + row * 3 * channels + 2 * channels + head * size + d;
            y[d] = 0;
            for (int j = 0; j < keys; j++)
                y[d] += weights[j] / sum * v[j * 3 * channels];
        }
    }
}

static operation_check prepare(shape s, bool causal, yoke_precision precision) {
    int channels = s.heads * s.size;
    yoke_dims input = {3 * channels, s.positions, 1, true},
              output = {channels, s.positions, 1, true};
    return (operation_check){.operation = {.kind = YOKE_OP_ATTENTION,
                                           .input = input,
                                           .output = output,
                                           .heads = s.heads,
                                           .causal = causal},
                             .rows = s.rows,
                             .precision = precision,
                             .training = true};
}

/* Returns the bytes that forward keeps for backward. */
static size_t run(operation_check *check, double most, double tolerance) {
    yoke_devices *devices = check_devices(2);
    check_open(check, yoke_devices_at(devices, 0));
    check_bind(check);
    check_values values = {.inputs = {check_random(check_count(&check->inputs[0]), -most, most, 1)},
                           .output_gradient =
                               check_random(check_count(&check->needs->output), -1, 1, 2)};
    check_passes(check, reference, &values, tolerance);
    size_t saved = check->needs->saved_bytes;
    check_values_free(&values);
    check_close(check);
    yoke_devices_close(devices);
    return saved;
}

/* One position, one head, sizes that are multiples of nothing, lengths around a tile's. */
static const shape shapes[] = {{2, 1, 1, 1},  {1, 1, 3, 16}, {2, 2, 1, 5},  {1, 5, 2, 3},
                               {2, 17, 2, 4}, {1, 31, 1, 7}, {1, 33, 1, 2}, {1, 64, 1, 3},
                               {1, 65, 2, 2}, {1, 70, 1, 3}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static void passes_equal_the_formula_and_its_differences(void **state) {
    (void)state;
    for (int i = 0; i < 2 * SHAPES; i++) {
        operation_check check = prepare(shapes[i / 2], i % 2 != 0, YOKE_FLOAT32);
        run(&check, 2, 1e-5);
    }
}

/* Evaluation saves nothing, and the first operation of a model gives no gradient. */
static void runs_without_a_gradient(void **state) {
    (void)state;
    for (int i = 0; i < 2 * SHAPES; i++) {
        operation_check check = prepare(shapes[i / 2], true, YOKE_FLOAT32);
        check.training = i % 2 != 0;
        check.no_input_gradient = true;
        assert_int_equal(run(&check, 2, 1e-5), 0);
    }
}

static void forward_equals_the_formula_at_common_sizes(void **state) {
    (void)state;
    static const shape common[] = {
        {2, 128, 4, 32}, {2, 65, 3, 64}, {1, 197, 3, 64}, {1, 300, 12, 16}, {1, 40, 1, 129}};
    for (size_t i = 0; i < 2 * sizeof common / sizeof common[0]; i++) {
        operation_check check = prepare(common[i / 2], i % 2 != 0, YOKE_FLOAT32);
        check.training = false;
        run(&check, 2, 1e-5);
    }
}

/* In inference threads share a head where there are few. */
static void so_does_inference(void **state) {
    (void)state;
    static const shape few[] = {{1, 65, 3, 64}, {1, 2, 1, 3}, {1, 197, 3, 64},
                                {3, 33, 1, 5},  {1, 1, 3, 4}, {1, 40, 4, 8}};
    for (size_t i = 0; i < 2 * sizeof few / sizeof few[0]; i++) {
        operation_check check = prepare(few[i / 2], i % 2 != 0, YOKE_FLOAT32);
        check.training = false;
        check.inference = true;
        run(&check, 2, 1e-5);
    }
}

static void computes_in_bfloat16(void **state) {
    (void)state;
    if (check_no_bfloat16()) skip();
    for (int i = 0; i < 2 * SHAPES; i++) {
        operation_check check = prepare(shapes[i / 2], i % 2 != 0, YOKE_BFLOAT16);
        run(&check, 2, 1e-2);
    }
}

/* Scores of hundreds, whose exponentials overflow. */
static void large_scores_do_not_overflow(void **state) {
    (void)state;
    operation_check check = prepare((shape){1, 70, 1, 4}, false, YOKE_FLOAT32);
    run(&check, 16, 1e-4);
}

/* Both passes of a plan over the same values, with one team or another. */
static void keep(int threads, operation_check *check, double **output, double **gradient) {
    const yoke_plan_step step = {.loss_scale = 1};
    yoke_devices *devices = check_devices(threads);
    check_open(check, yoke_devices_at(devices, 0));
    check_bind(check);
    double *input = check_random(check_count(&check->inputs[0]), -2, 2, 1);
    double *given = check_random(check_count(&check->needs->output), -1, 1, 2);
    check_store(&check->inputs[0], check->binding.inputs[0], input);
    check_store(&check->needs->output, check->binding.output_gradient, given);
    CHECK(yoke_plan_forward(check->plan, &step));
    CHECK(yoke_plan_backward(check->plan, &step));
    *output = check_load(&check->needs->output, check->binding.output);
    *gradient = check_load(&check->inputs[0], check->binding.input_gradients[0]);
    test_free(input);
    test_free(given);
    check_close(check);
    yoke_devices_close(devices);
}

static void the_bits_do_not_depend_on_the_threads(void **state) {
    (void)state;
    double *outputs[2], *gradients[2];
    const shape s = {5, 100, 3, 20};
    size_t values = (size_t)(s.rows * s.positions * s.heads * s.size) * sizeof(double);
    for (int i = 0; i < 2; i++) {
        operation_check check = prepare(s, true, YOKE_FLOAT32);
        keep(1 + i * 3, &check, &outputs[i], &gradients[i]);
    }
    assert_memory_equal(outputs[0], outputs[1], values);
    assert_memory_equal(gradients[0], gradients[1], 3 * values);
    for (int i = 0; i < 2; i++) {
        test_free(outputs[i]);
        test_free(gradients[i]);
    }
}

/* A value that is not finite must not become a weight of 0. */
static void nan_reaches_every_position_that_reads_it(void **state) {
    (void)state;
    const yoke_plan_step step = {.loss_scale = 1};
    yoke_devices *devices = check_devices(1);
    for (int part = 0; part < 3; part++) { /* of q, k or v, at position 3 */
        operation_check check = prepare((shape){1, 6, 1, 2}, true, YOKE_FLOAT32);
        check_open(&check, yoke_devices_at(devices, 0));
        check_bind(&check);
        double *input = check_random(check_count(&check.inputs[0]), -1, 1, 1);
        input[3 * 6 + part * 2] = NAN;
        check_store(&check.inputs[0], check.binding.inputs[0], input);
        CHECK(yoke_plan_forward(check.plan, &step));
        double *output = check_load(&check.needs->output, check.binding.output);
        for (int position = 0; position < 6; position++) {
            bool reads = part == 0 ? position == 3 : position >= 3;
            bool nan = isnan(output[2 * position]);
            if (reads || part < 2)
                assert_int_equal(nan, reads); /* a weight of 0 times NaN is NaN */
        }
        test_free(input);
        test_free(output);
        check_close(&check);
    }
    yoke_devices_close(devices);
}

static double *numbers(const json_t *object, const char *key) {
    size_t count = json_array_size(json_object_get(object, key));
    double *values = test_calloc(count, sizeof *values);
    for (size_t i = 0; i < count; i++)
        values[i] = real_at(object, key, i);
    return values;
}

static void check_pytorch(const json_t *wanted, yoke_device *device) {
    const yoke_plan_step step = {.loss_scale = 1};
    shape s = {integer(wanted, "rows"), integer(wanted, "positions"), integer(wanted, "heads"),
               integer(wanted, "size")};
    operation_check check = prepare(s, truth(wanted, "causal"), YOKE_FLOAT32);
    double *input = numbers(wanted, "input"), *given = numbers(wanted, "output_gradient");
    double *output = numbers(wanted, "output"), *gradient = numbers(wanted, "input_gradient");
    check_open(&check, device);
    check_bind(&check);
    check_store(&check.inputs[0], check.binding.inputs[0], input);
    check_store(&check.needs->output, check.binding.output_gradient, given);
    CHECK(yoke_plan_forward(check.plan, &step));
    CHECK(yoke_plan_backward(check.plan, &step));
    check_memory("output", &check.needs->output, check.binding.output, output, 1e-6);
    check_memory("gradient", &check.inputs[0], check.binding.input_gradients[0], gradient, 1e-6);
    check_close(&check);
    test_free(input);
    test_free(given);
    test_free(output);
    test_free(gradient);
}

static void equals_scaled_dot_product_attention_of_pytorch(void **state) {
    (void)state;
    yoke_devices *devices = check_devices(1);
    json_t *fixture = read_fixture("attention"), *cases = json_object_get(fixture, "cases");
    assert_true(json_array_size(cases) >= 3);
    for (size_t i = 0; i < json_array_size(cases); i++)
        check_pytorch(json_array_get(cases, i), yoke_devices_at(devices, 0));
    json_decref(fixture);
    yoke_devices_close(devices);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passes_equal_the_formula_and_its_differences),
        cmocka_unit_test(equals_scaled_dot_product_attention_of_pytorch),
        cmocka_unit_test(runs_without_a_gradient),
        cmocka_unit_test(forward_equals_the_formula_at_common_sizes),
        cmocka_unit_test(so_does_inference),
        cmocka_unit_test(computes_in_bfloat16),
        cmocka_unit_test(large_scores_do_not_overflow),
        cmocka_unit_test(the_bits_do_not_depend_on_the_threads),
        cmocka_unit_test(nan_reaches_every_position_that_reads_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
