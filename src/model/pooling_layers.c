/* SPDX-License-Identifier: Apache-2.0 */
/* Windows over images, and the pooling layers. */
#include <stdio.h>

#include "model/graph.h"

/* Larger windows would overflow the arithmetic of shapes. */
#define WINDOW_LIMIT 32768

/* Windows. */

static int or_else(int given, int otherwise) {
    return given != 0 ? given : otherwise;
}

void yoke_builder_set_window(yoke_operation *window, yoke_taps down, yoke_taps across) {
    bool rectangular = across.kernel != 0;
    down.stride = or_else(down.stride, 1);
    down.dilation = or_else(down.dilation, 1);
    across.kernel = or_else(across.kernel, down.kernel);
    across.stride = or_else(across.stride, down.stride);
    across.dilation = or_else(across.dilation, down.dilation);
    if (!rectangular) across.padding = or_else(across.padding, down.padding);
    window->kernel = down.kernel;
    window->stride = down.stride;
    window->padding = down.padding;
    window->dilation = down.dilation;
    bool square = across.kernel == down.kernel && across.stride == down.stride &&
                  across.padding == down.padding && across.dilation == down.dilation;
    if (!square) window->across = across;
}

static yoke_status check_number(const char *name, const char *what, const char *of, int number,
                                int least) {
    if (number >= least && number <= WINDOW_LIMIT) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT, "%s: %s%s of %d, must be %d to %d", name, what, of, number,
                least, WINDOW_LIMIT);
}

static yoke_status check_taps(const char *name, yoke_taps taps, const char *of) {
    TRY(check_number(name, "kernel", of, taps.kernel, 1));
    TRY(check_number(name, "stride", of, taps.stride, 1));
    TRY(check_number(name, "padding", of, taps.padding, 0));
    return check_number(name, "dilation", of, taps.dilation, 1);
}

yoke_status yoke_builder_taps(const yoke_node *layer) {
    const yoke_operation *window = &layer->operation;
    TRY(check_taps(window->name, yoke_taps_down(window), ""));
    return check_taps(window->name, yoke_taps_across(window), "_width");
}

void yoke_window_text(const yoke_operation *window, char text[YOKE_WINDOW_TEXT_BYTES]) {
    yoke_taps down = yoke_taps_down(window), across = yoke_taps_across(window);
    bool dilated = down.dilation > 1 || across.dilation > 1;
    if (window->across.kernel > 0)
        snprintf(text, YOKE_WINDOW_TEXT_BYTES, "kernel of %d x %d%s", down.kernel, across.kernel,
                 dilated ? ", dilated," : "");
    else
        snprintf(text, YOKE_WINDOW_TEXT_BYTES, "kernel of %d%s", down.kernel,
                 dilated ? ", dilated," : "");
}

/* The output size along one direction; 0: the window does not fit. */
static int places_of(yoke_taps taps, int size) {
    int64_t room = (int64_t)size + 2 * taps.padding - yoke_taps_side(taps);
    return room < 0 ? 0 : (int)(room / taps.stride + 1);
}

yoke_status yoke_builder_window(const yoke_node *layer, int *height, int *width) {
    const yoke_operation *window = &layer->operation;
    yoke_taps down = yoke_taps_down(window), across = yoke_taps_across(window);
    char text[YOKE_WINDOW_TEXT_BYTES], padding[32] = "";
    TRY(yoke_builder_taps(layer));
    *height = places_of(down, window->input.height);
    *width = places_of(across, window->input.width);
    if (*height > 0 && *width > 0) return YOKE_OK;
    yoke_window_text(window, text);
    if (window->across.kernel > 0) snprintf(padding, sizeof padding, " x %d", across.padding);
    return FAIL(YOKE_ERROR_ARGUMENT,
                "%s: %s does not fit an image of %d x %d padded by %d%s; take a smaller kernel, or "
                "more padding",
                window->name, text, window->input.height, window->input.width, down.padding,
                padding);
}

/* Pooling. */

static yoke_status add_adaptive_pool(yoke_model *model, yoke_value input, int height, int width) {
    yoke_node *layer = NULL;
    TRY(yoke_builder_layer(model, YOKE_OP_AVERAGE_POOL, NULL, &layer));
    TRY(yoke_builder_read(model, layer, input));
    TRY(yoke_builder_image(model, layer));
    if (height < 1 || height > WINDOW_LIMIT || width < 1 || width > WINDOW_LIMIT)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: pools to %d x %d, must be 1 x 1 to %d x %d",
                    layer->operation.name, height, width, WINDOW_LIMIT, WINDOW_LIMIT);
    layer->operation.stride = 1;
    return yoke_builder_shape(layer, (yoke_shape){.channels = layer->operation.input.channels,
                                                  .height = height,
                                                  .width = width});
}

yoke_value yoke_adaptive_average_pool(yoke_model *model, yoke_value input, int height, int width) {
    if (yoke_builder_stopped(model)) return (yoke_value){YOKE_NONE};
    return yoke_builder_result(model, add_adaptive_pool(model, input, height, width));
}

yoke_value yoke_global_average_pool(yoke_model *model, yoke_value input) {
    return yoke_adaptive_average_pool(model, input, 1, 1);
}

/* Otherwise a window could lie outside of the image. */
static yoke_status check_padding(const char *name, yoke_taps taps, const char *of) {
    if (taps.padding <= taps.kernel / 2) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT, "%s: padding%s of %d, must be at most half the kernel of %d",
                name, of, taps.padding, taps.kernel);
}

static yoke_status add_pool(yoke_model *model, yoke_operation_kind kind, yoke_value input,
                            const yoke_pool_options *given) {
    yoke_pool_options options = {.struct_size = sizeof options};
    TRY(yoke_options_load(&options, sizeof options, given, "yoke_pool_options"));
    yoke_node *layer = NULL;
    TRY(yoke_builder_layer(model, kind, NULL, &layer));
    TRY(yoke_builder_read(model, layer, input));
    TRY(yoke_builder_image(model, layer));
    yoke_operation *pool = &layer->operation;
    yoke_taps down = {options.kernel, or_else(options.stride, options.kernel), options.padding, 1};
    yoke_taps across = {options.kernel_width, or_else(options.stride_width, options.stride),
                        options.padding_width, 1};
    across.stride = or_else(across.stride, options.kernel_width);
    yoke_builder_set_window(pool, down, across);
    yoke_shape shape = {.channels = pool->input.channels};
    TRY(yoke_builder_window(layer, &shape.height, &shape.width));
    TRY(check_padding(pool->name, yoke_taps_down(pool), ""));
    TRY(check_padding(pool->name, yoke_taps_across(pool), "_width"));
    return yoke_builder_shape(layer, shape);
}

yoke_value yoke_max_pool(yoke_model *model, yoke_value input, const yoke_pool_options *options) {
    if (yoke_builder_stopped(model)) return (yoke_value){YOKE_NONE};
    return yoke_builder_result(model, add_pool(model, YOKE_OP_MAX_POOL, input, options));
}

yoke_value yoke_average_pool(yoke_model *model, yoke_value input,
                             const yoke_pool_options *options) {
    if (yoke_builder_stopped(model)) return (yoke_value){YOKE_NONE};
    bool global = options != NULL && options->kernel == 0;
    if (global) return yoke_global_average_pool(model, input);
    return yoke_builder_result(model, add_pool(model, YOKE_OP_AVERAGE_POOL, input, options));
}
