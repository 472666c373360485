/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs of elementary operations, built from bytes: whatever the builder takes, an engine trains a
 * step with, and what it refuses has a text. */
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "model/graph.h"
#include "yoke/yoke.h"

enum { VALUES = 24, ROWS = 3, LONGEST = 512 };

typedef struct reader {
    const uint8_t *at, *end;
} reader;

static int next(reader *bytes, int below) {
    return bytes->at < bytes->end && below > 0 ? *bytes->at++ % below : 0;
}

/* One in 32: whatever comes, most of which the builder refuses. */
static bool next_is_wild(reader *bytes) {
    return next(bytes, 32) == 31;
}

/* The values so far, and whether an operation reads them. */
typedef struct graph {
    yoke_model *model;
    yoke_value values[VALUES];
    bool read[VALUES];
    int count;
    bool recomputes; /* between the two ends of an activation checkpoint */
} graph;

static yoke_value next_value(reader *bytes, graph *made) {
    int index = next(bytes, made->count);
    if (next_is_wild(bytes)) return (yoke_value){next(bytes, 256) - 2};
    made->read[index] = true;
    return made->values[index];
}

static yoke_shape shape_of(const graph *made, yoke_value value) {
    bool exists = value.index >= 0 && value.index <= made->model->layer_count;
    return exists ? yoke_value_shape(made->model, value.index) : (yoke_shape){0};
}

/* A value of the same shape as `value`: a recent one, or itself. */
static yoke_value partner_of(reader *bytes, graph *made, yoke_value value) {
    yoke_shape shape = shape_of(made, value);
    int first = next(bytes, made->count);
    for (int k = 0; k < made->count; k++) {
        int index = (first + k) % made->count;
        yoke_shape other = shape_of(made, made->values[index]);
        if (memcmp(&shape, &other, sizeof shape) != 0) continue;
        made->read[index] = true;
        return made->values[index];
    }
    return value;
}

static yoke_shape next_shape(reader *bytes) {
    int least = next_is_wild(bytes) ? 0 : 1;
    int a = least + next(bytes, 4), b = least + next(bytes, 4), c = least + next(bytes, 4);
    int kind = next(bytes, 3);
    return kind == 0   ? yoke_shape_vector(a)
           : kind == 1 ? yoke_shape_sequence(a, b)
                       : yoke_shape_image(a, b, c);
}

/* A divisor of `count`. */
static int next_divisor(reader *bytes, int count) {
    int wanted = 1 + next(bytes, 12);
    while (count % wanted != 0)
        wanted--;
    return wanted;
}

static yoke_shape shape_with(reader *bytes, int elements) {
    if (next_is_wild(bytes) || elements < 1) return next_shape(bytes);
    int a = next_divisor(bytes, elements), b = next_divisor(bytes, elements / a);
    int kind = next(bytes, 3);
    return kind == 0   ? yoke_shape_vector(elements)
           : kind == 1 ? yoke_shape_sequence(a, elements / a)
                       : yoke_shape_image(a, b, elements / a / b);
}

static yoke_axis next_axis(reader *bytes, yoke_shape shape) {
    int count = shape.flat ? 1 : shape.sequence ? 2 : 3;
    return (yoke_axis)(1 << (next_is_wild(bytes) ? next(bytes, 4) : next(bytes, count)));
}

static yoke_value add_parameter(graph *made, reader *bytes, yoke_shape shape) {
    char name[8] = {'p', (char)('a' + made->count), '\0'};
    yoke_parameter_options options = YOKE_PARAMETER_OPTIONS_INIT;
    options.name = name;
    options.shape = shape;
    options.value = next(bytes, 5) - 2;
    options.std = next_is_wild(bytes) ? -1 : next(bytes, 2);
    return yoke_parameter_value(made->model, &options);
}

static yoke_value add_function(graph *made, reader *bytes, yoke_value a) {
    yoke_function function = (yoke_function)next(bytes, YOKE_FUNCTIONS);
    yoke_value arguments[YOKE_FUNCTION_ARGUMENTS] = {a};
    if (next_is_wild(bytes)) function = YOKE_FUNCTIONS;
    for (int k = 1; k < yoke_function_arguments(function); k++)
        arguments[k] = next_is_wild(bytes) ? next_value(bytes, made) : partner_of(bytes, made, a);
    return yoke_elementary(made->model, function, arguments, next(bytes, 9) * 0.5 - 2, 1);
}

