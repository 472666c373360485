/* SPDX-License-Identifier: Apache-2.0 */
/* Elementary operations: a replica equals the float64 reference for every function, shape and
 * reduction; chains become one operation; what does not fit is named. */
#include "elementary_networks.h"

static void check_step(yoke_model *model, double tolerance) {
    struct rig rig;
    rig_create(&rig, model, 5, 1);
    assert_step_near(&rig, tolerance);
    rig_batch(&rig, 2);
    assert_step_near(&rig, tolerance);
    rig_destroy(&rig);
}

static void every_function_equals_the_reference(void **state) {
    (void)state;
    for (int function = 0; function < YOKE_FUNCTIONS; function++)
        check_step(one_function((yoke_function)function, NULL), 1e-4);
}

static void repeated_axes_equal_the_reference(void **state) {
    (void)state;
    check_step(broadcast(NULL), 1e-4);
}

static void matrices_and_moves_equal_the_reference(void **state) {
    (void)state;
    check_step(matrices(NULL), 1e-4);
}

static void a_chain_equals_the_reference(void **state) {
    (void)state;
    check_step(chain(NULL), 1e-4);
}

static void the_gradients_of_inputs_equal_the_references(void **state) {
    (void)state;
    yoke_model *models[] = {broadcast(NULL), matrices(NULL), chain(NULL)};
    for (int i = 0; i < 3; i++) {
        struct rig rig = {.model = models[i],
                          .rows = 3,
                          .algorithm = YOKE_ALGORITHM_DIRECT,
                          .input_gradients = true};
        rig_devices(&rig);
        rig_replica(&rig, 4);
        assert_step_near(&rig, 1e-4);
        rig_destroy(&rig);
    }
}

static void bfloat16_stays_close_to_the_reference(void **state) {
    (void)state;
    yoke_loss_options loss = {.struct_size = sizeof loss, .kind = YOKE_LOSS_MSE};
    yoke_model *models[] = {broadcast(&loss), matrices(&loss), chain(&loss)};
    bool supported = false;
    for (int i = 0; i < 3; i++) {
        struct rig rig = {.model = models[i],
                          .rows = 5,
                          .precision = YOKE_BFLOAT16,
                          .algorithm = YOKE_ALGORITHM_DIRECT};
        rig_devices(&rig);
        supported = yoke_device_supports(rig.device, YOKE_BFLOAT16);
        if (supported) {
            rig_replica(&rig, 1);
            assert_step_near(&rig, 0.3);
        }
        rig_destroy(&rig);
    }
    if (!supported) skip();
}

static int count_kind(const yoke_model *model, yoke_operation_kind kind) {
    int count = 0;
    for (int i = 0; i < model->node_count; i++)
        count += model->nodes[i].operation.kind == kind;
    return count;
}

/* Every value that it alone reads is part of it; the layers still count. */
static void a_chain_is_one_operation(void **state) {
    (void)state;
    yoke_model *model = chain(NULL);
    assert_int_equal(count_kind(model, YOKE_OP_EXPRESSION), 1);
    assert_int_equal(count_kind(model, YOKE_OP_ADD) + count_kind(model, YOKE_OP_MULTIPLY), 0);
    assert_int_equal(yoke_model_layer_count(model), 3 + 8);
    for (int i = 0; i < model->node_count; i++)
        if (model->nodes[i].operation.kind == YOKE_OP_EXPRESSION) {
            assert_int_equal(model->nodes[i].operation.expression.count, 8);
            assert_int_equal(model->nodes[i].input_count, 2);
        }
    yoke_model_destroy(model);
}

/* An add of two layers keeps the plan of its own. */
static void adds_and_products_alone_stay_as_they_are(void **state) {
    (void)state;
    yoke_model *model = NULL;
    assert_ok(yoke_model_create(&model, "plain", yoke_shape_vector(9)));
    yoke_value a = linear(model, yoke_model_input(model), "a", 9, NULL);
    yoke_value sum = yoke_multiply(model, yoke_add(model, a, yoke_model_input(model)), a);
    assert_ok(yoke_model_finish(model, sum, NULL));
    assert_int_equal(count_kind(model, YOKE_OP_EXPRESSION), 0);
    yoke_model_destroy(model);
}

