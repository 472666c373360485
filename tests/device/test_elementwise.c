/* SPDX-License-Identifier: Apache-2.0 */
/* Activations, addition, accumulation, flatten and output on the CPU equal their definitions. */
#include "operation_check.h"

static double activation_of(yoke_activation activation, double x) {
    switch (activation) {
    case YOKE_RELU:
        return x > 0 ? x : 0;
    case YOKE_RELU6:
        return fmin(fmax(x, 0), 6);
    case YOKE_GELU:
        return x * 0.5 * (1 + erf(x / sqrt(2)));
    case YOKE_GELU_TANH:
        return x * 0.5 * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * pow(x, 3))));
    case YOKE_SILU:
        return x / (1 + exp(-x));
    case YOKE_SIGMOID:
        return 1 / (1 + exp(-x));
    case YOKE_TANH:
        return tanh(x);
    }
    return NAN;
}

static void activation_reference(const operation_check *check, double *const inputs[],
                                 double *const parameters[], double *output) {
    (void)parameters;
    for (size_t i = 0; i < check_count(&check->inputs[0]); i++)
        output[i] = activation_of(check->operation.activation, inputs[0][i]);
}

static void add_reference(const operation_check *check, double *const inputs[],
                          double *const parameters[], double *output) {
    (void)parameters;
    for (size_t i = 0; i < check_count(&check->inputs[0]); i++) {
        double sum = inputs[0][i] + inputs[1][i];
        output[i] = check->operation.relu && sum < 0 ? 0 : sum;
    }
}

static void multiply_reference(const operation_check *check, double *const inputs[],
                               double *const parameters[], double *output) {
    (void)parameters;
    size_t each = check_count(&check->inputs[0]) / check_count(&check->inputs[1]);
    for (size_t i = 0; i < check_count(&check->inputs[0]); i++)
        output[i] = inputs[0][i] * inputs[1][i / each];
}

static void copy_reference(const operation_check *check, double *const inputs[],
                           double *const parameters[], double *output) {
    (void)parameters;
    memcpy(output, inputs[0], check_count(&check->inputs[0]) * sizeof *output);
}

static const yoke_dims shapes[] = {{16, 3, 5}, {20, 4, 3}, {7, 1, 1}, {32, 1, 1}};

static operation_check prepare(yoke_operation_kind kind, yoke_dims dims, yoke_precision precision) {
    return (operation_check){.operation = {.kind = kind, .input = dims, .output = dims},
                             .rows = 3,
                             .training = true,
                             .precision = precision};
}

static void run(operation_check *check, check_reference reference) {
    yoke_devices *devices = check_devices(1);
    check_open(check, yoke_devices_at(devices, 0));
    check_bind(check);
    check_values values = {.output_gradient =
                               check_random(check_count(&check->needs->output), -1, 1, 9)};
    for (int i = 0; i < check->input_count; i++) {
        double range = check->range > 0 ? check->range : 1;
        values.inputs[i] =
            check_random(check_count(&check->inputs[i]), -range, range, (uint64_t)i + 7);
        for (size_t k = 0; k < check_count(&check->inputs[i]); k++)
            if (values.inputs[i][k] == 6) values.inputs[i][k] = 5; /* ReLU6 has no slope at 6 */
    }
    check_passes(check, reference, &values, check->precision == YOKE_BFLOAT16 ? 1e-2 : 1e-6);
    check_values_free(&values);
    check_close(check);
    yoke_devices_close(devices);
}

/* Values from -8 to 8: beyond both ends of ReLU6, and where the others saturate. */
static void every_activation(yoke_precision precision) {
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        for (int i = 0; i < 4 * YOKE_ACTIVATIONS; i++) {
            operation_check check = prepare(YOKE_OP_ACTIVATION, shapes[s], precision);
            check.operation.activation = (yoke_activation)(i / 4);
            check.rows = i % 4 < 2 ? 1 : 3;
            check.tags[0] = i % 2 == 0 ? dnnl_nchw : dnnl_nChw16c;
            check.in_place = i % 4 >= 2;
            check.range = 8;
            run(&check, activation_reference);
        }
    }
}

static void activations_equal_their_definitions_and_slopes(void **state) {
    (void)state;
    every_activation(YOKE_FLOAT32);
}

