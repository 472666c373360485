/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax and concatenation on the CPU equal their definitions and slopes. */
#include "operation_check.h"

static void softmax_reference(const operation_check *check, double *const inputs[],
                              double *const parameters[], double *output) {
    (void)parameters;
    size_t features = (size_t)check->operation.input.channels;
    for (size_t at = 0; at < check_count(&check->inputs[0]); at += features) {
        double sum = 0;
        for (size_t i = 0; i < features; i++)
            sum += exp(inputs[0][at + i]);
        for (size_t i = 0; i < features; i++)
            output[at + i] = exp(inputs[0][at + i]) / sum;
    }
}

/* Row after row, of a sequence position after position: input 0, then input 1. */
static void concat_reference(const operation_check *check, double *const inputs[],
                             double *const parameters[], double *output) {
    (void)parameters;
    yoke_dims dims = check->operation.input;
    size_t outer = (size_t)check->rows * (dims.sequence ? (size_t)dims.height : 1);
    for (size_t i = 0; i < outer; i++)
        for (int k = 0; k < 2; k++) {
            size_t part = check_count(&check->inputs[k]) / outer;
            memcpy(output, inputs[k] + i * part, part * sizeof *output);
            output += part;
        }
}

static void run(operation_check *check, check_reference reference) {
    yoke_devices *devices = check_devices(1);
    check->training = true;
    check_open(check, yoke_devices_at(devices, 0));
    check_bind(check);
    check_values values = {.output_gradient =
                               check_random(check_count(&check->needs->output), -1, 1, 9)};
    for (int i = 0; i < check->input_count; i++)
        values.inputs[i] = check_random(check_count(&check->inputs[i]), -3, 3, (uint64_t)i + 7);
    check_passes(check, reference, &values, check->precision == YOKE_BFLOAT16 ? 1e-2 : 1e-6);
    check_values_free(&values);
    check_close(check);
    yoke_devices_close(devices);
}

static void every_softmax(yoke_precision precision) {
    static const yoke_dims shapes[] = {{1, 1, 1}, {7, 1, 1}, {40, 1, 1}, {19, 5, 1, true}};
    for (size_t i = 0; i < 2 * sizeof shapes / sizeof shapes[0]; i++) {
        operation_check check = {
            .operation = {.kind = YOKE_OP_SOFTMAX, .input = shapes[i / 2], .output = shapes[i / 2]},
            .precision = precision,
            .in_place = i % 2 == 1};
        check.rows = 3;
        run(&check, softmax_reference);
    }
}

/* Channels that blocks of 16 divide, and others, in every pair of layouts. */
static void every_concat(yoke_precision precision) {
    static const yoke_dims shapes[] = {
        {16, 3, 5}, {32, 2, 2}, {20, 4, 3}, {7, 1, 1}, {6, 5, 1, true}};
    static const int more[] = {16, 9};
    const dnnl_format_tag_t tags[] = {dnnl_nchw, dnnl_nChw16c};
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (int i = 0; i < 8; i++) {
            operation_check check = {
                .operation = {.kind = YOKE_OP_CONCAT, .input = shapes[s], .output = shapes[s]},
                .precision = precision,
                .input_count = 2};
            check.rows = i % 3 == 0 ? 1 : 3;
            check.operation.output.channels += more[i >> 2];
            check.tags[0] = tags[shapes[s].sequence ? 0 : i & 1];
            check.tags[1] = tags[shapes[s].sequence ? 0 : i >> 1 & 1];
            run(&check, concat_reference);
        }
}

static void softmax_equals_its_definition_and_slopes(void **state) {
    (void)state;
    every_softmax(YOKE_FLOAT32);
}

static void concat_joins_two_layouts_and_parts_their_gradients(void **state) {
    (void)state;
    every_concat(YOKE_FLOAT32);
}

static void both_compute_in_bfloat16(void **state) {
    (void)state;
    if (check_no_bfloat16()) skip();
    every_softmax(YOKE_BFLOAT16);
    every_concat(YOKE_BFLOAT16);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(softmax_equals_its_definition_and_slopes),
        cmocka_unit_test(concat_joins_two_layouts_and_parts_their_gradients),
        cmocka_unit_test(both_compute_in_bfloat16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
