/* SPDX-License-Identifier: Apache-2.0 */
/* Networks of elementary operations, for the tests of replicas and of the float64 reference. */
#ifndef TESTS_ELEMENTARY_NETWORKS_H
#define TESTS_ELEMENTARY_NETWORKS_H

#include "networks.h"
#include "yoke/elementary.h"

static inline yoke_value parameter(yoke_model *model, const char *name, yoke_shape shape) {
    yoke_parameter_options options = YOKE_PARAMETER_OPTIONS_INIT;
    options.name = name;
    options.shape = shape;
    options.std = 0.7;
    return yoke_parameter_value(model, &options);
}

/* One function of what linear layers write; arguments of logarithms, roots, powers and divisors are
 * above 1/2. */
static inline yoke_model *one_function(yoke_function function, const yoke_loss_options *loss) {
    static const char *const layers[] = {"a", "b", "c"};
    yoke_model *model = NULL;
    assert_ok(yoke_model_create(&model, yoke_function_name(function), yoke_shape_vector(9)));
    bool positive = function == YOKE_FN_LOG || function == YOKE_FN_SQRT ||
                    function == YOKE_FN_RSQRT || function == YOKE_FN_POWER ||
                    function == YOKE_FN_DIVIDE;
    yoke_value arguments[YOKE_FUNCTION_ARGUMENTS];
    for (int k = 0; k < yoke_function_arguments(function); k++) {
        arguments[k] = linear(model, yoke_model_input(model), layers[k], 11, NULL);
        if (k == 0 && function == YOKE_FN_WHERE)
            arguments[k] = yoke_combine(model, YOKE_FN_GREATER, arguments[k],
                                        yoke_map_with(model, YOKE_FN_SCALE, arguments[k], -1, 0));
        if (positive)
            arguments[k] = yoke_map_with(model, YOKE_FN_OFFSET,
                                         yoke_map(model, YOKE_FN_SOFTPLUS, arguments[k]), 0.5, 0);
    }
    double p = function == YOKE_FN_POWER ? 1.7 : function == YOKE_FN_CLAMP ? -0.4 : 0.3;
    yoke_value made = yoke_elementary(model, function, arguments, p, 0.6);
    assert_ok(yoke_model_finish(model, linear(model, made, "head", 5, NULL), loss));
    return model;
}

/* Images, sequences and flat values with repeated axes, behind convolutions whose layout a device
 * chooses. */
static inline yoke_model *broadcast(const yoke_loss_options *loss) {
    yoke_model *model = NULL;
    assert_ok(yoke_model_create(&model, "broadcast", yoke_shape_image(3, 6, 5)));
    yoke_value image = conv(model, yoke_model_input(model), "conv", 20, NULL);
    yoke_value other = conv(model, yoke_model_input(model), "other", 20, NULL);
    yoke_value channels =
        yoke_reduce_axes(model, other, YOKE_REDUCE_MEAN, YOKE_AXIS_HEIGHT | YOKE_AXIS_WIDTH);
    yoke_value rows =
        yoke_reduce_axes(model, other, YOKE_REDUCE_MAX, YOKE_AXIS_CHANNELS | YOKE_AXIS_WIDTH);
    yoke_value columns = parameter(model, "columns", yoke_shape_image(20, 1, 5));
    yoke_value number = parameter(model, "number", yoke_shape_vector(1));
    yoke_value sum = yoke_multiply(model, image, channels);
    sum = yoke_subtract(model, sum, rows);
    sum = yoke_add(model, yoke_map(model, YOKE_FN_TANH, sum), columns);
    sum = yoke_multiply(model, sum, number);
    sum = yoke_add(model, yoke_map(model, YOKE_FN_SQUARE, sum), other);
    yoke_value sequence = yoke_reshape(model, sum, yoke_shape_sequence(30, 20));
    yoke_value weights = parameter(model, "weights", yoke_shape_sequence(1, 20));
    yoke_value means = yoke_reduce_axes(model, sequence, YOKE_REDUCE_MEAN, YOKE_AXIS_CHANNELS);
    sequence = yoke_subtract(model, yoke_multiply(model, weights, sequence), means);
    yoke_value flat =
        yoke_flatten(model, yoke_reduce_axes(model, sequence, YOKE_REDUCE_SUM, YOKE_AXIS_HEIGHT));
    flat = yoke_divide(
        model, flat,
        yoke_map_with(model, YOKE_FN_OFFSET, yoke_map(model, YOKE_FN_EXP, number), 1, 0));
    assert_ok(yoke_model_finish(model, linear(model, flat, "head", 7, NULL), loss));
    return model;
}

