/* SPDX-License-Identifier: Apache-2.0 */
/* Layer norm on the CPU equals its definition, and its gradients are those of the definition; the
 * number of threads changes no bit. */
#include "operation_check.h"

static void reference(const operation_check *check, double *const inputs[],
                      double *const parameters[], double *output) {
    size_t features = (size_t)check->operation.input.channels;
    for (size_t at = 0; at < check_count(&check->inputs[0]); at += features) {
        double mean = 0, variance = 0;
        for (size_t i = 0; i < features; i++)
            mean += inputs[0][at + i] / (double)features;
        for (size_t i = 0; i < features; i++)
            variance += pow(inputs[0][at + i] - mean, 2) / (double)features;
        for (size_t i = 0; i < features; i++)
            output[at + i] = (inputs[0][at + i] - mean) /
                                 sqrt(variance + check->operation.epsilon) * parameters[0][i] +
                             parameters[1][i];
    }
}

static operation_check prepare(yoke_dims dims, int rows) {
    return (operation_check){
        .operation = {.kind = YOKE_OP_LAYER_NORM, .input = dims, .output = dims, .epsilon = 1e-3},
        .rows = rows,
        .training = true};
}

static const yoke_dims shapes[] = {{.channels = 24, .height = 1, .width = 1},
                                   {.channels = 7, .height = 1, .width = 1},
                                   {.channels = 1, .height = 3, .width = 1, .sequence = true},
                                   {.channels = 19, .height = 5, .width = 1, .sequence = true},
                                   {.channels = 32, .height = 4, .width = 1, .sequence = true}};

static void run(operation_check check, double tolerance) {
    yoke_devices *devices = check_devices(1);
    check_open(&check, yoke_devices_at(devices, 0));
    check_bind(&check);
    size_t features = (size_t)check.operation.input.channels;
    size_t count = check_count(&check.inputs[0]);
    check_values values = {
        .inputs = {check_random(count, -2, 3, 3)},
        .parameters = {check_random(features, 0.5, 1.5, 4), check_random(features, -1, 1, 5)},
        .output_gradient = check_random(count, -1, 1, 6)};
    check_passes(&check, reference, &values, tolerance);
    check_values_free(&values);
    check_close(&check);
    yoke_devices_close(devices);
}

static void every_way(yoke_precision precision, double tolerance) {
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (int way = 0; way < 4; way++) {
            operation_check check = prepare(shapes[s], way == 0 ? 1 : 6);
            check.precision = precision;
            check.in_place = way == 1;
            check.no_input_gradient = way == 2;
            check.training = way != 3;
            run(check, tolerance);
        }
}

static void layer_norm_equals_its_definition_and_slopes(void **state) {
    (void)state;
    every_way(YOKE_FLOAT32, 1e-5);
}

static void layer_norm_computes_in_bfloat16(void **state) {
    (void)state;
    if (check_no_bfloat16()) skip();
    every_way(YOKE_BFLOAT16, 2e-2);
}

/* What a device of so many threads makes of 600 positions: output, dx, dw, db. The caller frees. */
static float *passes_of(int threads, size_t *bytes) {
    yoke_devices *devices = check_devices(threads);
    yoke_device_scope scope;
    CHECK(yoke_device_enter(yoke_devices_at(devices, 0), false, &scope));
    operation_check check =
        prepare((yoke_dims){.channels = 200, .height = 200, .width = 1, .sequence = true}, 3);
    check_open(&check, yoke_devices_at(devices, 0));
    check_bind(&check);
    size_t count = check_count(&check.inputs[0]), features = 200;
    double *values = check_random(count, -2, 3, 3), *gradient = check_random(count, -1, 1, 6);
    double *weight = check_random(features, 0.5, 1.5, 4);
    check_store(&check.inputs[0], check.binding.inputs[0], values);
    check_store(&check.needs->output, check.binding.output_gradient, gradient);
    for (int i = 0; i < 2; i++)
        check_store(&check.needs->parameters[i], check.binding.parameters[i], weight);
    yoke_plan_step step = {.loss_scale = 1};
    CHECK(yoke_plan_forward(check.plan, &step));
    CHECK(yoke_plan_backward(check.plan, &step));
    *bytes = (2 * count + 2 * features) * sizeof(float);
    float *result = test_malloc(*bytes);
    memcpy(result, check.binding.output, count * sizeof *result);
    memcpy(result + count, check.binding.input_gradients[0], count * sizeof *result);
    for (size_t i = 0; i < 2; i++)
        memcpy(result + 2 * count + i * features, check.binding.parameter_gradients[i],
               features * sizeof *result);
    test_free(values);
    test_free(gradient);
    test_free(weight);
    check_close(&check);
    yoke_device_leave(yoke_devices_at(devices, 0), &scope);
    yoke_devices_close(devices);
    return result;
}

static void the_number_of_threads_changes_no_bit(void **state) {
    (void)state;
    size_t bytes = 0;
    float *one = passes_of(1, &bytes);
    for (int threads = 2; threads <= 4; threads++) {
        float *several = passes_of(threads, &bytes);
        assert_memory_equal(several, one, bytes);
        test_free(several);
    }
    test_free(one);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layer_norm_equals_its_definition_and_slopes),
        cmocka_unit_test(layer_norm_computes_in_bfloat16),
        cmocka_unit_test(the_number_of_threads_changes_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