/* More functions than an expression holds: several, and the same values. */
static void a_long_chain_becomes_several(void **state) {
    (void)state;
    yoke_model *model = NULL;
    assert_ok(yoke_model_create(&model, "long", yoke_shape_vector(9)));
    yoke_value a = linear(model, yoke_model_input(model), "a", 9, NULL);
    for (int i = 0; i < 2 * YOKE_TERMS_LIMIT + 3; i++)
        a = i % 2 == 0 ? yoke_map(model, YOKE_FN_TANH, a)
                       : yoke_map_with(model, YOKE_FN_SCALE, a, 1.5, 0);
    assert_ok(yoke_model_finish(model, a, NULL));
    assert_int_equal(count_kind(model, YOKE_OP_EXPRESSION), 3);
    check_step(model, 1e-4);
}

/* Errors. */

typedef yoke_value (*wrong_layer)(yoke_model *model, yoke_value input);

static yoke_value wrong_function(yoke_model *model, yoke_value input) {
    return yoke_map_with(model, YOKE_FUNCTIONS, input, 0, 0);
}
static yoke_value wrong_shapes(yoke_model *model, yoke_value input) {
    return yoke_subtract(model, input, yoke_slice(model, input, YOKE_AXIS_WIDTH, 0, 2, 0));
}
static yoke_value wrong_axes(yoke_model *model, yoke_value input) {
    return yoke_reduce_axes(model, input, YOKE_REDUCE_SUM, 8);
}
static yoke_value wrong_elements(yoke_model *model, yoke_value input) {
    return yoke_reshape(model, input, yoke_shape_vector(59));
}
static yoke_value wrong_axis(yoke_model *model, yoke_value input) {
    return yoke_transpose(model, yoke_flatten(model, input), YOKE_AXIS_CHANNELS, YOKE_AXIS_HEIGHT);
}
static yoke_value wrong_places(yoke_model *model, yoke_value input) {
    return yoke_slice(model, input, YOKE_AXIS_HEIGHT, 4, 6, 0);
}
static yoke_value wrong_matrices(yoke_model *model, yoke_value input) {
    return yoke_matmul(model, input, input, false, false);
}
static yoke_value wrong_parameter(yoke_model *model, yoke_value input) {
    (void)input;
    yoke_parameter_options options = YOKE_PARAMETER_OPTIONS_INIT;
    options.name = "scale";
    return yoke_parameter_value(model, &options);
}

static void what_does_not_fit_is_named(void **state) {
    (void)state;
    static const struct {
        wrong_layer layer;
        const char *text;
    } cases[] = {
        {wrong_function, "29 is no function, they are 0 to 28"},
        {wrong_shapes, "subtract.1: 3 x 4 x 5 and 3 x 4 x 2 do not go together: along each axis "
                       "the lengths must be equal, or one of them 1"},
        {wrong_axes, "sum.0: 8 is no set of axes"},
        {wrong_elements, "reshape.0: 3 x 4 x 5 has 60 elements, 59 x 1 x 1 has 59"},
        {wrong_axis, "transpose.1: 60 x 1 x 1 (flat) has no axis 2"},
        {wrong_places, "slice.0: places 4 to 5 of an axis of length 4: at least one must lie "
                       "inside"},
        {wrong_matrices, "matmul.0: left is 3 x 4 x 5, right is 3 x 4 x 5: both must be sequences"},
        {wrong_parameter, "scale of 0 x 0 x 0: channels, height and width must be at least 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        yoke_model *model = NULL;
        assert_ok(yoke_model_create(&model, "wrong", yoke_shape_image(3, 4, 5)));
        yoke_value value = cases[i].layer(model, yoke_model_input(model));
        assert_int_equal(value.index, -1);
        assert_int_equal(yoke_model_finish(model, value, NULL), YOKE_ERROR_ARGUMENT);
        if (strstr(yoke_last_error(), cases[i].text) == NULL)
            fail_msg("case %zu says: %s", i, yoke_last_error());
        yoke_model_destroy(model);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_function_equals_the_reference),
        cmocka_unit_test(repeated_axes_equal_the_reference),
        cmocka_unit_test(matrices_and_moves_equal_the_reference),
        cmocka_unit_test(a_chain_equals_the_reference),
        cmocka_unit_test(the_gradients_of_inputs_equal_the_references),
        cmocka_unit_test(bfloat16_stays_close_to_the_reference),
        cmocka_unit_test(a_chain_is_one_operation),
        cmocka_unit_test(adds_and_products_alone_stay_as_they_are),
        cmocka_unit_test(a_long_chain_becomes_several),
        cmocka_unit_test(what_does_not_fit_is_named),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
