/* SPDX-License-Identifier: Apache-2.0 */
/* Operators that are layers with parameters: convolutions and norms. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/onnx/onnx_reader.h"
#include "yoke/composed.h"
#include "yoke/convolution.h"
#include "yoke/volume.h"

/* The layer that was added last. */
static const yoke_node *newest(const yoke_onnx_call *call) {
    return &call->model->layers[call->model->layer_count - 1];
}

/* Windows. */

#define SPACES 3 /* directions of a window, at most */
typedef struct window {
    int spaces;
    int64_t kernel[SPACES], stride[SPACES], dilation[SPACES], before[SPACES], after[SPACES];
    int64_t group;
} window;

static yoke_status read_line(yoke_onnx_call *call, const char *name, int count, int64_t otherwise,
                             int64_t least, int64_t *numbers) {
    yoke_onnx_sizes given;
    TRY(yoke_onnx_ints(call, name, &given));
    if (given.rank >= 0 && given.rank != count)
        return FAIL(YOKE_ERROR_DATA, "its %s are %d numbers, expected %d", name, given.rank, count);
    for (int i = 0; i < count; i++) {
        numbers[i] = given.rank < 0 ? otherwise : given.at[i];
        if (numbers[i] < least || numbers[i] > 1 << 20)
            return FAIL(YOKE_ERROR_DATA, "its %s have %lld", name, (long long)numbers[i]);
    }
    return YOKE_OK;
}

/* sizes: of the input, [batch, channels, ...]. */
static yoke_status read_window(yoke_onnx_call *call, const yoke_onnx_sizes *sizes, window *w) {
    int64_t pads[2 * SPACES];
    char text[32];
    const char *mode = yoke_onnx_text(call, "auto_pad", "NOTSET", text);
    TRY(read_line(call, "strides", w->spaces, 1, 1, w->stride));
    TRY(read_line(call, "dilations", w->spaces, 1, 1, w->dilation));
    TRY(read_line(call, "pads", 2 * w->spaces, 0, 0, pads));
    w->group = yoke_onnx_int(call, "group", 1);
    if (w->group < 1 || w->group > 1 << 24)
        return FAIL(YOKE_ERROR_DATA, "%lld groups", (long long)w->group);
    bool same = strncmp(mode, "SAME_", 5) == 0;
    for (int i = 0; i < w->spaces; i++) {
        int64_t reach = (w->kernel[i] - 1) * w->dilation[i] + 1, size = sizes->at[2 + i];
        int64_t outputs = (size + w->stride[i] - 1) / w->stride[i];
        int64_t missing = (outputs - 1) * w->stride[i] + reach - size;
        if (missing < 0) missing = 0;
        int64_t more = strcmp(mode, "SAME_LOWER") == 0 ? (missing + 1) / 2 : missing / 2;
        w->before[i] = same ? more : strcmp(mode, "VALID") == 0 ? 0 : pads[i];
        w->after[i] = same ? missing - more : strcmp(mode, "VALID") == 0 ? 0 : pads[w->spaces + i];
    }
    return YOKE_OK;
}

/* An input whose padding differs on two sides, padded; then the window has none. */
static yoke_status pad_apart(yoke_onnx_call *call, window *w, yoke_onnx_value *value) {
    bool apart = false;
    for (int i = 0; i < w->spaces; i++)
        apart = apart || w->before[i] != w->after[i];
    for (int i = 0; apart && i < w->spaces; i++) {
        if (w->before[i] > 0 || w->after[i] > 0)
            TRY(yoke_onnx_part(call, value, 2 + i, -w->before[i],
                               value->sizes.at[2 + i] + w->after[i], 0, value));
        w->before[i] = w->after[i] = 0;
    }
    return YOKE_OK;
}

static yoke_status need_images(const yoke_onnx_value *value, int spaces) {
    if (value->sizes.rank == 2 + spaces && value->batch.at == 0 &&
        value->batch.before * value->batch.after == 1)
        return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "it reads a tensor of %d dimensions with the batch in %d, expected [batch, "
                "channels, ...] of %d",
                value->sizes.rank, value->batch.at, 2 + spaces);
}

