/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of images and of elements as nodes of ONNX. */
#include <stdlib.h>
#include <string.h>

#include "model/onnx/onnx_writer.h"

typedef const char *(*write)(yoke_onnx_writer *writer, const yoke_node *layer, const char *input);

/* A node of this input and up to two more. */
static const char *node_of(yoke_onnx_writer *w, const char *kind, const char *a, const char *b,
                           const char *c, const yoke_onnx_given *attributes) {
    const char *const inputs[] = {a, b, c, NULL};
    return yoke_onnx_emit(w, kind, inputs, attributes);
}

static const char *bias_of(yoke_onnx_writer *w, const yoke_node *layer) {
    return layer->operation.bias ? yoke_onnx_tensor_of(w, layer->tensors[1]) : NULL;
}

/* Windows. */

typedef struct numbers {
    int64_t kernel[2], strides[2], pads[4], dilations[2], more[2];
} numbers;

static numbers numbers_of(const yoke_operation *operation) {
    yoke_taps down = yoke_taps_down(operation), across = yoke_taps_across(operation);
    return (numbers){{down.kernel, across.kernel},
                     {down.stride, across.stride},
                     {down.padding, across.padding, down.padding, across.padding},
                     {down.dilation, across.dilation},
                     {0, 0}};
}

/* A weight over sequences has no height. */
static const char *weight_of(yoke_onnx_writer *w, const yoke_node *layer) {
    static const int64_t height[] = {2};
    const char *name = yoke_onnx_tensor_of(w, layer->tensors[0]);
    if (w->model->tensors[layer->tensors[0]].ndim != 3) return name;
    return node_of(w, "Unsqueeze", name, yoke_onnx_wholes(w, height, 1), NULL, NULL);
}

static const char *convolution(yoke_onnx_writer *w, const yoke_node *layer, const char *input) {
    const numbers n = numbers_of(&layer->operation);
    const yoke_onnx_given attributes[] = {{.name = "kernel_shape", .ints = n.kernel, .count = 2},
                                          {.name = "strides", .ints = n.strides, .count = 2},
                                          {.name = "pads", .ints = n.pads, .count = 4},
                                          {.name = "dilations", .ints = n.dilations, .count = 2},
                                          {.name = "group", .i = layer->operation.groups},
                                          {0}};
    return node_of(w, "Conv", input, weight_of(w, layer), bias_of(w, layer), attributes);
}

/* What the output has beyond the shortest one of these taps. */
static int64_t more_of(yoke_taps taps, int from, int to) {
    return to - ((int64_t)(from - 1) * taps.stride - 2 * taps.padding + yoke_taps_side(taps));
}

static const char *conv_transpose(yoke_onnx_writer *w, const yoke_node *layer, const char *input) {
    const yoke_operation *o = &layer->operation;
    numbers n = numbers_of(o);
    n.more[0] = more_of(yoke_taps_down(o), o->input.height, o->output.height);
    n.more[1] = more_of(yoke_taps_across(o), o->input.width, o->output.width);
    const yoke_onnx_given attributes[] = {{.name = "kernel_shape", .ints = n.kernel, .count = 2},
                                          {.name = "strides", .ints = n.strides, .count = 2},
                                          {.name = "pads", .ints = n.pads, .count = 4},
                                          {.name = "dilations", .ints = n.dilations, .count = 2},
                                          {.name = "output_padding", .ints = n.more, .count = 2},
                                          {.name = "group", .i = o->groups},
                                          {0}};
    return node_of(w, "ConvTranspose", input, weight_of(w, layer), bias_of(w, layer), attributes);
}

static const char *max_pool(yoke_onnx_writer *w, const yoke_node *layer, const char *input) {
    const numbers n = numbers_of(&layer->operation);
    const yoke_onnx_given attributes[] = {{.name = "kernel_shape", .ints = n.kernel, .count = 2},
                                          {.name = "strides", .ints = n.strides, .count = 2},
                                          {.name = "pads", .ints = n.pads, .count = 4},
                                          {0}};
    return node_of(w, "MaxPool", input, NULL, NULL, attributes);
}

static const char *average(yoke_onnx_writer *w, const numbers *n, const char *input) {
    const yoke_onnx_given attributes[] = {{.name = "kernel_shape", .ints = n->kernel, .count = 2},
                                          {.name = "strides", .ints = n->strides, .count = 2},
                                          {.name = "pads", .ints = n->pads, .count = 4},
                                          {.name = "count_include_pad", .i = 1},
                                          {0}};
    return node_of(w, "AveragePool", input, NULL, NULL, attributes);
}

