/* SPDX-License-Identifier: Apache-2.0 */
/* Layers as compositions of elementary operations. What one call refuses, the model
 * keeps: the calls behind it do nothing. */
#include "yoke/composed.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "model/graph.h"

static const yoke_value nothing = {YOKE_NONE};

static yoke_value refuse(yoke_model *model, yoke_status status) {
    return yoke_builder_stopped(model) ? nothing : yoke_builder_result(model, status);
}

/* A parameter NAME.SUFFIX of so many channels, in the shape in which it repeats over `like`. */
static yoke_value channel_parameter(yoke_model *model, const char *name, const char *suffix,
                                    yoke_shape like, double first) {
    char full[256];
    yoke_parameter_options options = YOKE_PARAMETER_OPTIONS_INIT;
    if (name == NULL || name[0] == '\0')
        return refuse(model, FAIL(YOKE_ERROR_ARGUMENT, "%s: its layer has no name", suffix));
    snprintf(full, sizeof full, "%s.%s", name, suffix);
    options.name = full;
    options.shape = yoke_shape_vector(like.channels);
    options.value = first;
    yoke_value flat = yoke_parameter_value(model, &options);
    if (like.flat || like.channels == 1) return flat;
    return yoke_reshape(model, flat,
                        like.sequence ? yoke_shape_sequence(1, like.channels)
                                      : yoke_shape_image(like.channels, 1, 1));
}

/* x times 1 / sqrt(mean of its squares along axes + epsilon). */
static yoke_value divide_by_size(yoke_model *model, yoke_value x, unsigned axes, double epsilon) {
    yoke_value mean =
        yoke_reduce_axes(model, yoke_map(model, YOKE_FN_SQUARE, x), YOKE_REDUCE_MEAN, axes);
    yoke_value size =
        yoke_map(model, YOKE_FN_RSQRT, yoke_map_with(model, YOKE_FN_OFFSET, mean, epsilon, 0));
    return yoke_multiply(model, x, size);
}

/* Norms. */

static yoke_status check_group_norm(yoke_shape shape, const yoke_group_norm_options *options) {
    const char *name = options->name != NULL ? options->name : "group_norm";
    if (shape.flat || shape.sequence)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: reads %d x %d x %d%s, needs an image", name,
                    shape.channels, shape.height, shape.width, yoke_shape_kind(shape));
    if (options->groups < 1 || shape.channels % options->groups != 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: %d groups, must divide %d channels", name,
                    options->groups, shape.channels);
    if (!(options->epsilon > 0))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%s: epsilon is %g, it must be above 0; YOKE_GROUP_NORM_OPTIONS_INIT sets the "
                    "default",
                    name, options->epsilon);
    return YOKE_OK;
}

yoke_value yoke_group_norm(yoke_model *model, yoke_value input,
                           const yoke_group_norm_options *given) {
    yoke_group_norm_options options = {.struct_size = sizeof options};
    if (yoke_builder_stopped(model)) return nothing;
    yoke_shape shape = yoke_shape_of(model, input);
    yoke_status status =
        yoke_options_load(&options, sizeof options, given, "yoke_group_norm_options");
    if (status == YOKE_OK) status = check_group_norm(shape, &options);
    if (status != YOKE_OK) return refuse(model, status);
    const unsigned within = YOKE_AXIS_HEIGHT | YOKE_AXIS_WIDTH;
    yoke_value x = yoke_reshape(model, input,
                                yoke_shape_image(options.groups, shape.channels / options.groups,
                                                 shape.height * shape.width));
    x = yoke_subtract(model, x, yoke_reduce_axes(model, x, YOKE_REDUCE_MEAN, within));
    x = yoke_reshape(model, divide_by_size(model, x, within, options.epsilon), shape);
    if (options.not_affine) return x;
    x = yoke_multiply(model, x, channel_parameter(model, options.name, "weight", shape, 1));
    return yoke_add(model, x, channel_parameter(model, options.name, "bias", shape, 0));
}

/* The axes of a row from the last one on, as many as `axes` has; 0: others are among them. */
static unsigned last_axes(yoke_shape shape, unsigned axes) {
    const unsigned image[] = {YOKE_AXIS_WIDTH, YOKE_AXIS_HEIGHT | YOKE_AXIS_WIDTH, YOKE_AXIS_ALL};
    const unsigned sequence[] = {YOKE_AXIS_CHANNELS, YOKE_AXIS_CHANNELS | YOKE_AXIS_HEIGHT,
                                 YOKE_AXIS_ALL};
    for (int i = 0; i < 3; i++) {
        unsigned known = shape.flat || shape.sequence ? sequence[i] : image[i];
        if (known == axes) return known;
    }
    return 0;
}

/* A parameter of the given axes of `like`, in the shape in which it repeats over it. PyTorch's has
 * as many dimensions as there are axes. */