/* The result's sizes, by what the model made of it. */
static yoke_status image_result(yoke_onnx_call *call, yoke_value node, int spaces) {
    TRY(yoke_onnx_check(call));
    yoke_shape shape = yoke_model_value_shape(call->model, node);
    yoke_onnx_sizes sizes = {2 + spaces, {call->in[0]->sizes.at[0], shape.channels}};
    if (spaces == 1)
        sizes.at[2] = shape.width;
    else {
        sizes.at[2] = shape.height;
        sizes.at[3] = shape.width;
    }
    return yoke_onnx_result(call, 0, &sizes, call->in[0]->batch, node);
}

/* Convolutions. */

/* Weight and bias of the layer that was added last. */
static yoke_status own_tensors(yoke_onnx_call *call, const char *name,
                               const yoke_onnx_value *weight, const yoke_onnx_value *bias) {
    TRY(yoke_onnx_check(call));
    const yoke_node *layer = newest(call);
    TRY(yoke_onnx_own(call, layer->tensors[0], weight, name));
    if (bias != NULL) TRY(yoke_onnx_own(call, newest(call)->tensors[1], bias, name));
    return YOKE_OK;
}

/* Reads weight and bias: both parameters, or an earlier layer's. *shared: that layer's name. */
static yoke_status weight_and_bias(yoke_onnx_call *call, char name[YOKE_ONNX_NAME_BYTES],
                                   const yoke_onnx_value **bias, const char **shared) {
    yoke_onnx_value *weight = call->in[1];
    *bias = yoke_onnx_has(call, 2) ? call->in[2] : NULL;
    TRY(yoke_onnx_apart(call, weight, "weight"));
    if (*bias != NULL) TRY(yoke_onnx_apart(call, call->in[2], "bias"));
    TRY(yoke_onnx_is_layer_parameter(call, weight, "weight"));
    if (weight->transposed) return FAIL(YOKE_ERROR_ARGUMENT, "its weight is transposed");
    if (*bias != NULL) TRY(yoke_onnx_is_layer_parameter(call, *bias, "bias"));
    *shared = call->reader->parameters[weight->parameter].layer;
    return yoke_onnx_layer_name(call, weight, ".weight", name);
}

/* A weight's sizes beside the input's channels: [out, in / groups, ...]. */
static yoke_status check_weight(const yoke_onnx_call *call, const window *w, int64_t in) {
    const yoke_onnx_sizes *sizes = &call->in[1]->sizes;
    if (sizes->rank == 2 + w->spaces && in * w->group == call->in[0]->sizes.at[1]) return YOKE_OK;
    return FAIL(YOKE_ERROR_DATA, "a weight of %d dimensions for %lld channels in %lld groups",
                sizes->rank, (long long)call->in[0]->sizes.at[1], (long long)w->group);
}

static yoke_status conv3d(yoke_onnx_call *call, const window *w, yoke_onnx_value *input,
                          yoke_conv2d_options *flat) {
    yoke_conv3d_options options = YOKE_CONV3D_OPTIONS_INIT;
    const yoke_onnx_value *bias = yoke_onnx_has(call, 2) ? call->in[2] : NULL;
    yoke_value node;
    yoke_onnx_sizes sizes = input->sizes, out = {5, {sizes.at[0], flat->out_channels}};
    options.name = flat->name;
    options.no_bias = flat->no_bias;
    options.shared_with = flat->shared_with;
    options.depth = (int)sizes.at[2];
    options.out_channels = flat->out_channels;
    for (int i = 0; i < 3; i++) {
        if (w->dilation[i] != 1 || w->group != 1)
            return FAIL(YOKE_ERROR_ARGUMENT, "a convolution over volumes with groups or dilation");
        options.kernel[i] = (int)w->kernel[i];
        options.stride[i] = (int)w->stride[i];
        options.padding[i] = (int)w->before[i];
        out.at[2 + i] = (sizes.at[2 + i] + 2 * w->before[i] - w->kernel[i]) / w->stride[i] + 1;
    }
    TRY(yoke_onnx_node(call, input, &node));
    node = yoke_onnx_image(call, node, (size_t)sizes.at[1], (size_t)(sizes.at[2] * sizes.at[3]),
                           (size_t)sizes.at[4]);
    int before = call->model->tensor_count;
    node = yoke_conv3d(call->model, node, &options);
    TRY(yoke_onnx_check(call));
    if (options.shared_with == NULL) {
        TRY(yoke_onnx_own(call, before, call->in[1], options.name));
        if (bias != NULL) TRY(yoke_onnx_own(call, before + 1, bias, options.name));
    }
    return yoke_onnx_result(call, 0, &out, input->batch, node);
}

