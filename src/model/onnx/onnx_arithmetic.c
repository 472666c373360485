/* SPDX-License-Identifier: Apache-2.0 */
/* Operators of elements: functions, arithmetic with broadcasting, comparisons. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/onnx/onnx_reader.h"
#include "yoke/composed.h"

/* Input 0 and its row. */
static yoke_status only(yoke_onnx_call *call, yoke_value *node) {
    TRY(yoke_onnx_need(call, 1));
    return yoke_onnx_node(call, call->in[0], node);
}

static yoke_status mapped(yoke_onnx_call *call, yoke_value node) {
    return yoke_onnx_result(call, 0, &call->in[0]->sizes, call->in[0]->batch, node);
}

static yoke_status map(yoke_onnx_call *call) {
    yoke_value node;
    TRY(only(call, &node));
    return mapped(call, yoke_map(call->model, (yoke_function)call->word, node));
}

static yoke_status reciprocal(yoke_onnx_call *call) {
    yoke_value node;
    TRY(only(call, &node));
    return mapped(call, yoke_map_with(call->model, YOKE_FN_POWER, node, -1, 0));
}

/* Activations that the library has as calls. */
enum { RELU, SIGMOID, TANH, GELU, HARD_SWISH, MISH, SILU };

static yoke_status activation(yoke_onnx_call *call) {
    yoke_value node;
    char text[32];
    TRY(only(call, &node));
    switch (call->word) {
    case RELU:
        return mapped(call, yoke_relu(call->model, node));
    case SIGMOID:
        return mapped(call, yoke_sigmoid(call->model, node));
    case TANH:
        return mapped(call, yoke_tanh(call->model, node));
    case GELU:
        if (strcmp(yoke_onnx_text(call, "approximate", "none", text), "tanh") == 0)
            return mapped(call, yoke_gelu_tanh(call->model, node));
        return mapped(call, yoke_gelu(call->model, node));
    case HARD_SWISH:
        return mapped(call, yoke_hard_swish(call->model, node));
    case SILU:
        if (fabs(yoke_onnx_real(call, "alpha", 1) - 1) > 1e-6)
            return FAIL(YOKE_ERROR_ARGUMENT, "Yoke has alpha 1 only");
        return mapped(call, yoke_silu(call->model, node));
    default:
        return mapped(call, yoke_mish(call->model, node));
    }
}

/* Functions with constants. */
enum { LEAKY_RELU, ELU, SELU, CELU, HARD_SIGMOID };

static yoke_status with_constants(yoke_onnx_call *call) {
    yoke_model *model = call->model;
    yoke_value node;
    TRY(only(call, &node));
    double alpha = yoke_onnx_real(call, "alpha",
                                  call->word == LEAKY_RELU     ? 0.01
                                  : call->word == HARD_SIGMOID ? 0.2
                                  : call->word == SELU         ? 1.67326319217681884765625
                                                               : 1);
    if (call->word == LEAKY_RELU)
        return mapped(call, yoke_map_with(model, YOKE_FN_LEAKY_RELU, node, alpha, 0));
    if (call->word == HARD_SIGMOID) {
        double beta = yoke_onnx_real(call, "beta", 0.5);
        if (fabs(alpha - 1.0 / 6) < 1e-6 && beta == 0.5)
            return mapped(call, yoke_map(model, YOKE_FN_HARD_SIGMOID, node));
        node = yoke_map_with(model, YOKE_FN_SCALE, node, alpha, 0);
        node = yoke_map_with(model, YOKE_FN_OFFSET, node, beta, 0);
        return mapped(call, yoke_map_with(model, YOKE_FN_CLAMP, node, 0, 1));
    }
    if (call->word == CELU && alpha != 1)
        return FAIL(YOKE_ERROR_ARGUMENT, "alpha is %g, Yoke has 1 only", alpha);
    node = yoke_map_with(model, YOKE_FN_ELU, node, alpha, 0);
    if (call->word == SELU)
        node = yoke_map_with(model, YOKE_FN_SCALE, node,
                             yoke_onnx_real(call, "gamma", 1.05070102214813232421875), 0);
    return mapped(call, node);
}