static yoke_value axes_parameter(yoke_model *model, const char *name, const char *suffix,
                                 yoke_shape like, unsigned axes, double first) {
    char full[256];
    yoke_parameter_options options = YOKE_PARAMETER_OPTIONS_INIT;
    yoke_shape repeats = like;
    if (!(axes & YOKE_AXIS_CHANNELS)) repeats.channels = 1;
    if (!(axes & YOKE_AXIS_HEIGHT)) repeats.height = 1;
    snprintf(full, sizeof full, "%s.%s", name, suffix);
    options.name = full;
    options.value = first;
    options.shape = repeats;
    if (axes == YOKE_AXIS_WIDTH || axes == YOKE_AXIS_CHANNELS)
        options.shape = yoke_shape_vector(axes == YOKE_AXIS_WIDTH ? like.width : like.channels);
    if (axes == (YOKE_AXIS_HEIGHT | YOKE_AXIS_WIDTH))
        options.shape = yoke_shape_sequence(like.height, like.width);
    return yoke_reshape(model, yoke_parameter_value(model, &options), repeats);
}

yoke_value yoke_layer_norm_along(yoke_model *model, yoke_value input, unsigned axes,
                                 const char *name, double epsilon) {
    if (yoke_builder_stopped(model)) return nothing;
    yoke_shape shape = yoke_shape_of(model, input);
    axes = last_axes(shape, axes);
    if (name == NULL || axes == 0 || !(epsilon > 0))
        return refuse(model, FAIL(YOKE_ERROR_ARGUMENT,
                                  "%s: of %d x %d x %d%s with epsilon %g: needs a name, the last "
                                  "axes of a row, and epsilon above 0",
                                  name != NULL ? name : "layer_norm_along", shape.channels,
                                  shape.height, shape.width, yoke_shape_kind(shape), epsilon));
    yoke_value x =
        yoke_subtract(model, input, yoke_reduce_axes(model, input, YOKE_REDUCE_MEAN, axes));
    x = divide_by_size(model, x, axes, epsilon);
    x = yoke_multiply(model, x, axes_parameter(model, name, "weight", shape, axes, 1));
    return yoke_add(model, x, axes_parameter(model, name, "bias", shape, axes, 0));
}

yoke_value yoke_rms_norm(yoke_model *model, yoke_value input, const char *name, double epsilon) {
    yoke_shape shape = yoke_shape_of(model, input);
    if (!yoke_builder_stopped(model) && !(epsilon > 0))
        return refuse(model, FAIL(YOKE_ERROR_ARGUMENT, "%s: epsilon is %g, it must be above 0",
                                  name != NULL ? name : "rms_norm", epsilon));
    yoke_value x = divide_by_size(model, input, YOKE_AXIS_CHANNELS, epsilon);
    return yoke_multiply(model, x, channel_parameter(model, name, "weight", shape, 1));
}

/* Activations. */

yoke_value yoke_prelu(yoke_model *model, yoke_value input, const char *name, bool per_channel) {
    yoke_shape like = per_channel ? yoke_shape_of(model, input) : yoke_shape_vector(1);
    yoke_value weight = channel_parameter(model, name, "weight", like, 0.25);
    yoke_value above = yoke_relu(model, input), below = yoke_subtract(model, input, above);
    return yoke_add(model, yoke_multiply(model, below, weight), above);
}

yoke_value yoke_hard_swish(yoke_model *model, yoke_value input) {
    return yoke_multiply(model, yoke_map(model, YOKE_FN_HARD_SIGMOID, input), input);
}

yoke_value yoke_mish(yoke_model *model, yoke_value input) {
    return yoke_multiply(
        model, yoke_map(model, YOKE_FN_TANH, yoke_map(model, YOKE_FN_SOFTPLUS, input)), input);
}

yoke_value yoke_glu(yoke_model *model, yoke_value input) {
    int channels = yoke_shape_of(model, input).channels;
    if (!yoke_builder_stopped(model) && channels % 2 != 0)
        return refuse(model,
                      FAIL(YOKE_ERROR_ARGUMENT, "glu: %d channels have no halves", channels));
    yoke_value first = yoke_slice(model, input, YOKE_AXIS_CHANNELS, 0, channels / 2, 0);
    yoke_value second = yoke_slice(model, input, YOKE_AXIS_CHANNELS, channels / 2, channels, 0);
    return yoke_multiply(model, yoke_map(model, YOKE_FN_SIGMOID, second), first);
}

/* Other sizes. */