static yoke_status convolution(yoke_onnx_call *call) {
    TRY(yoke_onnx_need(call, 2));
    yoke_onnx_value input = *call->in[0];
    const yoke_onnx_value *bias;
    char name[YOKE_ONNX_NAME_BYTES];
    yoke_conv2d_options options = YOKE_CONV2D_OPTIONS_INIT;
    const yoke_onnx_sizes *sizes = &call->in[1]->sizes;
    window w = {.spaces = sizes->rank - 2};
    if (w.spaces < 1 || w.spaces > SPACES)
        return FAIL(YOKE_ERROR_ARGUMENT, "a weight of %d dimensions", sizes->rank);
    TRY(need_images(&input, w.spaces));
    for (int i = 0; i < w.spaces; i++)
        w.kernel[i] = sizes->at[2 + i];
    TRY(read_window(call, &input.sizes, &w));
    TRY(check_weight(call, &w, sizes->at[1]));
    TRY(pad_apart(call, &w, &input));
    TRY(weight_and_bias(call, name, &bias, &options.shared_with));
    options.name = name;
    options.out_channels = (int)sizes->at[0];
    options.groups = (int)w.group;
    options.no_bias = bias == NULL;
    if (w.spaces == 3) return conv3d(call, &w, &input, &options);
    int last = w.spaces - 1;
    options.kernel = w.spaces == 1 ? 1 : (int)w.kernel[0];
    options.stride = w.spaces == 1 ? 1 : (int)w.stride[0];
    options.padding = w.spaces == 1 ? 0 : (int)w.before[0];
    options.dilation = w.spaces == 1 ? 1 : (int)w.dilation[0];
    options.kernel_width = (int)w.kernel[last];
    options.stride_width = (int)w.stride[last];
    options.padding_width = (int)w.before[last];
    options.dilation_width = (int)w.dilation[last];
    yoke_value node;
    yoke_onnx_sizes row = yoke_onnx_row(&input.sizes, input.batch);
    TRY(yoke_onnx_as(call, &input, yoke_onnx_natural(&row), &node));
    if (w.spaces == 1) /* a sequence is an image of one line */
        node = yoke_onnx_image(call, node, (size_t)input.sizes.at[1], 1, (size_t)input.sizes.at[2]);
    node = yoke_conv2d(call->model, node, &options);
    TRY(yoke_onnx_check(call));
    if (w.spaces == 1 && options.shared_with == NULL) { /* as yoke_conv1d has it */
        yoke_tensor *weight = &call->model->tensors[newest(call)->tensors[0]];
        weight->line = true;
        weight->ndim = 3;
        weight->shape[2] = weight->shape[3];
    }
    if (options.shared_with == NULL) TRY(own_tensors(call, name, call->in[1], bias));
    return image_result(call, node, w.spaces);
}

