/* SPDX-License-Identifier: Apache-2.0 */
/* float16 on the CPU: what operations read, write and pass back are float16 numbers, with their
 * range and their rounding. */
#include "operation_check.h"

enum { ROWS = 3, IN = 5, OUT = 4 };

static operation_check linear_check(bool training) {
    return (operation_check){.operation = {.kind = YOKE_OP_LINEAR,
                                           .input = {.channels = IN, .height = 1, .width = 1},
                                           .output = {.channels = OUT, .height = 1, .width = 1},
                                           .bias = true},
                             .rows = ROWS,
                             .training = training,
                             .precision = YOKE_FLOAT16};
}

static void expect_float16(const float *values, size_t count) {
    for (size_t i = 0; i < count; i++)
        assert_true(values[i] == yoke_float16_nearest(values[i]));
}

/* Every row and every output by its definition: products of float16, a float32 sum, one rounding.
 */
static void a_linear_layer_rounds_what_it_reads_and_writes(void **state) {
    yoke_devices *devices = check_devices(2);
    (void)state;
    for (int training = 0; training < 2; training++) {
        operation_check check = linear_check(training);
        check_open(&check, yoke_devices_at(devices, 0));
        check_bind(&check);
        yoke_plan_binding *binding = &check.binding;
        float *input = binding->inputs[0], *weight = binding->parameters[0],
              *output = binding->output;
        const cpu_desc *desc = cpu_layout_desc(&check.needs->parameters[0]);
        for (size_t i = 0; i < ROWS * IN; i++)
            input[i] = (float)(i + 1) / 3;
        for (size_t i = 0; i < OUT * IN; i++)
            weight[check_offset(desc, i)] = (float)((double)i - 9.5) / 7;
        for (size_t i = 0; i < OUT; i++)
            binding->parameters[1][i] = 0.1f * (float)i;
        const yoke_plan_step step = {.loss_scale = 1};
        CHECK(yoke_plan_forward(check.plan, &step));
        for (size_t r = 0; r < ROWS; r++)
            for (size_t o = 0; o < OUT; o++) {
                double sum = (double)binding->parameters[1][o];
                for (size_t i = 0; i < IN; i++)
                    sum += (double)yoke_float16_nearest(input[r * IN + i]) *
                           (double)yoke_float16_nearest(weight[check_offset(desc, o * IN + i)]);
                float wanted = yoke_float16_nearest((float)sum);
                assert_true(fabsf(output[r * OUT + o] - wanted) <= fabsf(wanted) * 0x1p-10f);
            }
        expect_float16(output, ROWS * OUT);
        if (training) {
            float *gradient = binding->output_gradient;
            for (size_t i = 0; i < ROWS * OUT; i++)
                gradient[i] = yoke_float16_nearest((float)i / 11);
            CHECK(yoke_plan_backward(check.plan, &step));
            expect_float16(binding->input_gradients[0], ROWS * IN);
            assert_true(((float *)binding->input_gradients[0])[1] != 0);
            /* The gradient of the weight is float32. */
            const float *own = binding->parameter_gradients[0];
            bool fine = false;
            for (size_t i = 0; i < OUT * IN; i++)
                fine |=
                    own[check_offset(desc, i)] != yoke_float16_nearest(own[check_offset(desc, i)]);
            assert_true(fine);
        }
        check_close(&check);
    }
    yoke_devices_close(devices);
}

static void what_is_too_large_becomes_infinity_and_too_small_zero(void **state) {
    yoke_devices *devices = check_devices(1);
    (void)state;
    operation_check check = linear_check(true);
    check.operation.bias = false;
    check_open(&check, yoke_devices_at(devices, 0));
    check_bind(&check);
    yoke_plan_binding *binding = &check.binding;
    float *input = binding->inputs[0], *output = binding->output;
    const cpu_desc *desc = cpu_layout_desc(&check.needs->parameters[0]);
    memset(input, 0, ROWS * IN * sizeof *input);
    memset(binding->parameters[0], 0, check.needs->parameters[0].bytes);
    input[0] = 300;
    input[IN] = 0x1p-20f;
    input[2 * IN] = 1e30f;
    binding->parameters[0][check_offset(desc, 0)] = 300;
    binding->parameters[0][check_offset(desc, IN)] = 0x1p-10f;
    const yoke_plan_step step = {.loss_scale = 1};
    CHECK(yoke_plan_forward(check.plan, &step));
    assert_true(isinf(output[0]));              /* 90000 */
    assert_true(output[OUT] == 300 * 0x1p-20f); /* subnormal, and exact */
    assert_true(output[OUT + 1] == 0);          /* 2^-30 */
    assert_true(isinf(output[2 * OUT]));        /* an input that is no float16 */
    float *gradient = binding->output_gradient;
    memset(gradient, 0, ROWS * OUT * sizeof *gradient);
    gradient[0] = 1000;
    gradient[OUT + 1] = 0x1p-16f;
    CHECK(yoke_plan_backward(check.plan, &step));
    const float *back = binding->input_gradients[0];
    assert_true(isinf(back[0])); /* 300000 */
    assert_true(back[IN] == 0);  /* 2^-26 */
    check_close(&check);
    yoke_devices_close(devices);
}

/* The sum of two readers' gradients is rounded, too. */
static void accumulated_gradients_are_rounded(void **state) {
    yoke_devices *devices = check_devices(1);
    yoke_device *device = yoke_devices_at(devices, 0);
    (void)state;
    operation_check check = linear_check(false);
    check_open(&check, device);
    const yoke_layout *layout = &check.needs->output;
    float to[ROWS * OUT], from[ROWS * OUT];
    for (size_t i = 0; i < ROWS * OUT; i++)
        to[i] = 2048, from[i] = (float)i;
    CHECK(yoke_device_accumulate(device, layout, to, from));
    for (size_t i = 0; i < ROWS * OUT; i++)
        assert_true(to[i] == yoke_float16_nearest(2048 + (float)i));
    assert_true(to[1] == 2048); /* a tie goes to even */
    assert_true(to[3] == 2052);
    check_close(&check);
    yoke_devices_close(devices);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_linear_layer_rounds_what_it_reads_and_writes),
        cmocka_unit_test(what_is_too_large_becomes_infinity_and_too_small_zero),
        cmocka_unit_test(accumulated_gradients_are_rounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