/* A bound never trains, whatever its name. */
static yoke_status bound_of(yoke_onnx_call *call, yoke_onnx_value *value, double *bound) {
    float *values;
    if (value->kind != YOKE_ONNX_PARAMETER || yoke_onnx_whole(&value->sizes) != 1)
        return yoke_onnx_number(call, value, bound);
    TRY(yoke_onnx_floats(call, value, &values));
    *bound = (double)values[0];
    yoke_free(values);
    return YOKE_OK;
}

static yoke_status clip(yoke_onnx_call *call) {
    double low = -(double)INFINITY, high = (double)INFINITY;
    yoke_value node;
    TRY(only(call, &node));
    if (yoke_onnx_has(call, 1)) TRY(bound_of(call, call->in[1], &low));
    if (yoke_onnx_has(call, 2)) TRY(bound_of(call, call->in[2], &high));
    if (isnan(low) || isnan(high))
        return FAIL(YOKE_ERROR_ARGUMENT, "its bounds are computed: they must be constants");
    if (low == 0 && high == 6) return mapped(call, yoke_relu6(call->model, node));
    if (low == 0 && high > 3e38) return mapped(call, yoke_relu(call->model, node));
    return mapped(
        call, yoke_map_with(call->model, YOKE_FN_CLAMP, node, fmax(low, -3e38), fmin(high, 3e38)));
}

static yoke_status negated(yoke_onnx_call *call) { /* Not: 1 - x */
    yoke_value node;
    TRY(only(call, &node));
    node = yoke_map(call->model, YOKE_FN_NEGATE, node);
    TRY(mapped(call, yoke_map_with(call->model, YOKE_FN_OFFSET, node, 1, 0)));
    if (call->out[0] != NULL) call->out[0]->whole = true;
    return YOKE_OK;
}

static yoke_status same(yoke_onnx_call *call) {
    TRY(yoke_onnx_need(call, 1));
    yoke_onnx_value *from = call->in[0];
    bool tensor = from->kind == YOKE_ONNX_PARAMETER && strcmp(call->node->op_type, "Identity") == 0;
    if (call->out[0] != NULL) *call->out[0] = *from;
    if (!tensor || call->out[0] == NULL) return YOKE_OK;
    return yoke_onnx_named_apart(call, call->out[0], call->node->output[0]);
}

static yoke_status dropout(yoke_onnx_call *call) {
    double ratio = 0.5;
    yoke_value node;
    TRY(only(call, &node));
    if (yoke_onnx_has(call, 1)) TRY(yoke_onnx_number(call, call->in[1], &ratio));
    if (!(ratio >= 0 && ratio < 1))
        return FAIL(YOKE_ERROR_ARGUMENT, "its ratio is %g, it must be a constant from 0 to below 1",
                    ratio);
    if (ratio > 0) node = yoke_dropout(call->model, node, ratio);
    return mapped(call, node);
}

/* Several inputs. */

yoke_status yoke_onnx_combine(yoke_onnx_call *call, yoke_function function,
                              yoke_onnx_value *const *values, int count, yoke_onnx_value *result) {
    yoke_onnx_sides sides;
    yoke_value node;
    TRY(yoke_onnx_broadcast(call, values, count, &sides));
    if (function == YOKE_FN_ADD)
        node = yoke_add(call->model, sides.nodes[0], sides.nodes[1]);
    else if (function == YOKE_FN_MULTIPLY)
        node = yoke_multiply(call->model, sides.nodes[0], sides.nodes[1]);
    else
        node = yoke_elementary(call->model, function, sides.nodes, 0, 0);
    *result = (yoke_onnx_value){
        .kind = YOKE_ONNX_COMPUTED, .sizes = sides.sizes, .batch = sides.batch, .node = node};
    return yoke_onnx_check(call);
}

/* With a number instead of a constant of one element; false: there is none, or a shape of more
 * dimensions comes of it. */
