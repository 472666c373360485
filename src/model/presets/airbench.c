/* SPDX-License-Identifier: Apache-2.0 */
/* The network of Keller Jordan's airbench94 (2024), for images of 32 x 32 pixels, with its names
 * and initialisation: a convolution of 2 x 2 pixels, which `yoke train --whiten whiten` fills, and
 * three groups of two convolutions with batch norm. The script trains neither that convolution's
 * weight nor the weights of the batch norms; `yoke train --recipe cifar10-94` freezes them. */
#include <math.h>
#include <stdio.h>

#include "model/presets/preset.h"
#include "yoke/elementary.h"

#define GROUPS 3
#define PATCH 2

enum { WIDTH };

static const yoke_preset_option options[] = {[WIDTH] = {"width", 64, 1, 1 << 16, false}, {0}};

/* Filter i of the first ones hands on input channel i. */
static yoke_value add_conv(yoke_model *model, yoke_value value, const char *name, int channels) {
    yoke_conv2d_options conv = YOKE_CONV2D_OPTIONS_INIT;
    conv.name = name;
    conv.out_channels = channels;
    conv.kernel = 3;
    conv.padding = 1;
    conv.no_bias = true;
    value = yoke_conv2d(model, value, &conv);
    yoke_tensor *weight = yoke_preset_parameter(model, 0);
    if (weight != NULL) weight->fill.dirac = true;
    return value;
}

static yoke_value add_norm(yoke_model *model, yoke_value value, const char *name) {
    yoke_batch_norm_options norm = YOKE_BATCH_NORM_OPTIONS_INIT;
    norm.name = name;
    norm.epsilon = 1e-12;
    norm.momentum = 0.4;
    return yoke_gelu(model, yoke_batch_norm(model, value, &norm));
}

static yoke_value add_group(yoke_model *model, yoke_value value, int group, int channels) {
    static const yoke_pool_options halve = {.struct_size = sizeof halve, .kernel = 2};
    char conv1[32], norm1[32], conv2[32], norm2[32];
    snprintf(conv1, sizeof conv1, "layers.%d.conv1", group);
    snprintf(norm1, sizeof norm1, "layers.%d.norm1", group);
    snprintf(conv2, sizeof conv2, "layers.%d.conv2", group);
    snprintf(norm2, sizeof norm2, "layers.%d.norm2", group);
    value = yoke_max_pool(model, add_conv(model, value, conv1, channels), &halve);
    value = add_norm(model, value, norm1);
    return add_norm(model, add_conv(model, value, conv2, channels), norm2);
}

/* The script divides the logits by the number of features; dividing the features is the same. */
static yoke_value add_head(const yoke_preset_request *request, yoke_value value) {
    yoke_model *model = request->model;
    yoke_linear_options head = YOKE_LINEAR_OPTIONS_INIT;
    value = yoke_flatten(model, value);
    int features = yoke_shape_of(model, value).channels;
    value = yoke_map_with(model, YOKE_FN_SCALE, value, 1.0 / (features > 0 ? features : 1), 0);
    head.name = "head";
    head.out_features = request->classes;
    head.no_bias = true;
    value = yoke_linear(model, value, &head);
    yoke_preset_fill(model, 0, (yoke_fill){YOKE_FILL_UNIFORM, sqrt(3), false}); /* std 1 */
    return value;
}

static yoke_value build_airbench(const yoke_preset_request *request) {
    static const yoke_pool_options last = {.struct_size = sizeof last, .kernel = 3};
    yoke_model *model = request->model;
    int width = (int)request->values[WIDTH];
    yoke_value value = yoke_model_input(model);
    yoke_conv2d_options whiten = YOKE_CONV2D_OPTIONS_INIT;
    whiten.name = "whiten";
    whiten.out_channels = 2 * PATCH * PATCH * yoke_shape_of(model, value).channels;
    whiten.kernel = PATCH;
    value = yoke_gelu(model, yoke_conv2d(model, value, &whiten));
    for (int group = 1; group <= GROUPS; group++)
        value = add_group(model, value, group, group == 1 ? width : 4 * width);
    return add_head(request, yoke_max_pool(model, value, &last));
}

static const yoke_preset presets[] = {
    {"airbench94",
     "Keller Jordan's; width: filters of the first group; the other two have four times as many",
     build_airbench,
     NULL,
     options,
     {.channels = 3, .height = 32, .width = 32},
     10},
};
const yoke_preset_family yoke_airbench_family = {presets, sizeof presets / sizeof presets[0]};