/* Row `to` of the matrix that makes `outputs` places of `inputs`. */
static void fill_weights(float *row, int to, int outputs, int inputs, yoke_upsample_mode mode) {
    double scale = (double)inputs / outputs, place = ((double)to + 0.5) * scale - 0.5;
    if (mode == YOKE_UPSAMPLE_NEAREST) place = floor(to * scale);
    if (mode == YOKE_UPSAMPLE_BILINEAR_CORNERS)
        place = outputs > 1 ? (double)to * (inputs - 1) / (outputs - 1) : 0;
    if (place < 0) place = 0;
    int below = (int)place, above = below + 1 < inputs ? below + 1 : below;
    float share = (float)(place - below);
    row[below] += 1 - share;
    row[above] += share;
}

/* The width of an image becomes `outputs`, and its two directions are exchanged. */
static yoke_value resize_width(yoke_model *model, yoke_value image, int outputs,
                               yoke_upsample_mode mode) {
    yoke_shape shape = yoke_shape_of(model, image);
    size_t bytes = (size_t)outputs * (size_t)shape.width * sizeof(float);
    float *weights = yoke_calloc(1, bytes > 0 ? bytes : 1);
    if (weights == NULL) return refuse(model, FAIL_MEMORY(bytes, "the weights of an upsampling"));
    for (int to = 0; shape.width > 0 && to < outputs; to++)
        fill_weights(weights + (size_t)to * (size_t)shape.width, to, outputs, shape.width, mode);
    yoke_value matrix = yoke_constant(model, yoke_shape_sequence(outputs, shape.width), weights);
    yoke_free(weights);
    yoke_value lines =
        yoke_reshape(model, image, yoke_shape_sequence(shape.channels * shape.height, shape.width));
    lines = yoke_matmul(model, lines, matrix, false, true);
    return yoke_transpose(
        model, yoke_reshape(model, lines, yoke_shape_image(shape.channels, shape.height, outputs)),
        YOKE_AXIS_HEIGHT, YOKE_AXIS_WIDTH);
}

yoke_value yoke_upsample(yoke_model *model, yoke_value input, int height, int width,
                         yoke_upsample_mode mode) {
    yoke_shape shape = yoke_shape_of(model, input);
    if (yoke_builder_stopped(model)) return nothing;
    if (shape.flat || shape.sequence || height < 1 || width < 1)
        return refuse(model, FAIL(YOKE_ERROR_ARGUMENT,
                                  "upsample: %d x %d x %d%s to %d x %d: needs an image, and sizes "
                                  "of at least 1",
                                  shape.channels, shape.height, shape.width, yoke_shape_kind(shape),
                                  height, width));
    return resize_width(model, resize_width(model, input, width, mode), height, mode);
}

/* Dropout of whole parts of a row. */

static yoke_value ones(yoke_model *model, int count) {
    const float one = 1;
    yoke_value first = yoke_constant(model, yoke_shape_vector(1), &one);
    return count > 1 ? yoke_slice(model, first, YOKE_AXIS_CHANNELS, 0, count, 1) : first;
}

yoke_value yoke_stochastic_depth(yoke_model *model, yoke_value input, double probability) {
    if (probability == 0) return input;
    return yoke_multiply(model, input, yoke_dropout(model, ones(model, 1), probability));
}

yoke_value yoke_dropout2d(yoke_model *model, yoke_value input, double probability) {
    yoke_shape shape = yoke_shape_of(model, input);
    if (!yoke_builder_stopped(model) && (shape.flat || shape.sequence))
        return refuse(model,
                      FAIL(YOKE_ERROR_ARGUMENT, "dropout2d: reads %d x %d x %d%s, needs an image",
                           shape.channels, shape.height, shape.width, yoke_shape_kind(shape)));
    yoke_value kept = yoke_dropout(model, ones(model, shape.channels), probability);
    return yoke_multiply(model, input,
                         yoke_reshape(model, kept, yoke_shape_image(shape.channels, 1, 1)));
}

/* The largest is subtracted first: exp cannot overflow. */

yoke_value yoke_softmax_along(yoke_model *model, yoke_value input, yoke_axis axis) {
    yoke_value largest = yoke_reduce_axes(model, input, YOKE_REDUCE_MAX, axis);
    yoke_value x = yoke_map(model, YOKE_FN_EXP, yoke_subtract(model, input, largest));
    return yoke_divide(model, x, yoke_reduce_axes(model, x, YOKE_REDUCE_SUM, axis));
}

yoke_value yoke_log_softmax_along(yoke_model *model, yoke_value input, yoke_axis axis) {
    yoke_value largest = yoke_reduce_axes(model, input, YOKE_REDUCE_MAX, axis);
    yoke_value x = yoke_subtract(model, input, largest);
    yoke_value sum =
        yoke_reduce_axes(model, yoke_map(model, YOKE_FN_EXP, x), YOKE_REDUCE_SUM, axis);
    return yoke_subtract(model, x, yoke_map(model, YOKE_FN_LOG, sum));
}