static yoke_status conv_transpose(yoke_onnx_call *call) {
    TRY(yoke_onnx_need(call, 2));
    yoke_onnx_value *input = call->in[0];
    const yoke_onnx_value *bias;
    char name[YOKE_ONNX_NAME_BYTES], text[32];
    int64_t more[2] = {0};
    yoke_conv_transpose2d_options options = YOKE_CONV_TRANSPOSE2D_OPTIONS_INIT;
    const yoke_onnx_sizes *sizes = &call->in[1]->sizes;
    yoke_onnx_sizes shape;
    window w = {.spaces = 2, .kernel = {sizes->at[2], sizes->at[3]}};
    TRY(need_images(input, 2));
    if (sizes->rank != 4 || sizes->at[0] != input->sizes.at[1])
        return FAIL(YOKE_ERROR_DATA, "its weight does not fit %lld channels",
                    (long long)input->sizes.at[1]);
    TRY(read_window(call, &input->sizes, &w));
    TRY(read_line(call, "output_padding", 2, 0, 0, more));
    TRY(yoke_onnx_ints(call, "output_shape", &shape));
    bool set = strncmp(yoke_onnx_text(call, "auto_pad", "NOTSET", text), "SAME_", 5) != 0;
    if (shape.rank > 0 || !set || w.before[0] != w.after[0] || w.before[1] != w.after[1])
        return FAIL(YOKE_ERROR_ARGUMENT, "its padding differs from side to side");
    TRY(weight_and_bias(call, name, &bias, &options.shared_with));
    options.name = name;
    options.out_channels = (int)(sizes->at[1] * w.group);
    options.groups = (int)w.group;
    options.no_bias = bias == NULL;
    options.kernel = (int)w.kernel[0];
    options.stride = (int)w.stride[0];
    options.padding = (int)w.before[0];
    options.dilation = (int)w.dilation[0];
    options.output_padding = (int)more[0];
    options.kernel_width = (int)w.kernel[1];
    options.stride_width = (int)w.stride[1];
    options.padding_width = (int)w.before[1];
    options.dilation_width = (int)w.dilation[1];
    options.output_padding_width = (int)more[1];
    yoke_value node;
    yoke_onnx_sizes row = yoke_onnx_row(&input->sizes, input->batch);
    TRY(yoke_onnx_as(call, input, yoke_onnx_natural(&row), &node));
    node = yoke_conv_transpose2d(call->model, node, &options);
    if (options.shared_with == NULL) TRY(own_tensors(call, name, call->in[1], bias));
    return image_result(call, node, 2);
}

/* Norms. */

static yoke_status batch_norm(yoke_onnx_call *call) {
    TRY(yoke_onnx_need(call, 5));
    yoke_onnx_value *input = call->in[0];
    char name[YOKE_ONNX_NAME_BYTES];
    yoke_batch_norm_options options = YOKE_BATCH_NORM_OPTIONS_INIT;
    yoke_value node;
    int axis;
    static const char *const words[] = {"", "weight", "bias", "running_mean", "running_var"};
    for (int i = 1; i < 5; i++) {
        TRY(yoke_onnx_apart(call, call->in[i], words[i]));
        TRY(yoke_onnx_is_layer_parameter(call, call->in[i], words[i]));
    }
    if (input->sizes.rank < 2) return FAIL(YOKE_ERROR_ARGUMENT, "it reads a vector");
    TRY(yoke_onnx_row_axis(input, 1, &axis));
    yoke_onnx_sizes row = yoke_onnx_row(&input->sizes, input->batch);
    if (axis != 0) return FAIL(YOKE_ERROR_ARGUMENT, "channels are no first dimension of a row");
    TRY(yoke_onnx_layer_name(call, call->in[3], ".running_mean", name));
    options.name = name;
    options.epsilon = yoke_onnx_real(call, "epsilon", 1e-5);
    options.momentum = 1 - yoke_onnx_real(call, "momentum", 0.9);
    TRY(yoke_onnx_node(call, input, &node));
    if (row.rank > 1)
        node =
            yoke_onnx_image(call, node, (size_t)row.at[0], yoke_onnx_count(&row, 1, row.rank - 1),
                            (size_t)row.at[row.rank - 1]);
    node = yoke_batch_norm(call->model, node, &options);
    TRY(yoke_onnx_check(call));
    for (int i = 0; i < 4; i++) {
        const yoke_node *layer = newest(call);
        int tensor = i < 2 ? layer->tensors[i] : layer->buffers[i - 2];
        TRY(yoke_onnx_own(call, tensor, call->in[1 + i], name));
    }
    return yoke_onnx_result(call, 0, &input->sizes, input->batch, node);
}

