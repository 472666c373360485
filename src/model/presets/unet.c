/* SPDX-License-Identifier: Apache-2.0 */
/* U-Net (Ronneberger et al. 2015) from pictures to pictures, in the form and with the names of
 * milesial's Pytorch-UNet with bilinear upsampling. The classes or targets of a row are the pixels
 * of all channels of its output. */
#include <stdio.h>

#include "model/presets/preset.h"
#include "yoke/composed.h"

enum { WIDTH, LEVELS = 4, NAME_BYTES = 64 };

static const yoke_preset_option options[] = {[WIDTH] = {"width", 64, 1, 1 << 12, false}, {0}};

/* Two convolutions of 3 x 3, each with a batch norm and a ReLU. */
static yoke_value double_conv(yoke_model *model, yoke_value value, const char *prefix, int middle,
                              int channels) {
    for (int i = 0; i < 2; i++) {
        char conv_name[NAME_BYTES], norm_name[NAME_BYTES];
        snprintf(conv_name, sizeof conv_name, "%s.double_conv.%d", prefix, 3 * i);
        snprintf(norm_name, sizeof norm_name, "%s.double_conv.%d", prefix, 3 * i + 1);
        yoke_conv2d_options conv = YOKE_CONV2D_OPTIONS_INIT;
        yoke_batch_norm_options norm = YOKE_BATCH_NORM_OPTIONS_INIT;
        conv.name = conv_name;
        conv.out_channels = i == 0 ? middle : channels;
        conv.kernel = 3;
        conv.padding = 1;
        conv.no_bias = true;
        norm.name = norm_name;
        value = yoke_relu(model, yoke_batch_norm(model, yoke_conv2d(model, value, &conv), &norm));
    }
    return value;
}

static yoke_value go_down(yoke_model *model, yoke_value value, int level, int channels) {
    char prefix[NAME_BYTES];
    yoke_pool_options halves = YOKE_POOL_OPTIONS_INIT;
    halves.kernel = 2;
    snprintf(prefix, sizeof prefix, "down%d.maxpool_conv.1", level);
    return double_conv(model, yoke_max_pool(model, value, &halves), prefix, channels, channels);
}

/* Twice the size, with zeros around where the other image is larger, joined behind it. */
static yoke_value go_up(yoke_model *model, yoke_value value, yoke_value other, int level,
                        int middle, int channels) {
    char prefix[NAME_BYTES];
    snprintf(prefix, sizeof prefix, "up%d.conv", level);
    if (yoke_builder_stopped(model)) return value;
    yoke_shape from = yoke_value_shape(model, value.index);
    yoke_shape to = yoke_value_shape(model, other.index);
    int height = 2 * from.height, width = 2 * from.width;
    value = yoke_upsample(model, value, height, width, YOKE_UPSAMPLE_BILINEAR_CORNERS);
    int above = (to.height - height) / 2, left = (to.width - width) / 2;
    if (to.height != height)
        value = yoke_slice(model, value, YOKE_AXIS_HEIGHT, -above, to.height - above, 0);
    if (to.width != width)
        value = yoke_slice(model, value, YOKE_AXIS_WIDTH, -left, to.width - left, 0);
    return double_conv(model, yoke_concat(model, other, value), prefix, middle, channels);
}

static yoke_status check_pixels(const yoke_preset_request *request, int pixels) {
    if (request->classes % pixels == 0) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "unet: %d targets a row are no images of %d pixels, as the input has",
                request->classes, pixels);
}

static yoke_value build_unet(const yoke_preset_request *request) {
    yoke_model *model = request->model;
    yoke_shape input = yoke_model_input_shape(model);
    int width = (int)request->values[WIDTH];
    yoke_status status = check_pixels(request, input.height * input.width);
    if (status != YOKE_OK) return yoke_builder_result(model, status);
    yoke_value levels[LEVELS + 1];
    levels[0] = double_conv(model, yoke_model_input(model), "inc", width, width);
    for (int i = 1; i <= LEVELS; i++) /* the deepest has half the channels: upsampling has none */
        levels[i] = go_down(model, levels[i - 1], i, (i < LEVELS ? width << i : width << (i - 1)));
    yoke_value value = levels[LEVELS];
    for (int i = 1; i <= LEVELS; i++) {
        int joined = width << (LEVELS - i + 1), channels = i < LEVELS ? joined / 4 : width;
        value = go_up(model, value, levels[LEVELS - i], i, joined / 2, channels);
    }
    yoke_conv2d_options out = YOKE_CONV2D_OPTIONS_INIT;
    out.name = "outc.conv";
    out.out_channels = request->classes / (input.height * input.width);
    out.kernel = 1;
    return yoke_flatten(model, yoke_conv2d(model, value, &out));
}

static const yoke_preset presets[] = {
    {.name = "unet",
     .summary = "U-Net, from pictures to pictures; targets are pixels",
     .build = build_unet,
     .options = options,
     .input = {.channels = 3, .height = 128, .width = 128},
     .classes = 128 * 128},
};
const yoke_preset_family yoke_unet_family = {presets, sizeof presets / sizeof presets[0]};