static yoke_value add_slice(graph *made, reader *bytes, yoke_value a, yoke_axis axis) {
    yoke_shape shape = shape_of(made, a);
    int length = axis == YOKE_AXIS_CHANNELS ? shape.channels
                 : axis == YOKE_AXIS_HEIGHT ? shape.height
                                            : shape.width;
    int begin = next(bytes, length + 2) - 2, end = begin + 1 + next(bytes, length + 2);
    return yoke_slice(made->model, a, axis, begin, end, 0.5);
}

static yoke_value add_matmul(graph *made, reader *bytes, yoke_value a) {
    yoke_shape shape = shape_of(made, a);
    bool transpose = next(bytes, 2) == 1;
    int columns = shape.sequence ? shape.channels : shape.width;
    int inner = transpose ? shape.height : columns, n = 1 + next(bytes, 4);
    yoke_shape right =
        shape.sequence ? yoke_shape_sequence(inner, n) : yoke_shape_image(shape.channels, inner, n);
    return yoke_matmul(made->model, a, add_parameter(made, bytes, right), transpose, false);
}

/* A small number; rarely one that fits nowhere. */
static int next_number(reader *bytes, int below) {
    return next_is_wild(bytes) ? next(bytes, 3) - 2 : next(bytes, below);
}

/* Layers with options. */
static yoke_value add_layer(graph *made, reader *bytes, yoke_value a) {
    char name[8] = {'l', (char)('a' + made->count), '\0'};
    yoke_shape shape = shape_of(made, a);
    bool image = !shape.flat && !shape.sequence;
    int kind = next(bytes, 6);
    yoke_recurrent_options recurrent = YOKE_RECURRENT_OPTIONS_INIT;
    yoke_conv2d_options conv = YOKE_CONV2D_OPTIONS_INIT;
    yoke_conv1d_options line = YOKE_CONV1D_OPTIONS_INIT;
    yoke_conv_transpose2d_options transposed = YOKE_CONV_TRANSPOSE2D_OPTIONS_INIT;
    recurrent.name = conv.name = line.name = transposed.name = name;
    recurrent.hidden = 1 + next_number(bytes, 4);
    recurrent.layers = 1 + next(bytes, 2);
    recurrent.bidirectional = next(bytes, 2) == 1;
    recurrent.no_bias = next(bytes, 2) == 1;
    conv.out_channels = line.out_channels = transposed.out_channels = 1 + next_number(bytes, 4);
    conv.kernel = line.kernel = transposed.kernel = 1 + next_number(bytes, 3);
    conv.stride = line.stride = transposed.stride = 1 + next_number(bytes, 2);
    conv.padding = line.padding = transposed.padding = next_number(bytes, 3);
    conv.kernel_width = transposed.kernel_width = next_number(bytes, 3);
    conv.dilation = line.dilation = transposed.dilation = 1 + next(bytes, 2);
    conv.groups = line.groups = transposed.groups = next_divisor(bytes, conv.out_channels);
    if (kind == 0) return yoke_pixel_shuffle(made->model, a, 1 + next_number(bytes, 2));
    if (kind == 1) return yoke_pixel_unshuffle(made->model, a, 1 + next_number(bytes, 2));
    if (image && kind < 4) return yoke_conv2d(made->model, a, &conv);
    if (image) return yoke_conv_transpose2d(made->model, a, &transposed);
    if (kind < 4) return yoke_conv1d(made->model, a, &line);
    return kind == 4 ? yoke_lstm(made->model, a, &recurrent) : yoke_gru(made->model, a, &recurrent);
}

/* An activation checkpoint begins, or ends. */
static void turn_checkpoint(graph *made, reader *bytes) {
    if (made->recomputes || next_is_wild(bytes))
        yoke_activation_checkpoint_end(made->model);
    else
        yoke_activation_checkpoint_begin(made->model);
    made->recomputes = !made->recomputes;
}