static yoke_status with_number(yoke_onnx_call *call, bool *done) {
    static const yoke_function functions[] = {YOKE_FN_OFFSET, YOKE_FN_OFFSET, YOKE_FN_SCALE,
                                              YOKE_FN_SCALE};
    *done = false;
    for (int side = 1; side >= 0 && call->word <= YOKE_FN_DIVIDE; side--) {
        yoke_onnx_value *value = call->in[1 - side];
        double number;
        TRY(yoke_onnx_number(call, call->in[side], &number));
        if (isnan(number) || call->in[side]->sizes.rank > value->sizes.rank) continue;
        if (side == 0 && call->word == YOKE_FN_DIVIDE) continue;
        bool flips = side == 0 && call->word == YOKE_FN_SUBTRACT;
        yoke_value node;
        TRY(yoke_onnx_node(call, value, &node));
        if (flips) node = yoke_map(call->model, YOKE_FN_NEGATE, node);
        if (call->word == YOKE_FN_SUBTRACT && side == 1) number = -number;
        if (call->word == YOKE_FN_DIVIDE) number = 1 / number;
        number = fmin(fmax(number, -YOKE_ONNX_INFINITY), YOKE_ONNX_INFINITY);
        if (number != (double)(functions[call->word] == YOKE_FN_SCALE))
            node = yoke_map_with(call->model, functions[call->word], node, number, 0);
        *done = true;
        return yoke_onnx_result(call, 0, &value->sizes, value->batch, node);
    }
    return YOKE_OK;
}

static yoke_status finish(yoke_onnx_call *call, const yoke_onnx_value *value) {
    if (call->out[0] != NULL) *call->out[0] = *value;
    return YOKE_OK;
}

static yoke_status binary(yoke_onnx_call *call) {
    yoke_onnx_value made;
    bool done;
    TRY(yoke_onnx_need(call, 2));
    if (call->word == YOKE_FN_DIVIDE && call->in[0]->whole && call->in[1]->whole)
        return FAIL(YOKE_ERROR_ARGUMENT, "a division of whole numbers, which drops the rest");
    TRY(with_number(call, &done));
    if (done) return YOKE_OK;
    if (call->in[0] == call->in[1] && call->word == YOKE_FN_MULTIPLY) {
        call->word = YOKE_FN_SQUARE;
        return map(call);
    }
    TRY(yoke_onnx_combine(call, (yoke_function)call->word, call->in, 2, &made));
    made.whole = call->in[0]->whole && call->in[1]->whole && call->word != YOKE_FN_DIVIDE;
    return finish(call, &made);
}

/* Sum, Max and Min of any number; one Sum is an Add. */
static yoke_status several(yoke_onnx_call *call) {
    TRY(yoke_onnx_need(call, call->in_count));
    if (call->in_count == 0) return FAIL(YOKE_ERROR_DATA, "it has no input");
    yoke_onnx_value made = *call->in[0];
    for (int i = 1; i < call->in_count; i++) {
        yoke_onnx_value left = made, *const sides[] = {&left, call->in[i]};
        TRY(yoke_onnx_combine(call, (yoke_function)call->word, sides, 2, &made));
    }
    return finish(call, &made);
}

static yoke_status power(yoke_onnx_call *call) {
    double exponent;
    yoke_value node;
    TRY(yoke_onnx_need(call, 2));
    TRY(yoke_onnx_number(call, call->in[1], &exponent));
    if (isnan(exponent))
        return FAIL(YOKE_ERROR_ARGUMENT, "its exponent is no constant of one element");
    TRY(only(call, &node));
    if (exponent == 2) return mapped(call, yoke_map(call->model, YOKE_FN_SQUARE, node));
    if (exponent == 0.5) return mapped(call, yoke_map(call->model, YOKE_FN_SQRT, node));
    return mapped(call, yoke_map_with(call->model, YOKE_FN_POWER, node, exponent, 0));
}

/* Comparisons give 0 and 1. */
enum { GREATER, LESS, GREATER_EQUAL, LESS_EQUAL, EQUAL };

static yoke_status compare(yoke_onnx_call *call) {
    TRY(yoke_onnx_need(call, 2));
    bool flips = call->word == LESS || call->word == GREATER_EQUAL;
    yoke_onnx_value *const sides[] = {call->in[flips], call->in[!flips]};
    yoke_onnx_value made;
    TRY(yoke_onnx_combine(call, call->word == EQUAL ? YOKE_FN_EQUAL : YOKE_FN_GREATER, sides, 2,
                          &made));
    if (call->word == GREATER_EQUAL || call->word == LESS_EQUAL) {
        made.node = yoke_map(call->model, YOKE_FN_NEGATE, made.node);
        made.node = yoke_map_with(call->model, YOKE_FN_OFFSET, made.node, 1, 0);
        TRY(yoke_onnx_check(call));
    }
    made.whole = true;
    return finish(call, &made);
}

