/* SPDX-License-Identifier: Apache-2.0 */
/* ConvNeXt (Liu et al. 2022): torchvision/models/convnext.py, with its names and initialisation. */
#include <stdio.h>

#include "model/presets/preset.h"
#include "yoke/composed.h"
#include "yoke/transformer.h"

enum { STOCHASTIC_DEPTH };

static const yoke_preset_option options[] = {
    [STOCHASTIC_DEPTH] = {"stochastic_depth", 0.1, 0, 0.99, true}, /* of the last block */
    {0}};

static const struct { int channels, blocks; } stages[] = {{96, 3}, {192, 3}, {384, 9}, {768, 3}};
enum { STAGES = sizeof stages / sizeof stages[0], BLOCKS = 18 };
enum { PREFIX_BYTES = 32, NAME_BYTES = 64 };

#define STD 0.02
#define LAYER_SCALE 1e-6

static const char *join(char *full, const char *prefix, const char *name) {
    snprintf(full, NAME_BYTES, "%s%s", prefix, name);
    return full;
}

/* Weights normal and biases 0, of the latest layer. */
static void initialize(yoke_model *model) {
    yoke_preset_fill(model, 0, (yoke_fill){YOKE_FILL_NORMAL, STD});
    yoke_preset_fill(model, 1, (yoke_fill){YOKE_FILL_CONSTANT, 0});
}

static yoke_value add_conv(yoke_model *model, yoke_value input, yoke_conv2d_options conv) {
    conv.struct_size = sizeof conv;
    yoke_value value = yoke_conv2d(model, input, &conv);
    initialize(model);
    return value;
}

static yoke_value add_linear(yoke_model *model, yoke_value input, const char *prefix,
                             const char *name, int features) {
    char full[NAME_BYTES];
    return yoke_preset_linear(model, input, join(full, prefix, name), features, STD);
}

/* A layer norm; it reads a flat value or a sequence. */
static yoke_value add_norm(yoke_model *model, yoke_value input, const char *prefix,
                           const char *name) {
    char full[NAME_BYTES];
    yoke_layer_norm_options norm = YOKE_LAYER_NORM_OPTIONS_INIT;
    norm.name = join(full, prefix, name);
    norm.epsilon = 1e-6;
    return yoke_layer_norm(model, input, &norm);
}

/* A sequence, a position for each pixel, as an image of the size of `like`. */
static yoke_value image_of(yoke_model *model, yoke_value sequence, yoke_value like) {
    if (yoke_builder_stopped(model)) return sequence;
    yoke_shape shape = yoke_value_shape(model, like.index);
    shape.channels = yoke_value_shape(model, sequence.index).channels;
    return yoke_reshape(
        model, yoke_transpose(model, sequence, YOKE_AXIS_HEIGHT, YOKE_AXIS_CHANNELS), shape);
}

/* torchvision's LayerNorm2d: over the channels of each pixel. */
static yoke_value add_image_norm(yoke_model *model, yoke_value input, const char *name) {
    return image_of(model, add_norm(model, yoke_sequence(model, input), "", name), input);
}

/* CNBlock: PREFIX is "features.1.0.". A filter of each channel, a perceptron at each pixel. */
static yoke_value add_block(yoke_model *model, yoke_value input, const char *prefix, int channels,
                            double dropped) {
    char name[NAME_BYTES];
    yoke_parameter_options scale = YOKE_PARAMETER_OPTIONS_INIT;
    scale.name = join(name, prefix, "layer_scale");
    scale.shape = yoke_shape_image(channels, 1, 1);
    scale.value = LAYER_SCALE;
    yoke_value factors = yoke_parameter_value(model, &scale);
    yoke_value value = add_conv(model, input,
                                (yoke_conv2d_options){.name = join(name, prefix, "block.0"),
                                                      .out_channels = channels,
                                                      .kernel = 7,
                                                      .padding = 3,
                                                      .groups = channels});
    value = add_norm(model, yoke_sequence(model, value), prefix, "block.2");
    value = yoke_gelu(model, add_linear(model, value, prefix, "block.3", 4 * channels));
    value = image_of(model, add_linear(model, value, prefix, "block.5", channels), input);
    value = yoke_multiply(model, value, factors);
    return yoke_add(model, input, yoke_stochastic_depth(model, value, dropped));
}

/* PREFIX.0 and PREFIX.1: a norm, and half of the height and width. */
static yoke_value add_downsampling(yoke_model *model, yoke_value input, const char *prefix,
                                   int channels) {
    char name[NAME_BYTES];
    yoke_value value = add_image_norm(model, input, join(name, prefix, ".0"));
    return add_conv(
        model, value,
        (yoke_conv2d_options){
            .name = join(name, prefix, ".1"), .out_channels = channels, .kernel = 2, .stride = 2});
}

static yoke_value add_stem(yoke_model *model) {
    yoke_value value = add_conv(
        model, yoke_model_input(model),
        (yoke_conv2d_options){
            .name = "features.0.0", .out_channels = stages[0].channels, .kernel = 4, .stride = 4});
    return add_image_norm(model, value, "features.0.1");
}

static yoke_value build_convnext(const yoke_preset_request *request) {
    yoke_model *model = request->model;
    yoke_value value = add_stem(model);
    double most = request->values[STOCHASTIC_DEPTH];
    for (int stage = 0, count = 0; stage < STAGES; stage++) {
        char prefix[PREFIX_BYTES];
        snprintf(prefix, sizeof prefix, "features.%d", 2 * stage);
        if (stage > 0) value = add_downsampling(model, value, prefix, stages[stage].channels);
        for (int i = 0; i < stages[stage].blocks; i++, count++) {
            snprintf(prefix, sizeof prefix, "features.%d.%d.", 2 * stage + 1, i);
            value = add_block(model, value, prefix, stages[stage].channels,
                              most * count / (BLOCKS - 1));
        }
    }
    value = yoke_flatten(model, yoke_global_average_pool(model, value));
    value = add_norm(model, value, "classifier.", "0");
    return add_linear(model, value, "classifier.", "2", request->classes);
}

static const yoke_preset presets[] = {
    {.name = "convnext_tiny",
     .summary = "torchvision's",
     .build = build_convnext,
     .options = options,
     .input = {.channels = 3, .height = 224, .width = 224},
     .classes = 1000},
};
const yoke_preset_family yoke_convnext_family = {presets, sizeof presets / sizeof presets[0]};