static yoke_value add_operation(graph *made, reader *bytes) {
    int kind = next(bytes, 14);
    if (kind == 13) turn_checkpoint(made, bytes);
    if (kind == 10) return add_parameter(made, bytes, next_shape(bytes));
    yoke_value a = next_value(bytes, made);
    yoke_shape shape = shape_of(made, a);
    yoke_axis axis = next_axis(bytes, shape);
    bool image = !shape.flat && !shape.sequence;
    int elements = shape.channels * shape.height * shape.width;
    static const float table[LONGEST];
    if (kind == 12) return add_layer(made, bytes, a);
    if (kind == 4) return yoke_reshape(made->model, a, shape_with(bytes, elements));
    if (kind == 5 && !shape.flat)
        return yoke_transpose(made->model, a, axis, next_axis(bytes, shape));
    if (kind == 6) return add_slice(made, bytes, a, axis);
    if (kind == 7) return yoke_concat_along(made->model, a, partner_of(bytes, made, a), axis);
    if (kind == 8 && !shape.flat) return add_matmul(made, bytes, a);
    if (kind == 9 && image)
        return yoke_upsample(made->model, a, 1 + next(bytes, 6), 1 + next(bytes, 6),
                             (yoke_upsample_mode)next(bytes, 3));
    if (kind == 11 && elements <= LONGEST)
        return yoke_add(made->model, a, yoke_constant(made->model, shape, table));
    if (kind == 3) return yoke_reduce_axes(made->model, a, (yoke_reduce_kind)next(bytes, 3), axis);
    return add_function(made, bytes, a);
}

/* One step of two devices. */
static void train(const yoke_model *model) {
    yoke_devices *devices = NULL;
    yoke_data_parallel *parallel = NULL;
    yoke_shape in = yoke_model_input_shape(model), out = yoke_model_output_shape(model);
    size_t inputs = (size_t)ROWS * (size_t)(in.channels * in.height * in.width);
    size_t outputs = (size_t)ROWS * (size_t)(out.channels * out.height * out.width);
    float *rows = calloc(inputs + outputs, sizeof *rows);
    yoke_devices_options open = {
        .struct_size = sizeof open, .list = "cpu,cpu", .threads = 1, .unbound = true};
    yoke_optimizer_options sgd = {
        .struct_size = sizeof sgd, .kind = YOKE_SGD, .learning_rate = 0.01};
    yoke_data_parallel_options options = YOKE_DATA_PARALLEL_OPTIONS_INIT;
    options.batch = ROWS;
    if (rows == NULL) abort();
    for (size_t i = 0; i < inputs; i++)
        rows[i] = (float)(i % 7) * 0.25f - 0.75f;
    if (yoke_devices_open(&devices, &open) != YOKE_OK) abort();
    const yoke_batch batch = {
        .struct_size = sizeof batch, .rows = ROWS, .inputs = rows, .targets = rows + inputs};
    if (yoke_data_parallel_create(&parallel, model, devices, &sgd, &options) == YOKE_OK) {
        yoke_status status = yoke_data_parallel_step(parallel, &batch, 0.01, NULL);
        if (status != YOKE_OK && status != YOKE_ERROR_NUMERIC) abort();
    } else if (yoke_last_error()[0] == '\0') {
        abort();
    }
    yoke_data_parallel_destroy(parallel);
    yoke_devices_close(devices);
    free(rows);
}

/* What nobody reads is an output, or the model is refused; and it has a parameter. */
static yoke_value finish_values(graph *made, reader *bytes) {
    yoke_value last = made->values[made->count - 1];
    for (int i = 0; i < made->count - 1; i++) {
        char name[8];
        snprintf(name, sizeof name, "o%d", i);
        if (!made->read[i]) yoke_model_add_output(made->model, name, made->values[i]);
    }
    yoke_value scale = add_parameter(made, bytes, yoke_shape_vector(1));
    return yoke_flatten(made->model, yoke_multiply(made->model, last, scale));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    reader bytes = {data, data + size};
    graph made = {.count = 1};
    yoke_loss_options loss = YOKE_LOSS_OPTIONS_INIT;
    loss.kind = next(&bytes, 2) == 0 ? YOKE_LOSS_MSE : YOKE_LOSS_OUTPUT;
    if (yoke_model_create(&made.model, "graph", next_shape(&bytes)) != YOKE_OK) return 0;
    made.values[0] = yoke_model_input(made.model);
    while (bytes.at < bytes.end && made.count < VALUES && !yoke_builder_stopped(made.model)) {
        made.values[made.count] = add_operation(&made, &bytes);
        made.count++;
    }
    if (made.recomputes) yoke_activation_checkpoint_end(made.model);
    yoke_value output = finish_values(&made, &bytes);
    if (yoke_model_finish(made.model, output, &loss) == YOKE_OK)
        train(made.model);
    else if (yoke_last_error()[0] == '\0')
        abort();
    yoke_model_destroy(made.model);
    return 0;
}
