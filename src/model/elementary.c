/* SPDX-License-Identifier: Apache-2.0 */
/* Elementary operations as layers: shapes and checks. A layer has one function; fuse.c makes
 * expressions of several. */
#include "yoke/elementary.h"

#include <stdlib.h>
#include <string.h>

#include "model/graph.h"

#define NAME(NAME, name, arguments, linear, value, da, db, dc) #name,
#define ARGUMENTS(NAME, name, arguments, linear, value, da, db, dc) arguments,
static const char *const names[] = {YOKE_ELEMENTARY(NAME)};
static const int arguments_of[] = {YOKE_ELEMENTARY(ARGUMENTS)};

const char *yoke_function_name(yoke_function function) {
    return function >= 0 && function < YOKE_FUNCTIONS ? names[function] : NULL;
}

int yoke_function_arguments(yoke_function function) {
    return function >= 0 && function < YOKE_FUNCTIONS ? arguments_of[function] : 0;
}

/* Functions. */

static bool is_number(yoke_shape shape) {
    return shape.flat && shape.channels == 1;
}

/* The longer of two lengths, one of which is 1 unless they are equal; 0: they do not go together.
 */
static int longer(int a, int b) {
    return a == b || b == 1 ? a : a == 1 ? b : 0;
}

/* Widens *shape to what it and `other` have together. */
static yoke_status broadcast(const yoke_node *layer, yoke_shape *shape, yoke_shape other) {
    yoke_shape a = *shape, b = other;
    if (is_number(b)) return YOKE_OK;
    if (is_number(a)) {
        *shape = b;
        return YOKE_OK;
    }
    shape->channels = longer(a.channels, b.channels);
    shape->height = longer(a.height, b.height);
    shape->width = longer(a.width, b.width);
    if (a.flat == b.flat && a.sequence == b.sequence && shape->channels > 0 && shape->height > 0 &&
        shape->width > 0)
        return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "%s: %d x %d x %d%s and %d x %d x %d%s do not go together: along each axis the "
                "lengths must be equal, or one of them 1",
                layer->operation.name, a.channels, a.height, a.width, yoke_shape_kind(a),
                b.channels, b.height, b.width, yoke_shape_kind(b));
}

/* Reads the value unless the layer reads it already; returns which of its inputs it is. */
static yoke_status read_argument(yoke_model *model, yoke_node *layer, yoke_value value,
                                 uint8_t *argument) {
    int index = 0;
    while (index < layer->input_count && layer->inputs[index] != value.index)
        index++;
    *argument = (uint8_t)index;
    return index < layer->input_count ? YOKE_OK : yoke_builder_read(model, layer, value);
}

static yoke_status add_function(yoke_model *model, yoke_function function,
                                const yoke_value *arguments, double p, double q) {
    yoke_node *layer = NULL;
    int count = yoke_function_arguments(function);
    if (count == 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "yoke_elementary: %d is no function, they are 0 to %d",
                    (int)function, YOKE_FUNCTIONS - 1);
    TRY(yoke_pointer_check(arguments, "arguments"));
    TRY(yoke_builder_layer(model, YOKE_OP_EXPRESSION, names[function], &layer));
    yoke_term term = {.function = (uint8_t)function, .p = (float)p, .q = (float)q};
    yoke_shape shape = {0};
    for (int k = 0; k < count; k++) {
        TRY(read_argument(model, layer, arguments[k], &term.arguments[k]));
        yoke_shape own = yoke_value_shape(model, arguments[k].index);
        if (k == 0)
            shape = own;
        else
            TRY(broadcast(layer, &shape, own));
    }
    layer->operation.expression =
        (yoke_expression){.inputs = layer->input_count, .count = 1, .terms = {term}};
    return yoke_builder_shape(layer, shape);
}

yoke_value yoke_elementary(yoke_model *model, yoke_function function, const yoke_value *arguments,
                           double p, double q) {
    if (yoke_builder_stopped(model)) return (yoke_value){YOKE_NONE};
    return yoke_builder_result(model, add_function(model, function, arguments, p, q));
}

/* Reductions. */

