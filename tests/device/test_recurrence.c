/* SPDX-License-Identifier: Apache-2.0 */
/* The recurrence of an LSTM and of a GRU on the CPU equals its definition, and its gradients are
 * those of the definition; the number of threads changes no bit. */
#include "operation_check.h"

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

/* The row's equations as torch.nn.LSTM and torch.nn.GRU document them. */
static void walk_row(const operation_check *check, const double *input, const double *valid,
                     double *const parameters[], double *output) {
    size_t h = (size_t)check->operation.output.channels,
           g = (size_t)check->operation.input.channels;
    size_t positions = (size_t)check->operation.output.height;
    double *state = test_calloc(2 * h, sizeof *state), *cell = state + h;
    double *share = test_calloc(g, sizeof *share);
    for (size_t turn = 0; turn < positions; turn++) {
        size_t at = check->operation.reverse ? positions - 1 - turn : turn;
        const double *x = input + at * g;
        for (size_t i = 0; i < g; i++) {
            share[i] = check->operation.bias ? parameters[1][i] : 0;
            for (size_t k = 0; k < h; k++)
                share[i] += parameters[0][i * h + k] * state[k];
        }
        for (size_t k = 0; k < h; k++) {
            double *y = &output[at * h + k];
            *y = 0;
            if (valid != NULL && valid[at] == 0) continue;
            double first = sigmoid(x[k] + share[k]), second = sigmoid(x[h + k] + share[h + k]);
            if (g == 3 * h) { /* reset, update */
                double news = tanh(x[2 * h + k] + first * share[2 * h + k]);
                state[k] = (1 - second) * news + second * state[k];
            } else { /* input, forget */
                double news = tanh(x[2 * h + k] + share[2 * h + k]);
                cell[k] = second * cell[k] + first * news;
                state[k] = sigmoid(x[3 * h + k] + share[3 * h + k]) * tanh(cell[k]);
            }
            *y = state[k];
        }
    }
    test_free(share);
    test_free(state);
}

static void reference(const operation_check *check, double *const inputs[],
                      double *const parameters[], double *output) {
    size_t positions = (size_t)check->operation.output.height;
    for (size_t row = 0; row < (size_t)check->rows; row++)
        walk_row(check, inputs[0] + row * positions * (size_t)check->operation.input.channels,
                 check->input_count > 1 ? inputs[1] + row * positions : NULL, parameters,
                 output + row * positions * (size_t)check->operation.output.channels);
}

static operation_check prepare(int rows, int positions, int hidden, bool gru) {
    return (operation_check){.operation = {.kind = YOKE_OP_RECURRENCE,
                                           .input = {(gru ? 3 : 4) * hidden, positions, 1, true},
                                           .output = {hidden, positions, 1, true},
                                           .bias = true},
                             .rows = rows,
                             .training = true};
}

static check_values values_for(const operation_check *check) {
    size_t gates = (size_t)check->operation.input.channels;
    size_t weights = gates * (size_t)check->operation.output.channels;
    check_values values = {
        .inputs = {check_random(check_count(&check->inputs[0]), -1, 1, 3)},
        .parameters = {check_random(weights, -0.5, 0.5, 4), check_random(gates, -0.5, 0.5, 5)},
        .output_gradient = check_random(check_count(&check->needs->output), -1, 1, 6)};
    if (check->input_count < 2) return values;
    size_t sites = check_count(&check->inputs[1]);
    values.inputs[1] = test_calloc(sites, sizeof(double));
    for (size_t i = 0; i < sites; i++)
        values.inputs[1][i] = i % 5 < 3;
    return values;
}

static void run(operation_check check, double tolerance) {
    yoke_devices *devices = check_devices(1);
    check_open(&check, yoke_devices_at(devices, 0));
    check_bind(&check);
    check_values values = values_for(&check);
    check_passes(&check, reference, &values, tolerance);
    check_values_free(&values);
    check_close(&check);
    yoke_devices_close(devices);
}

static void every_way(yoke_precision precision, double tolerance) {
    static const int shapes[][3] = {{1, 1, 1}, {3, 5, 4}, {34, 2, 3}};
    for (int way = 0; way < 16; way++)
        for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
            operation_check check = prepare(shapes[s][0], shapes[s][1], shapes[s][2], way % 2 != 0);
            check.precision = precision;
            check.operation.reverse = way / 2 % 2 != 0;
            check.operation.bias = way / 4 % 2 == 0;
            if (way / 8 != 0) {
                check.input_count = 2;
                check.operation.others[0] = (yoke_dims){1, shapes[s][1], 1, true};
            }
            check.no_input_gradient = way == 4;
            check.training = way != 6;
            run(check, tolerance);
        }
}

static void recurrences_equal_their_definition_and_slopes(void **state) {
    (void)state;
    every_way(YOKE_FLOAT32, 1e-5);
}

static void recurrences_compute_in_bfloat16(void **state) {
    (void)state;
    if (check_no_bfloat16()) skip();
    every_way(YOKE_BFLOAT16, 3e-2);
}

/* What a device of so many threads makes of 70 rows; the caller frees it. */
static float *passes_of(int threads, bool gru, size_t *bytes) {
    yoke_devices *devices = check_devices(threads);
    yoke_device_scope scope;
    CHECK(yoke_device_enter(yoke_devices_at(devices, 0), false, &scope));
    operation_check check = prepare(70, 4, 50, gru);
    check_open(&check, yoke_devices_at(devices, 0));
    check_bind(&check);
    check_values values = values_for(&check);
    check_store(&check.inputs[0], check.binding.inputs[0], values.inputs[0]);
    check_store(&check.needs->output, check.binding.output_gradient, values.output_gradient);
    size_t pieces[4] = {check.needs->output.bytes, check.inputs[0].bytes};
    for (int i = 0; i < 2; i++) {
        check_store(&check.needs->parameters[i], check.binding.parameters[i], values.parameters[i]);
        pieces[2 + i] = check.needs->parameters[i].bytes;
    }
    yoke_plan_step step = {.loss_scale = 1};
    CHECK(yoke_plan_forward(check.plan, &step));
    CHECK(yoke_plan_backward(check.plan, &step));
    const void *from[] = {check.binding.output, check.binding.input_gradients[0],
                          check.binding.parameter_gradients[0],
                          check.binding.parameter_gradients[1]};
    *bytes = pieces[0] + pieces[1] + pieces[2] + pieces[3];
    char *result = test_malloc(*bytes), *to = result;
    for (int i = 0; i < 4; to += pieces[i++])
        memcpy(to, from[i], pieces[i]);
    check_values_free(&values);
    check_close(&check);
    yoke_device_leave(yoke_devices_at(devices, 0), &scope);
    yoke_devices_close(devices);
    return (float *)result;
}

static void the_number_of_threads_changes_no_bit(void **state) {
    (void)state;
    for (int gru = 0; gru < 2; gru++) {
        size_t bytes = 0;
        float *one = passes_of(1, gru != 0, &bytes);
        for (int threads = 2; threads <= 4; threads++) {
            float *several = passes_of(threads, gru != 0, &bytes);
            assert_memory_equal(several, one, bytes);
            test_free(several);
        }
        test_free(one);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recurrences_equal_their_definition_and_slopes),
        cmocka_unit_test(recurrences_compute_in_bfloat16),
        cmocka_unit_test(the_number_of_threads_changes_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
