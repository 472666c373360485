/* SPDX-License-Identifier: Apache-2.0 */
/* DenseNet-BC (Huang et al. 2017): torchvision/models/densenet.py, with its names and
 * initialisation. */
#include <math.h>
#include <stdio.h>

#include "model/presets/preset.h"

enum { DROPOUT };

static const yoke_preset_option options[] = {[DROPOUT] = {"dropout", 0, 0, 0.99, true}, {0}};

enum {
    FIRST = 64,
    GROWTH = 32,
    BOTTLENECK = 4 * GROWTH,
    BLOCKS = 4,
    PREFIX_BYTES = 64,
    NAME_BYTES = 96
};

static const int layers_of_block[BLOCKS] = {6, 12, 24, 16};

/* Normal weights by nn.init.kaiming_normal_: fan_in, for a ReLU. */
static yoke_value add_conv(yoke_model *model, yoke_value input, const yoke_conv2d_options *conv) {
    double inputs = (double)yoke_shape_of(model, input).channels * conv->kernel * conv->kernel;
    yoke_value value = yoke_conv2d(model, input, conv);
    yoke_preset_fill(model, 0, (yoke_fill){YOKE_FILL_NORMAL, sqrt(2 / inputs)});
    return value;
}

/* PREFIX.normSUFFIX and a ReLU. */
static yoke_value add_norm(yoke_model *model, yoke_value input, const char *prefix,
                           const char *suffix) {
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%s.norm%s", prefix, suffix);
    yoke_batch_norm_options norm = YOKE_BATCH_NORM_OPTIONS_INIT;
    norm.name = name;
    return yoke_relu(model, yoke_batch_norm(model, input, &norm));
}

/* A batch norm, a ReLU and a convolution: PREFIX.norm1 and PREFIX.conv1. */
static yoke_value add_norm_conv(yoke_model *model, yoke_value input, const char *prefix,
                                const char *suffix, int channels, int kernel) {
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%s.conv%s", prefix, suffix);
    yoke_conv2d_options conv = {.struct_size = sizeof conv,
                                .name = name,
                                .out_channels = channels,
                                .kernel = kernel,
                                .padding = kernel / 2,
                                .no_bias = true};
    return add_conv(model, add_norm(model, input, prefix, suffix), &conv);
}

static yoke_value add_stem(yoke_model *model) {
    yoke_conv2d_options conv = {.struct_size = sizeof conv,
                                .name = "features.conv0",
                                .out_channels = FIRST,
                                .kernel = 7,
                                .stride = 2,
                                .padding = 3,
                                .no_bias = true};
    yoke_pool_options pool = {.struct_size = sizeof pool, .kernel = 3, .stride = 2, .padding = 1};
    yoke_value value = add_conv(model, yoke_model_input(model), &conv);
    return yoke_max_pool(model, add_norm(model, value, "features", "0"), &pool);
}

/* Each layer reads all that the block has made before it, and adds its own channels. */
static yoke_value add_block(const yoke_preset_request *request, yoke_value value, int block) {
    yoke_model *model = request->model;
    double dropout = request->values[DROPOUT];
    for (int layer = 1; layer <= layers_of_block[block]; layer++) {
        char prefix[PREFIX_BYTES];
        snprintf(prefix, sizeof prefix, "features.denseblock%d.denselayer%d", block + 1, layer);
        yoke_value made = add_norm_conv(model, value, prefix, "1", BOTTLENECK, 1);
        made = add_norm_conv(model, made, prefix, "2", GROWTH, 3);
        if (dropout > 0) made = yoke_dropout(model, made, dropout);
        value = yoke_concat(model, value, made);
    }
    return value;
}

/* Between blocks: half of the channels, half of the height and width. */
static yoke_value add_transition(yoke_model *model, yoke_value value, int block) {
    char prefix[PREFIX_BYTES];
    yoke_pool_options pool = {.struct_size = sizeof pool, .kernel = 2};
    snprintf(prefix, sizeof prefix, "features.transition%d", block + 1);
    value = add_norm_conv(model, value, prefix, "", yoke_shape_of(model, value).channels / 2, 1);
    return yoke_average_pool(model, value, &pool);
}

static yoke_value build_densenet(const yoke_preset_request *request) {
    yoke_model *model = request->model;
    yoke_value value = add_stem(model);
    for (int block = 0; block < BLOCKS; block++) {
        if (block > 0) value = add_transition(model, value, block - 1);
        value = add_block(request, value, block);
    }
    value = yoke_flatten(model,
                         yoke_global_average_pool(model, add_norm(model, value, "features", "5")));
    value = yoke_preset_linear(model, value, "classifier", request->classes, 0);
    yoke_preset_fill(model, 1, (yoke_fill){YOKE_FILL_CONSTANT, 0});
    return value;
}

static const yoke_preset presets[] = {
    {.name = "densenet121",
     .summary = "torchvision's; dropout: its drop_rate",
     .build = build_densenet,
     .options = options,
     .input = {.channels = 3, .height = 224, .width = 224},
     .classes = 1000},
};
const yoke_preset_family yoke_densenet_family = {presets, sizeof presets / sizeof presets[0]};