/* [to, from], or its transpose: row `place` averages the inputs of that output. */
static const char *averages(yoke_onnx_writer *w, int to, int from, bool transposed) {
    float *matrix = yoke_onnx_keep(w, (size_t)to * (size_t)from * sizeof *matrix);
    const int64_t sizes[] = {transposed ? from : to, transposed ? to : from};
    for (int place = 0; matrix != NULL && place < to; place++) {
        yoke_window window = yoke_adaptive_window(place, to, from);
        for (int i = window.begin; i < window.end; i++)
            matrix[transposed ? i * to + place : place * from + i] =
                1 / (float)(window.end - window.begin);
    }
    return yoke_onnx_reals(w, NULL, sizes, 2, matrix);
}

static const char *average_pool(yoke_onnx_writer *w, const yoke_node *layer, const char *input) {
    const yoke_operation *o = &layer->operation;
    int height = o->output.height, width = o->output.width;
    numbers n = numbers_of(o);
    if (o->kernel > 0) return average(w, &n, input);
    if (height == 1 && width == 1) return yoke_onnx_one(w, "GlobalAveragePool", input, NULL);
    if (o->input.height % height == 0 && o->input.width % width == 0) {
        n = (numbers){{o->input.height / height, o->input.width / width},
                      {o->input.height / height, o->input.width / width},
                      {0, 0, 0, 0},
                      {1, 1},
                      {0, 0}};
        return average(w, &n, input);
    }
    const char *down =
        yoke_onnx_one(w, "MatMul", averages(w, height, o->input.height, false), input);
    return yoke_onnx_one(w, "MatMul", down, averages(w, width, o->input.width, true));
}

/* Norms. */

static const char *batch_norm(yoke_onnx_writer *w, const yoke_node *layer, const char *input) {
    const yoke_operation *o = &layer->operation;
    const char *const inputs[] = {input,
                                  yoke_onnx_tensor_of(w, layer->tensors[0]),
                                  yoke_onnx_tensor_of(w, layer->tensors[1]),
                                  yoke_onnx_tensor_of(w, layer->buffers[0]),
                                  yoke_onnx_tensor_of(w, layer->buffers[1]),
                                  NULL};
    const yoke_onnx_given attributes[] = {
        {.name = "epsilon", .f = o->epsilon, .is_real = true},
        {.name = "momentum", .f = 1 - o->momentum, .is_real = true},
        {0}};
    return yoke_onnx_emit(w, "BatchNormalization", inputs, attributes);
}

static const char *layer_norm(yoke_onnx_writer *w, const yoke_node *layer, const char *input) {
    const yoke_onnx_given attributes[] = {
        {.name = "axis", .i = -1},
        {.name = "epsilon", .f = layer->operation.epsilon, .is_real = true},
        {0}};
    return node_of(w, "LayerNormalization", input, yoke_onnx_tensor_of(w, layer->tensors[0]),
                   yoke_onnx_tensor_of(w, layer->tensors[1]), attributes);
}

/* Functions of elements. */

static const char *times(yoke_onnx_writer *w, const char *a, double number) {
    return yoke_onnx_one(w, "Mul", a, yoke_onnx_scalar(w, number));
}

static const char *plus(yoke_onnx_writer *w, const char *a, double number) {
    return yoke_onnx_one(w, "Add", a, yoke_onnx_scalar(w, number));
}

static const char *clip(yoke_onnx_writer *w, const char *a, double low, double high) {
    return node_of(w, "Clip", a, yoke_onnx_scalar(w, low), yoke_onnx_scalar(w, high), NULL);
}

static const char *activation(yoke_onnx_writer *w, const yoke_node *layer, const char *x) {
    const char *inner;
    switch (layer->operation.activation) {
    case YOKE_RELU:
        return yoke_onnx_one(w, "Relu", x, NULL);
    case YOKE_RELU6:
        return clip(w, x, 0, 6);
    case YOKE_SILU:
        return yoke_onnx_one(w, "Mul", x, yoke_onnx_one(w, "Sigmoid", x, NULL));
    case YOKE_SIGMOID:
        return yoke_onnx_one(w, "Sigmoid", x, NULL);
    case YOKE_TANH:
        return yoke_onnx_one(w, "Tanh", x, NULL);
    case YOKE_GELU:
        inner = yoke_onnx_one(w, "Erf", times(w, x, 0.70710678118654752440), NULL);
        break;
    case YOKE_GELU_TANH:
        inner = yoke_onnx_one(w, "Mul", yoke_onnx_one(w, "Mul", x, x), x);
        inner = yoke_onnx_one(w, "Add", x, times(w, inner, 0.044715));
        inner = yoke_onnx_one(w, "Tanh", times(w, inner, 0.79788456080286535588), NULL);
        break;
    default:
        return "";
    }
    return yoke_onnx_one(w, "Mul", times(w, x, 0.5), plus(w, inner, 1));
}