static void every_add(yoke_precision precision, bool relu) {
    const dnnl_format_tag_t tags[] = {dnnl_nchw, dnnl_nChw16c};
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        for (int i = 0; i < 8; i++) {
            operation_check check = prepare(YOKE_OP_ADD, shapes[s], precision);
            check.operation.relu = relu;
            check.input_count = 2;
            check.tags[0] = tags[i & 1];
            check.tags[1] = tags[i >> 1 & 1];
            check.in_place = (i & 4) != 0;
            run(&check, add_reference);
        }
    }
}

static void add_sums_two_layouts_and_gives_both_the_gradient(void **state) {
    (void)state;
    every_add(YOKE_FLOAT32, false);
}

static void add_fuses_relu(void **state) {
    (void)state;
    every_add(YOKE_FLOAT32, true);
}

static void every_multiply(yoke_precision precision) {
    const dnnl_format_tag_t tags[] = {dnnl_nchw, dnnl_nChw16c};
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        for (int i = 0; i < 4; i++) {
            operation_check check = prepare(YOKE_OP_MULTIPLY, shapes[s], precision);
            check.input_count = 2;
            check.tags[0] = tags[i & 1];
            check.tags[1] = tags[i >> 1 & 1];
            run(&check, multiply_reference);
        }
    }
}

static void multiply_takes_two_layouts_and_gives_each_its_gradient(void **state) {
    (void)state;
    every_multiply(YOKE_FLOAT32);
}

/* Channels that blocks divide and of others, in every pair of layouts. */
static void every_channel_scale(yoke_precision precision) {
    static const yoke_dims images[] = {{16, 3, 5}, {20, 4, 3}, {7, 2, 2}, {40, 1, 9}};
    static const dnnl_format_tag_t tags[] = {dnnl_nchw, dnnl_nhwc, dnnl_nChw16c};
    for (size_t s = 0; s < sizeof images / sizeof images[0]; s++) {
        for (int i = 0; i < 18; i++) {
            operation_check check = prepare(YOKE_OP_MULTIPLY, images[s], precision);
            check.operation.by_channel = true;
            check.input_count = 2;
            check.tags[0] = tags[i % 3];
            check.tags[1] = tags[i / 3 % 3];
            check.in_place = i >= 9;
            run(&check, multiply_reference);
        }
    }
}

static void multiply_takes_a_factor_for_each_channel_of_a_row(void **state) {
    (void)state;
    every_channel_scale(YOKE_FLOAT32);
}

static void add_shares_one_gradient_between_inputs_of_one_layout(void **state) {
    (void)state;
    yoke_devices *devices = check_devices(1);
    for (int same = 0; same < 2; same++) {
        operation_check check = prepare(YOKE_OP_ADD, shapes[0], YOKE_FLOAT32);
        check.input_count = 2;
        check.tags[0] = dnnl_nChw16c;
        check.tags[1] = same ? dnnl_nChw16c : dnnl_nchw;
        check_open(&check, yoke_devices_at(devices, 0));
        assert_int_equal(check.needs->shared_input_gradient, same);
        check_close(&check);
    }
    yoke_devices_close(devices);
}

static void every_reshape(yoke_operation_kind kind, yoke_precision precision) {
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        for (int i = 0; i < 4; i++) {
            operation_check check = prepare(kind, shapes[s], precision);
            const yoke_dims *dims = &check.operation.input;
            check.operation.output = (yoke_dims){dims->channels * dims->height * dims->width, 1, 1};
            check.tags[0] = i % 2 == 0 ? dnnl_nchw : dnnl_nChw16c;
            check.in_place = i >= 2;
            run(&check, copy_reference);
        }
    }
}

static void flatten_gives_row_major_features_from_any_layout(void **state) {
    (void)state;
    every_reshape(YOKE_OP_FLATTEN, YOKE_FLOAT32);
}

static void output_is_plain_float32(void **state) {
    (void)state;
    every_reshape(YOKE_OP_OUTPUT, YOKE_FLOAT32);
}

static void flatten_of_plain_memory_moves_nothing_in_place(void **state) {
    (void)state;
    yoke_devices *devices = check_devices(1);
    operation_check check = prepare(YOKE_OP_FLATTEN, shapes[1], YOKE_FLOAT32);
    check.operation.output = (yoke_dims){20 * 4 * 3, 1, 1};
    check_open(&check, yoke_devices_at(devices, 0));
    assert_true(check.needs->forward_in_place);
    assert_true(check.needs->backward_in_place);
    assert_int_equal(check.needs->output.bytes, check.inputs[0].bytes);
    check_close(&check);
    yoke_devices_close(devices);
}

