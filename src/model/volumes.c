/* SPDX-License-Identifier: Apache-2.0 */
/* Layers over volumes, made of those over images. In a volume as an image, some planes are one
 * piece of each channel: cutting and reshaping turns them into channels. */
#include "yoke/volume.h"

#include <stdio.h>

#include "model/graph.h"

enum { DEPTH, HEIGHT, WIDTH, AXES };

static const yoke_value nothing = {YOKE_NONE};

static yoke_value refuse(yoke_model *model, yoke_status status) {
    return yoke_builder_stopped(model) ? nothing : yoke_builder_result(model, status);
}

int yoke_volume_depth(int depth, int kernel, int stride, int padding) {
    if (depth < 1 || kernel < 1 || stride < 1 || padding < 0) return 0;
    int64_t left = (int64_t)depth + 2 * (int64_t)padding - kernel;
    return left < 0 ? 0 : (int)(left / stride) + 1;
}

/* A window that moves over the planes; it makes `made` planes. */
typedef struct planes_window {
    int depth, kernel, stride, padding, made;
} planes_window;

static yoke_status check_planes(planes_window *window, const char *name, yoke_shape shape) {
    if (shape.flat || shape.sequence)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: reads %d x %d x %d%s, needs a volume as an image",
                    name, shape.channels, shape.height, shape.width, yoke_shape_kind(shape));
    if (window->depth < 1 || shape.height % window->depth != 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: depth %d, must divide the height %d of all planes",
                    name, window->depth, shape.height);
    if (window->kernel < 1 || window->stride < 1 || window->padding < 0)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%s: kernel %d, stride %d and padding %d in depth, must be at least 1, 1 and 0",
                    name, window->kernel, window->stride, window->padding);
    if (window->padding >= window->kernel)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: padding %d in depth, must be less than the kernel %d",
                    name, window->padding, window->kernel);
    window->made =
        yoke_volume_depth(window->depth, window->kernel, window->stride, window->padding);
    if (window->made > 0) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "%s: a kernel of %d planes does not fit into %d with a padding of %d", name,
                window->kernel, window->depth, window->padding);
}

/* Convolution. */

/* The planes that one plane of the output reads, as channels. */
static yoke_value read_planes(yoke_model *model, yoke_value volume, const planes_window *window,
                              int plane) {
    yoke_shape shape = yoke_shape_of(model, volume);
    int height = shape.height / window->depth, first = plane * window->stride - window->padding;
    yoke_value read = yoke_slice(model, volume, YOKE_AXIS_HEIGHT, first * height,
                                 (first + window->kernel) * height, 0);
    return yoke_reshape(model, read,
                        yoke_shape_image(shape.channels * window->kernel, height, shape.width));
}

/* The first plane's convolution has the layer's name and parameters, those of the others share
 * them. */
static yoke_value convolve_plane(yoke_model *model, yoke_value planes,
                                 const yoke_conv3d_options *options, int plane) {
    char name[256];
    yoke_conv2d_options conv = {.struct_size = sizeof conv,
                                .name = options->name,
                                .out_channels = options->out_channels,
                                .kernel = options->kernel[HEIGHT],
                                .stride = options->stride[HEIGHT],
                                .padding = options->padding[HEIGHT],
                                .no_bias = options->no_bias,
                                .shared_with = options->shared_with,
                                .kernel_width = options->kernel[WIDTH],
                                .stride_width = options->stride[WIDTH],
                                .padding_width = options->padding[WIDTH]};
    if (plane > 0) {
        snprintf(name, sizeof name, "%s.plane%d", options->name, plane);
        conv.name = name;
        conv.shared_with = options->name;
    }
    return yoke_conv2d(model, planes, &conv);
}

/* Halves join halves, so that each number is copied a few times only. */
static yoke_value convolve_planes(yoke_model *model, yoke_value volume,
                                  const yoke_conv3d_options *options, const planes_window *window,
                                  int first, int count) {
    if (count == 1)
        return convolve_plane(model, read_planes(model, volume, window, first), options, first);
    int half = count / 2;
    yoke_value above = convolve_planes(model, volume, options, window, first, half);
    yoke_value below = convolve_planes(model, volume, options, window, first + half, count - half);
    return yoke_concat_along(model, above, below, YOKE_AXIS_HEIGHT);
}

