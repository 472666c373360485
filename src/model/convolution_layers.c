/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions of every form: over images, transposed, and over sequences, which are images of one
 * line. */
#include "yoke/convolution.h"

#include <math.h>

#include "model/graph.h"
#include "yoke/transformer.h"

static const yoke_value nothing = {YOKE_NONE};

static int or_else(int given, int otherwise) {
    return given != 0 ? given : otherwise;
}

static yoke_status check_channels(const yoke_operation *conv, int out_channels) {
    if (out_channels < 1)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: %d output channels, must be at least 1", conv->name,
                    out_channels);
    if (conv->groups < 1 || conv->input.channels % conv->groups != 0 ||
        out_channels % conv->groups != 0)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%s: %d groups, must divide %d input and %d output channels", conv->name,
                    conv->groups, conv->input.channels, out_channels);
    return YOKE_OK;
}

/* [first, second, kh, kw] of a convolution. */
static yoke_tensor weight_of(const yoke_operation *conv, int first, int second) {
    return (yoke_tensor){
        .ndim = 4,
        .shape = {first, second, yoke_taps_down(conv).kernel, yoke_taps_across(conv).kernel},
        .trainable = true,
        .groups = conv->groups};
}

static size_t taps_of(const yoke_tensor *weight) {
    return (size_t)weight->shape[2] * (size_t)weight->shape[3];
}

/* Convolution. `line`: over a sequence. */

static yoke_status add_conv2d(yoke_model *model, yoke_value input, const yoke_conv2d_options *given,
                              bool line) {
    yoke_conv2d_options options = {.struct_size = sizeof options};
    TRY(yoke_options_load(&options, sizeof options, given, "yoke_conv2d_options"));
    yoke_node *layer = NULL;
    TRY(yoke_builder_layer(model, YOKE_OP_CONV2D, options.name, &layer));
    TRY(yoke_builder_read(model, layer, input));
    TRY(yoke_builder_image(model, layer));
    yoke_operation *conv = &layer->operation;
    conv->groups = or_else(options.groups, 1);
    conv->bias = !options.no_bias;
    yoke_builder_set_window(
        conv, (yoke_taps){options.kernel, options.stride, options.padding, options.dilation},
        (yoke_taps){options.kernel_width, options.stride_width, options.padding_width,
                    options.dilation_width});
    yoke_shape shape = {.channels = options.out_channels};
    TRY(yoke_builder_window(layer, &shape.height, &shape.width));
    TRY(check_channels(conv, options.out_channels));
    TRY(yoke_builder_shape(layer, shape));
    int in_channels = conv->input.channels / conv->groups;
    yoke_tensor weight = weight_of(conv, options.out_channels, in_channels);
    size_t taps = taps_of(&weight);
    /* kaiming_normal(fan_out, relu): torchvision/models/resnet.py */
    if (options.kaiming_fan_out)
        weight.fill =
            (yoke_fill){YOKE_FILL_NORMAL, sqrt(2 / ((double)options.out_channels * (double)taps))};
    if (line) {
        weight.line = true;
        weight.ndim = 3;
        weight.shape[2] = weight.shape[3];
        weight.shape[3] = 0;
    }
    return yoke_layer_tensors(model, layer, &weight, (size_t)in_channels * taps,
                              options.shared_with);
}

yoke_value yoke_conv2d(yoke_model *model, yoke_value input, const yoke_conv2d_options *options) {
    if (yoke_builder_stopped(model)) return nothing;
    return yoke_builder_result(model, add_conv2d(model, input, options, false));
}

/* Over sequences. */

static yoke_status check_sequence(yoke_shape shape, const yoke_conv1d_options *options) {
    const char *name = options->name != NULL ? options->name : "conv1d";
    if (!shape.sequence)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%s: reads %d x %d x %d%s, needs a sequence; yoke_sequence makes one of an "
                    "image, yoke_reshape of any value",
                    name, shape.channels, shape.height, shape.width, yoke_shape_kind(shape));
    int64_t dilation = or_else(options->dilation, 1);
    int64_t side = ((int64_t)options->kernel - 1) * dilation + 1;
    int64_t padded = (int64_t)shape.height + 2 * (int64_t)options->padding;
    if (options->padding < 0 || dilation < 1 || side <= padded) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "%s: kernel of %d%s does not fit a sequence of %d x %d padded by %d; take a "
                "smaller kernel, or more padding",
                name, options->kernel, dilation > 1 ? ", dilated," : "", shape.height,
                shape.channels, options->padding);
}