/* A comparison as 0 and 1. */
static const char *truth(yoke_onnx_writer *w, const char *kind, const char *a, const char *b) {
    const yoke_onnx_given to_real[] = {{.name = "to", .i = 1}, {0}};
    return node_of(w, "Cast", yoke_onnx_one(w, kind, a, b), NULL, NULL, to_real);
}

static const char *function(yoke_onnx_writer *w, const yoke_term *term, const char *a,
                            const char *b, const char *c) {
    static const char *const plain[YOKE_FUNCTIONS] = {
        [YOKE_FN_ADD] = "Add",    [YOKE_FN_SUBTRACT] = "Sub",     [YOKE_FN_MULTIPLY] = "Mul",
        [YOKE_FN_DIVIDE] = "Div", [YOKE_FN_MAXIMUM] = "Max",      [YOKE_FN_MINIMUM] = "Min",
        [YOKE_FN_NEGATE] = "Neg", [YOKE_FN_ABS] = "Abs",          [YOKE_FN_SQRT] = "Sqrt",
        [YOKE_FN_EXP] = "Exp",    [YOKE_FN_LOG] = "Log",          [YOKE_FN_SIN] = "Sin",
        [YOKE_FN_COS] = "Cos",    [YOKE_FN_ERF] = "Erf",          [YOKE_FN_SIGMOID] = "Sigmoid",
        [YOKE_FN_TANH] = "Tanh",  [YOKE_FN_SOFTPLUS] = "Softplus"};
    double p = (double)term->p, q = (double)term->q;
    const yoke_onnx_given alpha[] = {{.name = "alpha", .f = p, .is_real = true}, {0}};
    const yoke_onnx_given hard[] = {{.name = "alpha", .f = 1.0 / 6, .is_real = true},
                                    {.name = "beta", .f = 0.5, .is_real = true},
                                    {0}};
    if (plain[term->function] != NULL) return yoke_onnx_one(w, plain[term->function], a, b);
    switch ((yoke_function)term->function) {
    case YOKE_FN_GREATER:
        return truth(w, "Greater", a, b);
    case YOKE_FN_EQUAL:
        return truth(w, "Equal", a, b);
    case YOKE_FN_WHERE:
        return node_of(
            w, "Where",
            yoke_onnx_one(w, "Not", yoke_onnx_one(w, "Equal", a, yoke_onnx_scalar(w, 0)), NULL), b,
            c, NULL);
    case YOKE_FN_SCALE:
        return times(w, a, p);
    case YOKE_FN_OFFSET:
        return plus(w, a, p);
    case YOKE_FN_SQUARE:
        return yoke_onnx_one(w, "Mul", a, a);
    case YOKE_FN_POWER:
        return yoke_onnx_one(w, "Pow", a, yoke_onnx_scalar(w, p));
    case YOKE_FN_RSQRT:
        return yoke_onnx_one(w, "Reciprocal", yoke_onnx_one(w, "Sqrt", a, NULL), NULL);
    case YOKE_FN_CLAMP:
        return clip(w, a, p, q);
    case YOKE_FN_LEAKY_RELU:
        return node_of(w, "LeakyRelu", a, NULL, NULL, alpha);
    case YOKE_FN_ELU:
        return node_of(w, "Elu", a, NULL, NULL, alpha);
    case YOKE_FN_HARD_SIGMOID:
        return node_of(w, "HardSigmoid", a, NULL, NULL, hard);
    default:
        return "";
    }
}

/* A number for each row goes with every shape. */
static const char *beside(yoke_onnx_writer *w, const yoke_node *layer, int k) {
    const char *name = yoke_onnx_input_of(w, layer, k);
    yoke_shape shape = yoke_value_shape(w->model, layer->inputs[k]);
    if (!shape.flat || shape.channels != 1 || layer->shape.flat) return name;
    static const int64_t ones[] = {0, 1, 1, 1};
    return yoke_onnx_to_shape(w, name, ones, layer->shape.sequence ? 3 : 4);
}

static const char *expression(yoke_onnx_writer *w, const yoke_node *layer, const char *input) {
    const yoke_expression *e = &layer->operation.expression;
    const yoke_term *term = &e->terms[0];
    int count = yoke_function_arguments((yoke_function)term->function);
    const char *arguments[3] = {input, NULL, NULL};
    for (int k = 0; k < count; k++)
        arguments[k] = beside(w, layer, term->arguments[k]);
    return function(w, term, arguments[0], arguments[1], arguments[2]);
}