/* x as the product with a scale and the sum with a bias, where they are there; of these sizes. */
static yoke_status scaled(yoke_onnx_call *call, yoke_onnx_value made, yoke_onnx_value *scale,
                          yoke_onnx_value *bias) {
    yoke_onnx_value *factors[] = {&made, scale}, *terms[] = {&made, bias};
    if (scale != NULL) TRY(yoke_onnx_combine(call, YOKE_FN_MULTIPLY, factors, 2, &made));
    if (bias != NULL) TRY(yoke_onnx_combine(call, YOKE_FN_ADD, terms, 2, &made));
    if (call->out[0] != NULL) *call->out[0] = made;
    return YOKE_OK;
}

/* Of a row [positions, features]: (x - mean) / sqrt(variance + epsilon), or without the mean. */
static yoke_value normalized(yoke_onnx_call *call, yoke_value node, double epsilon, bool centers) {
    yoke_model *model = call->model;
    if (centers)
        node = yoke_subtract(model, node,
                             yoke_reduce_axes(model, node, YOKE_REDUCE_MEAN, YOKE_AXIS_CHANNELS));
    yoke_value square = yoke_map(model, YOKE_FN_SQUARE, node);
    yoke_value spread = yoke_reduce_axes(model, square, YOKE_REDUCE_MEAN, YOKE_AXIS_CHANNELS);
    spread = yoke_map_with(model, YOKE_FN_OFFSET, spread, epsilon, 0);
    return yoke_multiply(model, node, yoke_map(model, YOKE_FN_RSQRT, spread));
}

static bool trains(const yoke_onnx_call *call, int index) {
    return yoke_onnx_has(call, index) && call->in[index]->kind == YOKE_ONNX_PARAMETER &&
           call->reader->parameters[call->in[index]->parameter].node.index < 0 &&
           call->reader->parameters[call->in[index]->parameter].layer == NULL;
}

/* LayerNormalization; word: RMSNormalization. */
static yoke_status layer_norm(yoke_onnx_call *call) {
    TRY(yoke_onnx_need(call, 2));
    yoke_onnx_value *input = call->in[0];
    yoke_onnx_sizes row = yoke_onnx_row(&input->sizes, input->batch);
    char name[YOKE_ONNX_NAME_BYTES];
    double epsilon = yoke_onnx_real(call, "epsilon", 1e-5);
    bool rms = call->word != 0;
    int first, axis;
    yoke_value node;
    TRY(yoke_onnx_axis(yoke_onnx_int(call, "axis", -1), input->sizes.rank, &first));
    for (int dim = first; dim < input->sizes.rank; dim++)
        TRY(yoke_onnx_row_axis(input, dim, &axis));
    TRY(yoke_onnx_row_axis(input, first, &axis));
    if (axis > 0)
        row = (yoke_onnx_sizes){2,
                                {(int64_t)yoke_onnx_count(&row, 0, axis),
                                 (int64_t)yoke_onnx_count(&row, axis, row.rank)}};
    else
        row = (yoke_onnx_sizes){1, {(int64_t)yoke_onnx_whole(&row)}};
    TRY(yoke_onnx_as(call, input, yoke_onnx_natural(&row), &node));
    static const char *const words[] = {"", "weight", "bias"};
    for (int i = 1; i < 3; i++)
        if (yoke_onnx_has(call, i)) TRY(yoke_onnx_apart(call, call->in[i], words[i]));
    if (!rms && trains(call, 1) && trains(call, 2) &&
        call->in[1]->parameter != call->in[2]->parameter) {
        yoke_layer_norm_options options = YOKE_LAYER_NORM_OPTIONS_INIT;
        TRY(yoke_onnx_layer_name(call, call->in[1], ".weight", name));
        options.name = name;
        options.epsilon = epsilon;
        node = yoke_layer_norm(call->model, node, &options);
        TRY(own_tensors(call, name, call->in[1], call->in[2]));
        return yoke_onnx_result(call, 0, &input->sizes, input->batch, node);
    }
    yoke_onnx_value made = {YOKE_ONNX_COMPUTED, input->sizes, input->batch,
                            .node = normalized(call, node, epsilon, !rms)};
    TRY(yoke_onnx_check(call));
    return scaled(call, made, call->in[1], yoke_onnx_has(call, 2) ? call->in[2] : NULL);
}