static yoke_status load_conv(yoke_conv3d_options *options, const yoke_conv3d_options *given) {
    TRY(yoke_options_load(options, sizeof *options, given, "yoke_conv3d_options"));
    for (int axis = DEPTH; axis < AXES; axis++)
        if (options->stride[axis] == 0) options->stride[axis] = 1;
    if (options->name != NULL && options->name[0] != '\0') return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT, "yoke_conv3d: the layer has no name");
}

yoke_value yoke_conv3d(yoke_model *model, yoke_value input, const yoke_conv3d_options *given) {
    yoke_conv3d_options options = {.struct_size = sizeof options};
    if (yoke_builder_stopped(model)) return nothing;
    yoke_status status = load_conv(&options, given);
    if (status != YOKE_OK) return refuse(model, status);
    planes_window window = {options.depth, options.kernel[DEPTH], options.stride[DEPTH],
                            options.padding[DEPTH], 0};
    status = check_planes(&window, options.name, yoke_shape_of(model, input));
    if (status != YOKE_OK) return refuse(model, status);
    return convolve_planes(model, input, &options, &window, 0, window.made);
}

/* Pooling: first over the planes, then within each. */

typedef yoke_value (*pool)(yoke_model *model, yoke_value input, const yoke_pool_options *options);

static yoke_value pool_planes(yoke_model *model, yoke_value volume, const planes_window *window,
                              pool add) {
    yoke_shape shape = yoke_shape_of(model, volume);
    int places = shape.height / window->depth * shape.width;
    const yoke_pool_options options = {.struct_size = sizeof options,
                                       .kernel = window->kernel,
                                       .stride = window->stride,
                                       .padding = window->padding,
                                       .kernel_width = 1,
                                       .stride_width = 1};
    if (window->kernel == 1 && window->stride == 1) return volume;
    yoke_value lines =
        yoke_reshape(model, volume, yoke_shape_image(shape.channels, window->depth, places));
    return add(model, lines, &options);
}

static yoke_value add_pool(yoke_model *model, yoke_value input, const yoke_pool3d_options *given,
                           const char *name, pool add) {
    yoke_pool3d_options options = {.struct_size = sizeof options};
    if (yoke_builder_stopped(model)) return nothing;
    yoke_shape shape = yoke_shape_of(model, input);
    yoke_status status = yoke_options_load(&options, sizeof options, given, "yoke_pool3d_options");
    for (int axis = DEPTH; axis < AXES; axis++)
        if (options.stride[axis] == 0) options.stride[axis] = options.kernel[axis];
    planes_window window = {options.depth, options.kernel[DEPTH], options.stride[DEPTH],
                            options.padding[DEPTH], 0};
    if (status == YOKE_OK) status = check_planes(&window, name, shape);
    if (status != YOKE_OK) return refuse(model, status);
    const yoke_pool_options within = {.struct_size = sizeof within,
                                      .kernel = options.kernel[HEIGHT],
                                      .stride = options.stride[HEIGHT],
                                      .padding = options.padding[HEIGHT],
                                      .kernel_width = options.kernel[WIDTH],
                                      .stride_width = options.stride[WIDTH],
                                      .padding_width = options.padding[WIDTH]};
    int height = shape.height / window.depth;
    yoke_value planes =
        yoke_reshape(model, pool_planes(model, input, &window, add),
                     yoke_shape_image(shape.channels * window.made, height, shape.width));
    yoke_value pooled = add(model, planes, &within);
    if (yoke_builder_stopped(model)) return nothing;
    yoke_shape made = yoke_shape_of(model, pooled);
    return yoke_reshape(model, pooled,
                        yoke_shape_image(shape.channels, window.made * made.height, made.width));
}

yoke_value yoke_max_pool3d(yoke_model *model, yoke_value input,
                           const yoke_pool3d_options *options) {
    return add_pool(model, input, options, "max_pool3d", yoke_max_pool);
}

yoke_value yoke_average_pool3d(yoke_model *model, yoke_value input,
                               const yoke_pool3d_options *options) {
    return add_pool(model, input, options, "average_pool3d", yoke_average_pool);
}
