/* SPDX-License-Identifier: Apache-2.0 */
/* VGG with batch norm (Simonyan and Zisserman 2015): torchvision/models/vgg.py, with its names and
 * initialisation. An image needs 32 x 32 pixels. */
#include <stdio.h>

#include "model/presets/preset.h"

enum { DROPOUT, HIDDEN };

static const yoke_preset_option options[] = {[DROPOUT] = {"dropout", 0.5, 0, 0.99, true},
                                             [HIDDEN] = {"hidden", 4096, 1, 1 << 20, false},
                                             {0}};

#define POOL (-1)
#define END 0
/* Channels of the convolutions; torchvision's configuration A. */
static const int vgg11[] = {64,  POOL, 128,  POOL, 256, 256,  POOL,
                            512, 512,  POOL, 512,  512, POOL, END};

/* torchvision counts convolution, batch norm, ReLU and pool in one list. */
static yoke_value add_features(yoke_model *model, const int *channels) {
    static const yoke_pool_options halve = {.struct_size = sizeof halve, .kernel = 2};
    yoke_value value = yoke_model_input(model);
    for (int index = 0; *channels != END; channels++) {
        char conv[32], norm[32];
        if (*channels == POOL) {
            value = yoke_max_pool(model, value, &halve);
            index++;
            continue;
        }
        snprintf(conv, sizeof conv, "features.%d", index);
        snprintf(norm, sizeof norm, "features.%d", index + 1);
        value = yoke_preset_conv_norm(
            model, value,
            &(yoke_preset_conv){
                .conv = conv, .norm = norm, .channels = *channels, .kernel = 3, .stride = 1});
        value = yoke_relu(model, value);
        index += 3;
    }
    return value;
}

static yoke_value add_hidden_layer(const yoke_preset_request *request, yoke_value value,
                                   const char *name) {
    double dropout = request->values[DROPOUT];
    value = yoke_preset_linear(request->model, value, name, (int)request->values[HIDDEN], 0.01);
    value = yoke_relu(request->model, value);
    return dropout > 0 ? yoke_dropout(request->model, value, dropout) : value;
}

static yoke_value build_vgg(const yoke_preset_request *request) {
    yoke_model *model = request->model;
    yoke_value value = add_features(model, request->preset->member);
    value = yoke_flatten(model, yoke_adaptive_average_pool(model, value, 7, 7));
    value = add_hidden_layer(request, value, "classifier.0");
    value = add_hidden_layer(request, value, "classifier.3");
    return yoke_preset_linear(model, value, "classifier.6", request->classes, 0.01);
}

static const yoke_preset presets[] = {
    {"vgg11_bn",
     "torchvision's; hidden: features of the two hidden layers",
     build_vgg,
     vgg11,
     options,
     {.channels = 3, .height = 224, .width = 224},
     1000},
};
const yoke_preset_family yoke_vgg_family = {presets, sizeof presets / sizeof presets[0]};