/* A sequence [positions, features] as an image [features, 1, positions]. */
static yoke_status add_line(yoke_model *model, yoke_value input) {
    yoke_node *layer = NULL;
    yoke_shape shape = yoke_value_shape(model, input.index);
    TRY(yoke_builder_layer(model, YOKE_OP_MOVE, "line", &layer));
    TRY(yoke_builder_read(model, layer, input));
    layer->operation.move = (yoke_move){.order = {1, 2, 0}};
    return yoke_builder_shape(layer, yoke_shape_image(shape.channels, 1, shape.height));
}

static yoke_status add_conv1d(yoke_model *model, yoke_value input,
                              const yoke_conv1d_options *given) {
    yoke_conv1d_options options = {.struct_size = sizeof options};
    TRY(yoke_options_load(&options, sizeof options, given, "yoke_conv1d_options"));
    TRY(check_sequence(yoke_shape_of(model, input), &options));
    yoke_conv2d_options wide = YOKE_CONV2D_OPTIONS_INIT;
    wide.name = options.name;
    wide.out_channels = options.out_channels;
    wide.kernel = 1;
    wide.kernel_width = options.kernel;
    wide.stride_width = options.stride;
    wide.padding_width = options.padding;
    wide.groups = options.groups;
    wide.no_bias = options.no_bias;
    wide.shared_with = options.shared_with;
    wide.dilation_width = options.dilation;
    if (options.kernel < 1)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: kernel of %d, must be at least 1", options.name,
                    options.kernel);
    TRY(add_line(model, input));
    return add_conv2d(model, (yoke_value){model->layer_count}, &wide, true);
}

yoke_value yoke_conv1d(yoke_model *model, yoke_value input, const yoke_conv1d_options *options) {
    if (yoke_builder_stopped(model)) return nothing;
    yoke_value line = yoke_builder_result(model, add_conv1d(model, input, options));
    return yoke_sequence(model, line);
}

/* Transposed. */

/* The output size along one direction: PyTorch's rule. `of`: "", or "_width". */
static yoke_status grow(const yoke_operation *conv, yoke_taps taps, int more, const char *of,
                        int size, int *output) {
    if (more < 0 || more >= taps.stride)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%s: output_padding%s of %d, must be at least 0 and below the stride of %d",
                    conv->name, of, more, taps.stride);
    int64_t grown = (int64_t)(size - 1) * taps.stride + yoke_taps_side(taps) + more;
    int64_t left = grown - 2 * (int64_t)taps.padding;
    if (left < 1 || left > INT32_MAX)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%s: padding%s of %d leaves %lld of the %lld pixels that kernel %d and stride "
                    "%d make of an image of %d x %d; there must be 1 to %d, so take %s",
                    conv->name, of, taps.padding, (long long)left, (long long)grown, taps.kernel,
                    taps.stride, conv->input.height, conv->input.width, INT32_MAX,
                    left < 1 ? "less padding" : "a smaller stride");
    *output = (int)left;
    return YOKE_OK;
}

