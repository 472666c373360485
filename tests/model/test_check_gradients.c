/* SPDX-License-Identifier: Apache-2.0 */
/* The check of gradients: networks of the library pass, and each fault of a callback is named. */
#include "networks.h"
#include "support/own_operation.h"

static own_fault fault;

static yoke_model *gated(void) {
    yoke_model *model = NULL;
    yoke_shape shape = yoke_shape_image(4, 6, 5);
    assert_ok(yoke_model_create(&model, "gated", yoke_shape_image(3, 6, 5)));
    yoke_value a = conv(model, yoke_model_input(model), "a", 4, NULL);
    yoke_value b = conv(model, yoke_model_input(model), "b", 4, NULL);
    yoke_value flat = yoke_flatten(model, own_gate(model, a, b, shape, &fault));
    assert_ok(yoke_model_finish(model, linear(model, flat, "head", 5, NULL), NULL));
    return model;
}

static void right_gradients_pass(void **state) {
    (void)state;
    fault = OWN_RIGHT;
    yoke_model *model = gated();
    for (uint64_t seed = 0; seed < 8; seed++) {
        yoke_gradient_check_options options = YOKE_GRADIENT_CHECK_OPTIONS_INIT;
        yoke_gradient_check found = {.struct_size = sizeof found};
        options.seed = seed;
        options.rows = 1 + (int)seed;
        assert_ok(yoke_model_check_gradients(model, &options, &found));
        assert_int_equal(found.checked, 6); /* a, b, beta, head's two, the input */
        assert_non_null(found.tensor);
        assert_true(found.error <= 1e-2);
    }
    yoke_model_destroy(model);
}

enum { SEEDS = 3 };

static void presets_pass(void **state) {
    (void)state;
    static const struct {
        const char *name;
        yoke_shape shape;
    } presets[] = {{"mlp:width=32", {3, 8, 8, false, false}},
                   {"mlp-dropout:width=32", {3, 8, 8, false, false}},
                   {"resnet20", {3, 8, 8, false, false}},
                   {"vit_tiny:layers=2,width=24", {3, 8, 8, false, false}},
                   {"gpt2:layers=2,width=16,heads=2", {8, 1, 1, true, false}}};
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++) {
        yoke_model *model = NULL;
        yoke_gradient_check found = {.struct_size = sizeof found};
        assert_ok(yoke_model_preset(&model, presets[i].name, presets[i].shape, 5, NULL));
        /* A kink may be near a seed's values, on one processor and not on another. */
        yoke_gradient_check_options options = YOKE_GRADIENT_CHECK_OPTIONS_INIT;
        yoke_status status = yoke_model_check_gradients(model, &options, &found);
        while (status != YOKE_OK && ++options.seed < SEEDS)
            status = yoke_model_check_gradients(model, &options, &found);
        if (status != YOKE_OK) fail_msg("%s: %s", presets[i].name, yoke_last_error());
        yoke_model_destroy(model);
    }
}

static void faults_are_named(void **state) {
    (void)state;
    static const struct {
        own_fault fault;
        yoke_status status;
        const char *text;
    } cases[] = {
        {OWN_WRONG_INPUT, YOKE_ERROR_NUMERIC, "b.weight: along one direction backward's slope is"},
        {OWN_WRONG_PARAMETER, YOKE_ERROR_NUMERIC, "gate.beta: along one direction"},
        {OWN_FORWARD_FAILS, YOKE_ERROR_DATA, "gate: its forward: out of beta"},
        {OWN_BACKWARD_FAILS, YOKE_ERROR_SYSTEM, "gate: its backward returned YOKE_ERROR_SYSTEM"},
        {OWN_NAN, YOKE_ERROR_NUMERIC, "the first value that is not finite: gate"},
        {OWN_BEHIND, YOKE_ERROR_ARGUMENT,
         "gate: its forward: the output, 4 x 120 elements: it writes behind the last"},
        {OWN_BEFORE, YOKE_ERROR_ARGUMENT,
         "gate: its backward: the gradient of input 0, 4 x 120 elements: it writes before the "
         "first"},
        {OWN_LEAVES, YOKE_ERROR_ARGUMENT,
         "gate: its forward: the output, 4 x 120 elements: it leaves element 119 of row 3 "
         "unwritten"},
    };
    yoke_model *model = gated();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fault = cases[i].fault;
        yoke_status status = yoke_model_check_gradients(model, NULL, NULL);
        if (status != cases[i].status || strstr(yoke_last_error(), cases[i].text) == NULL)
            fail_msg("case %zu: %s: %s", i, yoke_status_name(status), yoke_last_error());
    }
    yoke_model_destroy(model);
}

static void wrong_options_are_refused(void **state) {
    (void)state;
    fault = OWN_RIGHT;
    yoke_model *model = gated();
    yoke_gradient_check_options options = YOKE_GRADIENT_CHECK_OPTIONS_INIT;
    options.tolerance = -1;
    assert_int_equal(yoke_model_check_gradients(model, &options, NULL), YOKE_ERROR_ARGUMENT);
    options.tolerance = 0.1;
    options.rows = -1;
    assert_int_equal(yoke_model_check_gradients(model, &options, NULL), YOKE_ERROR_ARGUMENT);
    yoke_model_destroy(model);
    assert_ok(yoke_model_create(&model, "unfinished", yoke_shape_vector(3)));
    assert_int_equal(yoke_model_check_gradients(model, NULL, NULL), YOKE_ERROR_ARGUMENT);
    yoke_model_destroy(model);
}

int main(void) {
    if (!devices_are_cpus())
        return DEVICES_SKIPPED; /* it runs on a CPU device, whatever there is */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_gradients_pass),
        cmocka_unit_test(presets_pass),
        cmocka_unit_test(faults_are_named),
        cmocka_unit_test(wrong_options_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