/* A vector [channels] beside [batch, channels, ...]. */
static yoke_status by_channel(yoke_onnx_call *call, yoke_onnx_value *value, int rank,
                              yoke_onnx_value *made) {
    yoke_onnx_sizes sizes = {rank - 1, {(int64_t)yoke_onnx_whole(&value->sizes)}};
    for (int i = 1; i < sizes.rank; i++)
        sizes.at[i] = 1;
    return yoke_onnx_reshape_value(call, value, &sizes, made);
}

/* InstanceNormalization; word: GroupNormalization. */
static yoke_status group_norm(yoke_onnx_call *call) {
    TRY(yoke_onnx_need(call, 3));
    yoke_onnx_value *input = call->in[0], scale, bias;
    yoke_group_norm_options options = YOKE_GROUP_NORM_OPTIONS_INIT;
    int axis;
    yoke_value node;
    if (input->sizes.rank < 3) return FAIL(YOKE_ERROR_ARGUMENT, "it reads a matrix");
    TRY(yoke_onnx_row_axis(input, 1, &axis));
    yoke_onnx_sizes row = yoke_onnx_row(&input->sizes, input->batch);
    int64_t channels = input->sizes.at[1];
    int64_t groups = call->word != 0 ? yoke_onnx_int(call, "num_groups", 1) : channels;
    if (axis != 0 || groups < 1 || channels % groups != 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "%lld channels in %lld groups", (long long)channels,
                    (long long)groups);
    for (int i = 1; i < 3; i++)
        if (yoke_onnx_whole(&call->in[i]->sizes) != (size_t)channels)
            return FAIL(YOKE_ERROR_ARGUMENT, "a %s of %zu numbers for %lld channels",
                        i == 1 ? "scale" : "bias", yoke_onnx_whole(&call->in[i]->sizes),
                        (long long)channels);
    options.groups = (int)groups;
    options.epsilon = yoke_onnx_real(call, "epsilon", 1e-5);
    options.not_affine = true;
    TRY(yoke_onnx_node(call, input, &node));
    node = yoke_onnx_image(call, node, (size_t)row.at[0], yoke_onnx_count(&row, 1, row.rank - 1),
                           (size_t)row.at[row.rank - 1]);
    yoke_onnx_value made = {YOKE_ONNX_COMPUTED, input->sizes, input->batch,
                            .node = yoke_group_norm(call->model, node, &options)};
    TRY(yoke_onnx_check(call));
    bool plain = true; /* ones and zeros, as an exporter makes of an affine group norm */
    for (int i = 1; i < 3 && plain; i++) {
        const double *elements;
        plain = yoke_onnx_known(call, call->in[i]);
        if (plain) TRY(yoke_onnx_elements_of(call, call->in[i], &elements));
        for (int64_t k = 0; plain && k < channels; k++)
            plain = elements[k] == (i == 1 ? 1 : 0);
    }
    if (plain) return scaled(call, made, NULL, NULL);
    TRY(by_channel(call, call->in[1], input->sizes.rank, &scale));
    TRY(by_channel(call, call->in[2], input->sizes.rank, &bias));
    return scaled(call, made, &scale, &bias);
}

const yoke_onnx_operator yoke_onnx_layers[] = {
    {"BatchNormalization", batch_norm, 0},    {"Conv", convolution, 0},
    {"ConvTranspose", conv_transpose, 0},     {"GroupNormalization", group_norm, 1},
    {"InstanceNormalization", group_norm, 0}, {"LayerNormalization", layer_norm, 0},
    {"RMSNormalization", layer_norm, 1},      {NULL, NULL, 0},
};