static yoke_status add_reduction(yoke_model *model, yoke_value input, yoke_reduce_kind reduction,
                                 unsigned axes) {
    static const char *const words[] = {"sum", "mean", "max"};
    yoke_node *layer = NULL;
    if (reduction < YOKE_REDUCE_SUM || reduction > YOKE_REDUCE_MAX)
        return FAIL(YOKE_ERROR_ARGUMENT, "yoke_reduce_axes: %d is no reduction", (int)reduction);
    TRY(yoke_builder_layer(model, YOKE_OP_REDUCE, words[reduction], &layer));
    TRY(yoke_builder_read(model, layer, input));
    if (axes == 0 || axes > YOKE_AXIS_ALL)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: %u is no set of axes, they are 1 to %d",
                    layer->operation.name, axes, YOKE_AXIS_ALL);
    layer->operation.reduction = reduction;
    yoke_shape shape = yoke_value_shape(model, input.index);
    if (axes & YOKE_AXIS_CHANNELS) shape.channels = 1;
    if (axes & YOKE_AXIS_HEIGHT) shape.height = 1;
    if (axes & YOKE_AXIS_WIDTH) shape.width = 1;
    return yoke_builder_shape(layer, shape);
}

yoke_value yoke_reduce_axes(yoke_model *model, yoke_value input, yoke_reduce_kind reduction,
                            unsigned axes) {
    if (yoke_builder_stopped(model)) return (yoke_value){YOKE_NONE};
    return yoke_builder_result(model, add_reduction(model, input, reduction, axes));
}

/* Moves. */

yoke_shape yoke_model_value_shape(const yoke_model *model, yoke_value value) {
    return yoke_shape_of(model, value);
}

static yoke_status add_reshape(yoke_model *model, yoke_value input, yoke_shape shape) {
    yoke_node *layer = NULL;
    TRY(yoke_builder_layer(model, YOKE_OP_RESHAPE, NULL, &layer));
    TRY(yoke_builder_read(model, layer, input));
    TRY(yoke_shape_check(shape, layer->operation.name));
    TRY(yoke_builder_shape(layer, shape));
    yoke_dims from = layer->operation.input, to = layer->operation.output;
    if (yoke_row_elements(from) == yoke_row_elements(to)) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT, "%s: %d x %d x %d has %zu elements, %d x %d x %d has %zu",
                layer->operation.name, from.channels, from.height, from.width,
                yoke_row_elements(from), to.channels, to.height, to.width, yoke_row_elements(to));
}

yoke_value yoke_reshape(yoke_model *model, yoke_value input, yoke_shape shape) {
    if (yoke_builder_stopped(model)) return (yoke_value){YOKE_NONE};
    return yoke_builder_result(model, add_reshape(model, input, shape));
}

static int *length_of(yoke_shape *shape, yoke_axis axis) {
    return axis == YOKE_AXIS_CHANNELS ? &shape->channels
           : axis == YOKE_AXIS_HEIGHT ? &shape->height
                                      : &shape->width;
}

static bool has_axis(yoke_shape shape, yoke_axis axis) {
    if (axis == YOKE_AXIS_CHANNELS) return true;
    if (axis == YOKE_AXIS_HEIGHT) return !shape.flat;
    return axis == YOKE_AXIS_WIDTH && !shape.flat && !shape.sequence;
}

static yoke_status need_axis(const yoke_model *model, const yoke_node *layer, yoke_axis axis) {
    yoke_shape shape = yoke_value_shape(model, layer->inputs[0]);
    if (has_axis(shape, axis)) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT, "%s: %d x %d x %d%s has no axis %d", layer->operation.name,
                shape.channels, shape.height, shape.width, yoke_shape_kind(shape), (int)axis);
}

static yoke_status begin_move(yoke_model *model, yoke_value input, const char *name,
                              yoke_node **layer) {
    TRY(yoke_builder_layer(model, YOKE_OP_MOVE, name, layer));
    TRY(yoke_builder_read(model, *layer, input));
    (*layer)->operation.move = (yoke_move){.order = {0, 1, 2}};
    return YOKE_OK;
}