static yoke_status add_conv_transpose2d(yoke_model *model, yoke_value input,
                                        const yoke_conv_transpose2d_options *given) {
    yoke_conv_transpose2d_options options = {.struct_size = sizeof options};
    TRY(yoke_options_load(&options, sizeof options, given, "yoke_conv_transpose2d_options"));
    yoke_node *layer = NULL;
    TRY(yoke_builder_layer(model, YOKE_OP_CONV_TRANSPOSE2D, options.name, &layer));
    TRY(yoke_builder_read(model, layer, input));
    TRY(yoke_builder_image(model, layer));
    yoke_operation *conv = &layer->operation;
    conv->groups = or_else(options.groups, 1);
    conv->bias = !options.no_bias;
    yoke_builder_set_window(
        conv, (yoke_taps){options.kernel, options.stride, options.padding, options.dilation},
        (yoke_taps){options.kernel_width, options.stride_width, options.padding_width,
                    options.dilation_width});
    TRY(yoke_builder_taps(layer));
    yoke_shape shape = {.channels = options.out_channels};
    int wide = options.output_padding_width;
    if (options.kernel_width == 0) wide = or_else(wide, options.output_padding);
    TRY(grow(conv, yoke_taps_down(conv), options.output_padding, "", conv->input.height,
             &shape.height));
    TRY(grow(conv, yoke_taps_across(conv), wide, "_width", conv->input.width, &shape.width));
    TRY(check_channels(conv, options.out_channels));
    TRY(yoke_builder_shape(layer, shape));
    int out_channels = options.out_channels / conv->groups;
    yoke_tensor weight = weight_of(conv, conv->input.channels, out_channels);
    return yoke_layer_tensors(model, layer, &weight, (size_t)out_channels * taps_of(&weight),
                              options.shared_with);
}

yoke_value yoke_conv_transpose2d(yoke_model *model, yoke_value input,
                                 const yoke_conv_transpose2d_options *options) {
    if (yoke_builder_stopped(model)) return nothing;
    return yoke_builder_result(model, add_conv_transpose2d(model, input, options));
}

/* Pixels from channels, and back: of a pixel's channels [channels, below, right] the last two
 * become places, one after the other, each by exchanging height and width of the row seen as
 * another image. */

static yoke_value turn(yoke_model *model, yoke_value value, int channels, int height, int width) {
    return yoke_transpose(model,
                          yoke_reshape(model, value, yoke_shape_image(channels, height, width)),
                          YOKE_AXIS_HEIGHT, YOKE_AXIS_WIDTH);
}

static yoke_status check_shuffle(const char *name, yoke_shape shape, int factor, bool fits) {
    if (shape.flat || shape.sequence)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: reads %d x %d x %d%s, needs an image", name,
                    shape.channels, shape.height, shape.width, yoke_shape_kind(shape));
    if (factor < 1 || factor > 1024)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: a factor of %d, must be 1 to 1024", name, factor);
    if (fits) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "%s: an image of %d x %d x %d: the factor %d must divide its height and width",
                name, shape.channels, shape.height, shape.width, factor);
}

yoke_value yoke_pixel_shuffle(yoke_model *model, yoke_value input, int factor) {
    if (yoke_builder_stopped(model)) return nothing;
    yoke_shape in = yoke_shape_of(model, input);
    int square = factor > 0 && factor <= 1024 ? factor * factor : 1;
    yoke_status status = check_shuffle("pixel_shuffle", in, factor, true);
    if (status == YOKE_OK && in.channels % square != 0)
        status = FAIL(YOKE_ERROR_ARGUMENT,
                      "pixel_shuffle: an image of %d x %d x %d: %d, the square of the factor, must "
                      "divide its channels",
                      in.channels, in.height, in.width, square);
    if (status != YOKE_OK) return yoke_builder_result(model, status);
    int channels = in.channels / square;
    yoke_value x = turn(model, input, channels * factor, factor * in.height, in.width);
    x = turn(model, x, channels, factor * in.width * factor, in.height);
    return yoke_reshape(model, x,
                        yoke_shape_image(channels, in.height * factor, in.width * factor));
}

yoke_value yoke_pixel_unshuffle(yoke_model *model, yoke_value input, int factor) {
    if (yoke_builder_stopped(model)) return nothing;
    yoke_shape in = yoke_shape_of(model, input);
    bool fits = factor > 0 && in.height % factor == 0 && in.width % factor == 0;
    yoke_status status = check_shuffle("pixel_unshuffle", in, factor, fits);
    if (status != YOKE_OK) return yoke_builder_result(model, status);
    int height = in.height / factor, width = in.width / factor;
    yoke_value x = turn(model, input, in.channels, height, factor * width * factor);
    x = turn(model, x, in.channels * factor, width, factor * height);
    return yoke_reshape(model, x, yoke_shape_image(in.channels * factor * factor, height, width));
}