static yoke_status where(yoke_onnx_call *call) {
    yoke_onnx_value made;
    TRY(yoke_onnx_need(call, 3));
    TRY(yoke_onnx_combine(call, YOKE_FN_WHERE, call->in, 3, &made));
    return finish(call, &made);
}

static yoke_status prelu(yoke_onnx_call *call) {
    yoke_onnx_value negative = {0}, left = {0}, made;
    yoke_value node;
    TRY(yoke_onnx_need(call, 2));
    TRY(only(call, &node));
    yoke_value below = yoke_map(call->model, YOKE_FN_NEGATE, node);
    below = yoke_map(call->model, YOKE_FN_NEGATE, yoke_relu(call->model, below));
    negative = (yoke_onnx_value){YOKE_ONNX_COMPUTED, call->in[0]->sizes, call->in[0]->batch,
                                 .node = below};
    yoke_onnx_value *const product[] = {&negative, call->in[1]};
    TRY(yoke_onnx_combine(call, YOKE_FN_MULTIPLY, product, 2, &left));
    yoke_onnx_value positive = negative;
    positive.node = yoke_relu(call->model, node);
    yoke_onnx_value *const sum[] = {&positive, &left};
    TRY(yoke_onnx_combine(call, YOKE_FN_ADD, sum, 2, &made));
    return finish(call, &made);
}

/* Values are float32, so that a conversion is nothing, unless it rounds. */
static yoke_status cast(yoke_onnx_call *call) {
    int64_t to = yoke_onnx_int(call, "to", YOKE_ONNX_FLOAT);
    TRY(yoke_onnx_need(call, 1));
    if (yoke_onnx_type_whole((int)to) && !call->in[0]->whole)
        return FAIL(YOKE_ERROR_ARGUMENT, "it rounds what the graph computes to whole numbers");
    return same(call);
}

const yoke_onnx_operator yoke_onnx_arithmetic[] = {
    {"Abs", map, YOKE_FN_ABS},
    {"Add", binary, YOKE_FN_ADD},
    {"And", binary, YOKE_FN_MULTIPLY},
    {"Cast", cast, 0},
    {"CastLike", same, 0},
    {"Celu", with_constants, CELU},
    {"Clip", clip, 0},
    {"Cos", map, YOKE_FN_COS},
    {"Div", binary, YOKE_FN_DIVIDE},
    {"Dropout", dropout, 0},
    {"Elu", with_constants, ELU},
    {"Equal", compare, EQUAL},
    {"Erf", map, YOKE_FN_ERF},
    {"Exp", map, YOKE_FN_EXP},
    {"Gelu", activation, GELU},
    {"Greater", compare, GREATER},
    {"GreaterOrEqual", compare, GREATER_EQUAL},
    {"HardSigmoid", with_constants, HARD_SIGMOID},
    {"HardSwish", activation, HARD_SWISH},
    {"Identity", same, 0},
    {"LeakyRelu", with_constants, LEAKY_RELU},
    {"Less", compare, LESS},
    {"LessOrEqual", compare, LESS_EQUAL},
    {"Log", map, YOKE_FN_LOG},
    {"Max", several, YOKE_FN_MAXIMUM},
    {"Min", several, YOKE_FN_MINIMUM},
    {"Mish", activation, MISH},
    {"Mul", binary, YOKE_FN_MULTIPLY},
    {"Neg", map, YOKE_FN_NEGATE},
    {"Not", negated, 0},
    {"Or", several, YOKE_FN_MAXIMUM},
    {"PRelu", prelu, 0},
    {"Pow", power, 0},
    {"Reciprocal", reciprocal, 0},
    {"Relu", activation, RELU},
    {"Selu", with_constants, SELU},
    {"Sigmoid", activation, SIGMOID},
    {"Sin", map, YOKE_FN_SIN},
    {"Softplus", map, YOKE_FN_SOFTPLUS},
    {"Sqrt", map, YOKE_FN_SQRT},
    {"Sub", binary, YOKE_FN_SUBTRACT},
    {"Sum", several, YOKE_FN_ADD},
    {"Swish", activation, SILU},
    {"Tanh", activation, TANH},
    {"Where", where, 0},
    {NULL, NULL, 0},
};
