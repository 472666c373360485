/* SPDX-License-Identifier: Apache-2.0 */
/* An operation of the host program on CPU devices: a replica equals the float64 reference of the
 * same network of elementary operations; what does not fit is named. */
#include "networks.h"
#include "support/own_operation.h"

static own_fault right = OWN_RIGHT;

/* Images behind convolutions, whose layout the device chooses, and behind another operation; own:
 * of the host program. */
static yoke_model *network(bool own, const yoke_loss_options *loss) {
    yoke_model *model = NULL;
    yoke_shape shape = yoke_shape_image(20, 6, 5);
    assert_ok(yoke_model_create(&model, "network", yoke_shape_image(3, 6, 5)));
    yoke_value input = yoke_model_input(model);
    yoke_value a = conv(model, input, "a", 20, NULL), b = conv(model, input, "b", 20, NULL);
    yoke_value c = own ? own_gate(model, a, b, shape, &right) : elementary_gate(model, a, b, shape);
    c = norm(model, conv(model, c, "c", 20, NULL), "norm");
    yoke_value flat = yoke_flatten(model, yoke_add(model, c, a));
    assert_ok(yoke_model_finish(model, linear(model, flat, "head", 7, NULL), loss));
    return model;
}

/* The rig's model is the twin, from which the reference is made. */
static void check_step(struct rig rig, const yoke_loss_options *loss, double tolerance) {
    yoke_model *own = network(true, loss), *twin = network(false, loss);
    rig.model = own;
    rig.algorithm = YOKE_ALGORITHM_DIRECT;
    rig_devices(&rig);
    bool supported = yoke_device_supports(rig.device, rig.precision);
    if (supported) {
        rig_replica(&rig, 1);
        rig.model = twin;
        assert_step_near(&rig, tolerance);
        rig_batch(&rig, 2);
        assert_step_near(&rig, tolerance);
    }
    rig.model = twin;
    rig_destroy(&rig);
    yoke_model_destroy(own);
    if (!supported) skip();
}

static void a_step_equals_the_reference(void **state) {
    (void)state;
    check_step((struct rig){.rows = 5}, NULL, 1e-4);
    check_step((struct rig){.rows = 3, .input_gradients = true}, NULL, 1e-4);
}

static void bfloat16_stays_close_to_the_reference(void **state) {
    (void)state;
    yoke_loss_options loss = {.struct_size = sizeof loss, .kind = YOKE_LOSS_MSE};
    check_step((struct rig){.rows = 5, .precision = YOKE_BFLOAT16}, &loss, 0.3);
}

/* A frozen parameter and inputs whose gradient nobody reads: their gradients are NULL. */
static void unwanted_gradients_are_not_asked_for(void **state) {
    (void)state;
    yoke_model *model = NULL;
    assert_ok(yoke_model_create(&model, "frozen", yoke_shape_vector(6)));
    yoke_value input = yoke_model_input(model);
    yoke_value gate = own_gate(model, input, input, yoke_shape_vector(6), &right);
    assert_ok(yoke_model_finish(model, linear(model, gate, "head", 3, NULL), NULL));
    bool frozen[3] = {true};
    struct rig rig = {
        .model = model, .rows = 4, .algorithm = YOKE_ALGORITHM_DIRECT, .frozen = frozen};
    rig_devices(&rig);
    rig_replica(&rig, 1);
    yoke_plan_step step = rig_step(&rig);
    assert_ok(yoke_replica_forward(rig.replica, 4, true, &step));
    assert_ok(yoke_replica_loss(rig.replica, &step));
    rig_backward(&rig, &step);
    rig_destroy(&rig);
}

static void the_float64_reference_refuses_it(void **state) {
    (void)state;
    yoke_float64_model *reference = NULL;
    yoke_model *model = network(true, NULL);
    assert_int_equal(yoke_float64_create(&reference, model, 2), YOKE_ERROR_ARGUMENT);
    assert_null(reference);
    assert_non_null(strstr(yoke_last_error(), "gate is an operation of the host program"));
    yoke_model_destroy(model);
}

/* Errors. */

typedef struct wrong {
    yoke_operation_options options;
    const char *text;
} wrong;

static void what_does_not_fit_is_named(void **state) {
    (void)state;
    const yoke_value input = {0}, none = {5};
    const yoke_parameter_options nameless = {.struct_size = sizeof nameless,
                                             .shape = yoke_shape_vector(3)};
    const yoke_parameter_options *list[] = {&nameless};
    yoke_operation_options good = YOKE_OPERATION_OPTIONS_INIT;
    good.name = "own";
    good.shape = yoke_shape_vector(3);
    good.inputs = &input;
    good.input_count = 1;
    good.forward = own_forward;
    good.backward = own_backward;
    wrong cases[] = {{good, "needs a name"},
                     {good, "own: 0 inputs, must be 1 to 3"},
                     {good, "own: reads value 5"},
                     {good, "own: has no `backward`: set the function"},
                     {good, "own of 0 x 1 x 1"},
                     {good, "own: 3 parameters, must be 0 to 2"},
                     {good, "own: parameter 0 needs a name"},
                     {good, "own: `parameters` is NULL"}};
    cases[0].options.name = NULL;
    cases[1].options.input_count = 0;
    cases[2].options.inputs = &none;
    cases[3].options.backward = NULL;
    cases[4].options.shape = yoke_shape_vector(0);
    cases[5].options.parameter_count = 3;
    cases[5].options.parameters = list;
    cases[6].options.parameter_count = 1;
    cases[6].options.parameters = list;
    cases[7].options.parameter_count = 1;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        yoke_model *model = NULL;
        assert_ok(yoke_model_create(&model, "wrong", yoke_shape_vector(3)));
        yoke_value value = yoke_model_add_operation(model, &cases[i].options);
        assert_int_equal(value.index, -1);
        assert_int_equal(yoke_model_finish(model, value, NULL), YOKE_ERROR_ARGUMENT);
        if (strstr(yoke_last_error(), cases[i].text) == NULL)
            fail_msg("case %zu says: %s", i, yoke_last_error());
        yoke_model_destroy(model);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_equals_the_reference),
        cmocka_unit_test(bfloat16_stays_close_to_the_reference),
        cmocka_unit_test(unwanted_gradients_are_not_asked_for),
        cmocka_unit_test(the_float64_reference_refuses_it),
        cmocka_unit_test(what_does_not_fit_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