static yoke_status add_transpose(yoke_model *model, yoke_value input, yoke_axis first,
                                 yoke_axis second) {
    yoke_node *layer = NULL;
    TRY(begin_move(model, input, "transpose", &layer));
    TRY(need_axis(model, layer, first));
    TRY(need_axis(model, layer, second));
    yoke_shape shape = yoke_value_shape(model, input.index);
    int *a = length_of(&shape, first), *b = length_of(&shape, second), length = *a;
    *a = *b;
    *b = length;
    yoke_dims dims = layer->operation.input;
    int from = yoke_axis_index(dims, first), to = yoke_axis_index(dims, second);
    layer->operation.move.order[from] = to;
    layer->operation.move.order[to] = from;
    return yoke_builder_shape(layer, shape);
}

yoke_value yoke_transpose(yoke_model *model, yoke_value input, yoke_axis first, yoke_axis second) {
    if (yoke_builder_stopped(model)) return (yoke_value){YOKE_NONE};
    return yoke_builder_result(model, add_transpose(model, input, first, second));
}

static yoke_status add_slice(yoke_model *model, yoke_value input, yoke_axis axis, int begin,
                             int end, double fill) {
    yoke_node *layer = NULL;
    TRY(begin_move(model, input, "slice", &layer));
    TRY(need_axis(model, layer, axis));
    yoke_shape shape = yoke_value_shape(model, input.index);
    int length = *length_of(&shape, axis);
    if (begin >= end || begin >= length || end <= 0 || (int64_t)end - begin > INT32_MAX)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%s: places %d to %d of an axis of length %d: at least one must lie inside",
                    layer->operation.name, begin, end - 1, length);
    *length_of(&shape, axis) = end - begin;
    layer->operation.move.begin[yoke_axis_index(layer->operation.input, axis)] = begin;
    layer->operation.move.fill = (float)fill;
    return yoke_builder_shape(layer, shape);
}

yoke_value yoke_slice(yoke_model *model, yoke_value input, yoke_axis axis, int begin, int end,
                      double fill) {
    if (yoke_builder_stopped(model)) return (yoke_value){YOKE_NONE};
    return yoke_builder_result(model, add_slice(model, input, axis, begin, end, fill));
}

static bool exists(const yoke_model *model, yoke_value value) {
    return value.index >= 0 && value.index <= model->layer_count;
}

/* Each is padded to the whole length, and the two are added; channels have a copy of their own. */
yoke_value yoke_concat_along(yoke_model *model, yoke_value left, yoke_value right, yoke_axis axis) {
    if (axis == YOKE_AXIS_CHANNELS || yoke_builder_stopped(model) || !exists(model, left) ||
        !exists(model, right))
        return yoke_concat(model, left, right);
    yoke_shape first = yoke_value_shape(model, left.index);
    yoke_shape second = yoke_value_shape(model, right.index);
    int before = *length_of(&first, axis), after = *length_of(&second, axis);
    yoke_value begin = yoke_slice(model, left, axis, 0, before + after, 0);
    yoke_value end = yoke_slice(model, right, axis, -before, after, 0);
    return yoke_add(model, begin, end);
}

/* Matrices. */

static yoke_status add_matmul(yoke_model *model, yoke_value left, yoke_value right,
                              bool transpose_left, bool transpose_right) {
    yoke_node *layer = NULL;
    TRY(yoke_builder_layer(model, YOKE_OP_MATMUL, NULL, &layer));
    TRY(yoke_builder_read(model, layer, left));
    TRY(yoke_builder_read(model, layer, right));
    yoke_shape a = yoke_value_shape(model, left.index), b = yoke_value_shape(model, right.index);
    layer->operation.transpose_left = transpose_left;
    layer->operation.transpose_right = transpose_right;
    int rows = a.height, columns = a.sequence ? a.channels : a.width;
    int other_rows = b.height, other_columns = b.sequence ? b.channels : b.width;
    int m = transpose_left ? columns : rows, k = transpose_left ? rows : columns;
    int other_k = transpose_right ? other_columns : other_rows;
    int n = transpose_right ? other_rows : other_columns;
    bool alike =
        !a.flat && !b.flat && a.sequence == b.sequence && (a.sequence || a.channels == b.channels);
    if (!alike || k != other_k)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%s: left is %d x %d x %d%s%s, right is %d x %d x %d%s%s: both must be "
                    "sequences, or images of as many channels, and left's columns right's rows",
                    layer->operation.name, a.channels, a.height, a.width, yoke_shape_kind(a),
                    transpose_left ? ", transposed" : "", b.channels, b.height, b.width,
                    yoke_shape_kind(b), transpose_right ? ", transposed" : "");
    return yoke_builder_shape(layer, a.sequence ? yoke_shape_sequence(m, n)
                                                : yoke_shape_image(a.channels, m, n));
}