/* Attention of two heads, put together of matrices, and parts of them. */
static inline yoke_model *matrices(const yoke_loss_options *loss) {
    yoke_model *model = NULL;
    assert_ok(yoke_model_create(&model, "matrices", yoke_shape_sequence(6, 8)));
    yoke_value input = yoke_model_input(model);
    yoke_value parts[3];
    static const char *const names[] = {"q", "k", "v"};
    for (int i = 0; i < 3; i++) {
        yoke_value part = linear(model, input, names[i], 8, NULL);
        part = yoke_reshape(model, part, yoke_shape_image(6, 2, 4));
        parts[i] = yoke_transpose(model, part, YOKE_AXIS_CHANNELS, YOKE_AXIS_HEIGHT);
    }
    yoke_value scores = yoke_matmul(model, parts[0], parts[1], false, true);
    scores = yoke_map(model, YOKE_FN_EXP, yoke_map_with(model, YOKE_FN_SCALE, scores, 0.5, 0));
    scores = yoke_divide(model, scores,
                         yoke_reduce_axes(model, scores, YOKE_REDUCE_SUM, YOKE_AXIS_WIDTH));
    yoke_value mixed = yoke_matmul(model, scores, parts[2], false, false);
    yoke_value both = yoke_matmul(model, mixed, mixed, true, false);
    both = yoke_matmul(model, both, parts[2], true, true);
    both = yoke_slice(model, both, YOKE_AXIS_WIDTH, -1, 5, 0.25);
    both = yoke_concat_along(model, both, yoke_slice(model, both, YOKE_AXIS_HEIGHT, 1, 3, 0),
                             YOKE_AXIS_HEIGHT);
    both = yoke_transpose(model, both, YOKE_AXIS_HEIGHT, YOKE_AXIS_WIDTH);
    yoke_value sequence = yoke_reshape(model, both, yoke_shape_sequence(6, 12));
    sequence = yoke_matmul(model, sequence, input, true, false);
    sequence = yoke_transpose(model, sequence, YOKE_AXIS_CHANNELS, YOKE_AXIS_HEIGHT);
    yoke_value flat =
        yoke_slice(model, yoke_flatten(model, sequence), YOKE_AXIS_CHANNELS, 3, 90, 0);
    assert_ok(yoke_model_finish(model, linear(model, flat, "head", 7, NULL), loss));
    return model;
}

/* A chain of eight functions of two values. */
static inline yoke_model *chain(const yoke_loss_options *loss) {
    yoke_model *model = NULL;
    assert_ok(yoke_model_create(&model, "chain", yoke_shape_vector(9)));
    yoke_value a = linear(model, yoke_model_input(model), "a", 300, NULL);
    yoke_value b = linear(model, yoke_model_input(model), "b", 300, NULL);
    yoke_value c = yoke_subtract(model, a, yoke_map_with(model, YOKE_FN_SCALE, b, 0.5, 0));
    c = yoke_add(model, yoke_map(model, YOKE_FN_TANH, c), b);
    c = yoke_multiply(model, yoke_map_with(model, YOKE_FN_OFFSET, c, 0.1, 0), a);
    c = yoke_map_with(model, YOKE_FN_LEAKY_RELU, yoke_map(model, YOKE_FN_NEGATE, c), 0.2, 0);
    assert_ok(yoke_model_finish(model, linear(model, c, "head", 7, NULL), loss));
    return model;
}

#endif