static const char *sum(yoke_onnx_writer *w, const yoke_node *layer, const char *input) {
    return yoke_onnx_one(w, "Add", input, yoke_onnx_input_of(w, layer, 1));
}

static const char *multiplied(yoke_onnx_writer *w, const yoke_node *layer, const char *input) {
    return yoke_onnx_one(w, "Mul", input, yoke_onnx_input_of(w, layer, 1));
}

static const char *same(yoke_onnx_writer *w, const yoke_node *layer, const char *input) {
    (void)layer;
    return yoke_onnx_one(w, "Identity", input, NULL);
}

static const char *reduction(yoke_onnx_writer *w, const yoke_node *layer, const char *input) {
    static const char *const kinds[] = {"ReduceSum", "ReduceMean", "ReduceMax"};
    int64_t from[3], to[3], axes[3];
    int rank = yoke_onnx_row_sizes(yoke_value_shape(w->model, layer->inputs[0]), from), count = 0;
    yoke_onnx_row_sizes(layer->shape, to);
    for (int i = 0; i < rank; i++)
        if (from[i] != to[i]) axes[count++] = i + 1;
    if (count == 0) return same(w, layer, input);
    yoke_reduce_kind kind = layer->operation.reduction;
    if (kind == YOKE_REDUCE_SUM) /* its axes are an input from operator set 13 on */
        return yoke_onnx_one(w, kinds[kind], input, yoke_onnx_wholes(w, axes, count));
    const yoke_onnx_given attributes[] = {{.name = "axes", .ints = axes, .count = count}, {0}};
    return node_of(w, kinds[kind], input, NULL, NULL, attributes);
}

/* Products. */

static const char *linear(yoke_onnx_writer *w, const yoke_node *layer, const char *input) {
    static const int64_t turned[] = {1, 0};
    const char *weight = yoke_onnx_tensor_of(w, layer->tensors[0]), *bias = bias_of(w, layer);
    bool transposed = layer->operation.transposed;
    if (layer->shape.flat) {
        const yoke_onnx_given attributes[] = {{.name = "transB", .i = !transposed}, {0}};
        return node_of(w, "Gemm", input, weight, bias, attributes);
    }
    if (!transposed) weight = yoke_onnx_turn(w, weight, turned, 2);
    const char *product = yoke_onnx_one(w, "MatMul", input, weight);
    return bias != NULL ? yoke_onnx_one(w, "Add", product, bias) : product;
}

static const char *matmul(yoke_onnx_writer *w, const yoke_node *layer, const char *input) {
    static const int64_t images[] = {0, 1, 3, 2}, sequences[] = {0, 2, 1};
    int rank = layer->shape.sequence ? 3 : 4;
    const char *other = yoke_onnx_input_of(w, layer, 1);
    const int64_t *order = rank == 3 ? sequences : images;
    if (layer->operation.transpose_left) input = yoke_onnx_turn(w, input, order, rank);
    if (layer->operation.transpose_right) other = yoke_onnx_turn(w, other, order, rank);
    return yoke_onnx_one(w, "MatMul", input, other);
}

static const char *softmax(yoke_onnx_writer *w, const yoke_node *layer, const char *input) {
    const yoke_onnx_given attributes[] = {{.name = "axis", .i = -1}, {0}};
    (void)layer;
    return node_of(w, "Softmax", input, NULL, NULL, attributes);
}

static const write rows[] = {
    [YOKE_OP_CONV2D] = convolution,
    [YOKE_OP_CONV_TRANSPOSE2D] = conv_transpose,
    [YOKE_OP_LINEAR] = linear,
    [YOKE_OP_BATCH_NORM] = batch_norm,
    [YOKE_OP_LAYER_NORM] = layer_norm,
    [YOKE_OP_ACTIVATION] = activation,
    [YOKE_OP_ADD] = sum,
    [YOKE_OP_MULTIPLY] = multiplied,
    [YOKE_OP_SOFTMAX] = softmax,
    [YOKE_OP_MAX_POOL] = max_pool,
    [YOKE_OP_AVERAGE_POOL] = average_pool,
    [YOKE_OP_DROPOUT] = same,
    [YOKE_OP_EXPRESSION] = expression,
    [YOKE_OP_REDUCE] = reduction,
    [YOKE_OP_MATMUL] = matmul,
};

const char *yoke_onnx_write_layer(yoke_onnx_writer *writer, const yoke_node *layer) {
    size_t kind = (size_t)layer->operation.kind;
    if (kind >= sizeof rows / sizeof *rows || rows[kind] == NULL) return NULL;
    return rows[kind](writer, layer, yoke_onnx_input_of(writer, layer, 0));
}