yoke_value yoke_matmul(yoke_model *model, yoke_value left, yoke_value right, bool transpose_left,
                       bool transpose_right) {
    if (yoke_builder_stopped(model)) return (yoke_value){YOKE_NONE};
    return yoke_builder_result(model,
                               add_matmul(model, left, right, transpose_left, transpose_right));
}

/* Parameters and constants. */

yoke_status yoke_parameter_add(yoke_model *model, const char *layer,
                               const yoke_parameter_options *options, int *index) {
    const char *name = options->name;
    TRY(yoke_shape_check(options->shape, name));
    if (!(options->std >= 0))
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: a standard deviation of %g, must be at least 0", name,
                    options->std);
    size_t lengths[3];
    yoke_row_axes(yoke_dims_of(options->shape), lengths);
    yoke_tensor tensor = {.ndim = options->shape.flat       ? 1
                                  : options->shape.sequence ? 2
                                                            : 3,
                          .trainable = true,
                          .groups = 1,
                          .fill = {YOKE_FILL_CONSTANT, options->value}};
    for (int i = 0; i < tensor.ndim; i++)
        tensor.shape[i] = (int64_t)lengths[i];
    if (options->std > 0) tensor.fill = (yoke_fill){YOKE_FILL_NORMAL, options->std};
    if (layer == NULL) return yoke_tensor_add(model, name, NULL, &tensor, index);
    return yoke_tensor_add(model, layer, name, &tensor, index);
}

static yoke_status add_parameter(yoke_model *model, const yoke_parameter_options *given) {
    yoke_parameter_options options = {.struct_size = sizeof options};
    TRY(yoke_options_load(&options, sizeof options, given, "yoke_parameter_options"));
    yoke_node *layer = NULL;
    TRY(yoke_builder_layer(model, YOKE_OP_PARAMETER, options.name, &layer));
    layer->tensor_count = 1;
    TRY(yoke_parameter_add(model, NULL, &options, &layer->tensors[0]));
    TRY(yoke_builder_shape(layer, options.shape));
    layer->operation.input = layer->operation.output;
    return YOKE_OK;
}

yoke_value yoke_parameter_value(yoke_model *model, const yoke_parameter_options *options) {
    if (yoke_builder_stopped(model)) return (yoke_value){YOKE_NONE};
    return yoke_builder_result(model, add_parameter(model, options));
}

static yoke_status add_constant(yoke_model *model, yoke_shape shape, const float *values) {
    yoke_node *layer = NULL;
    TRY(yoke_pointer_check(values, "values"));
    TRY(yoke_builder_layer(model, YOKE_OP_CONSTANT, NULL, &layer));
    TRY(yoke_shape_check(shape, layer->operation.name));
    TRY(yoke_builder_shape(layer, shape));
    layer->operation.input = layer->operation.output;
    size_t bytes = yoke_row_elements(layer->operation.output) * sizeof(float);
    float *copy = yoke_malloc(bytes); /* yoke_model_destroy frees it */
    if (copy == NULL) return FAIL_MEMORY(bytes, layer->operation.name);
    memcpy(copy, values, bytes);
    layer->operation.weights = copy;
    return YOKE_OK;
}

yoke_value yoke_constant(yoke_model *model, yoke_shape shape, const float *values) {
    if (yoke_builder_stopped(model)) return (yoke_value){YOKE_NONE};
    return yoke_builder_result(model, add_constant(model, shape, values));
}