static void accumulates(yoke_device *device, yoke_precision precision, dnnl_format_tag_t tag) {
    const cpu_desc *desc = NULL;
    yoke_layout layout;
    CHECK(cpu_value_desc(&desc, cpu_of(device), 3, (yoke_dims){20, 5, 3}, cpu_data_type(precision),
                         tag));
    cpu_layout_store(&layout, desc);
    size_t count = check_count(&layout);
    double *left = check_random(count, -1, 1, 1), *right = check_random(count, -1, 1, 2);
    void *to = test_malloc(layout.bytes), *from = test_malloc(layout.bytes);
    check_store(&layout, to, left);
    check_store(&layout, from, right);
    CHECK(yoke_device_accumulate(device, &layout, to, from));
    for (size_t i = 0; i < count; i++) {
        float sum = (float)left[i] + (float)right[i];
        left[i] = precision == YOKE_BFLOAT16 ? (double)yoke_bfloat16_widen(yoke_bfloat16_round(sum))
                                             : (double)sum;
    }
    check_memory("sum", &layout, to, left, 0);
    test_free(to);
    test_free(from);
    test_free(left);
    test_free(right);
}

static void accumulate_adds_in_any_layout_and_precision_to_the_bit(void **state) {
    (void)state;
    yoke_devices *devices = check_devices(1);
    for (int i = 0; i < 4; i++) {
        accumulates(yoke_devices_at(devices, 0), i & 1 ? YOKE_BFLOAT16 : YOKE_FLOAT32,
                    i & 2 ? dnnl_nChw16c : dnnl_nchw);
    }
    yoke_devices_close(devices);
}

/* Ties go to even, halves up or down by the rest, infinity and NaN stay what they are. */
static void bfloat16_rounds_to_nearest_even(void **state) {
    (void)state;
    assert_int_equal(yoke_bfloat16_round(1.0f), 0x3f80);
    assert_int_equal(yoke_bfloat16_round(1.0f + 0x1p-8f), 0x3f80);
    assert_int_equal(yoke_bfloat16_round(1.0f + 0x1p-7f + 0x1p-8f), 0x3f82);
    assert_int_equal(yoke_bfloat16_round(1.0f + 0x1p-8f + 0x1p-20f), 0x3f81);
    assert_int_equal(yoke_bfloat16_round(-2.5f), 0xc020);
    assert_int_equal(yoke_bfloat16_round(INFINITY), 0x7f80);
    assert_true(isnan(yoke_bfloat16_widen(yoke_bfloat16_round(NAN))));
    yoke_float_bits nan = {.bits = 0x7fffffffu};
    assert_true(isnan(yoke_bfloat16_widen(yoke_bfloat16_round(nan.value))));
}

static void elementwise_operations_compute_in_bfloat16(void **state) {
    (void)state;
    if (check_no_bfloat16()) skip();
    every_activation(YOKE_BFLOAT16);
    every_add(YOKE_BFLOAT16, false);
    every_add(YOKE_BFLOAT16, true);
    every_multiply(YOKE_BFLOAT16);
    every_channel_scale(YOKE_BFLOAT16);
    every_reshape(YOKE_OP_FLATTEN, YOKE_BFLOAT16);
    every_reshape(YOKE_OP_OUTPUT, YOKE_BFLOAT16);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activations_equal_their_definitions_and_slopes),
        cmocka_unit_test(add_sums_two_layouts_and_gives_both_the_gradient),
        cmocka_unit_test(add_fuses_relu),
        cmocka_unit_test(multiply_takes_a_factor_for_each_channel_of_a_row),
        cmocka_unit_test(multiply_takes_two_layouts_and_gives_each_its_gradient),
        cmocka_unit_test(add_shares_one_gradient_between_inputs_of_one_layout),
        cmocka_unit_test(flatten_gives_row_major_features_from_any_layout),
        cmocka_unit_test(flatten_of_plain_memory_moves_nothing_in_place),
        cmocka_unit_test(output_is_plain_float32),
        cmocka_unit_test(accumulate_adds_in_any_layout_and_precision_to_the_bit),
        cmocka_unit_test(bfloat16_rounds_to_nearest_even),
        cmocka_unit_test(elementwise_operations_compute_in_bfloat16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
