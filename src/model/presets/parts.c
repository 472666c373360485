/* SPDX-License-Identifier: Apache-2.0 */
/* Parts that several families are made of. */
#include <stdio.h>

#include "model/presets/preset.h"

yoke_value yoke_preset_conv_norm(yoke_model *model, yoke_value input,
                                 const yoke_preset_conv *layer) {
    yoke_conv2d_options conv = {.struct_size = sizeof conv,
                                .name = layer->conv,
                                .out_channels = layer->channels,
                                .kernel = layer->kernel,
                                .stride = layer->stride,
                                .padding = layer->kernel / 2,
                                .groups = layer->groups,
                                .no_bias = layer->no_bias,
                                .kaiming_fan_out = true};
    yoke_batch_norm_options norm = YOKE_BATCH_NORM_OPTIONS_INIT;
    norm.name = layer->norm;
    return yoke_batch_norm(model, yoke_conv2d(model, input, &conv), &norm);
}

yoke_tensor *yoke_preset_parameter(yoke_model *model, int index) {
    if (yoke_builder_stopped(model)) return NULL;
    return &model->tensors[model->layers[model->layer_count - 1].tensors[index]];
}

void yoke_preset_fill(yoke_model *model, int index, yoke_fill fill) {
    yoke_tensor *tensor = yoke_preset_parameter(model, index);
    if (tensor != NULL) tensor->fill = fill;
}

yoke_value yoke_preset_numbered(yoke_model *model, yoke_value input, const char *prefix,
                                yoke_preset_conv layer) {
    char conv[64], norm[64];
    snprintf(conv, sizeof conv, "%s.0", prefix);
    snprintf(norm, sizeof norm, "%s.1", prefix);
    layer.conv = conv;
    layer.norm = norm;
    layer.no_bias = true;
    return yoke_preset_conv_norm(model, input, &layer);
}

yoke_value yoke_preset_linear(yoke_model *model, yoke_value input, const char *name, int features,
                              double std) {
    yoke_linear_options options = {
        .struct_size = sizeof options, .name = name, .out_features = features, .std = std};
    return yoke_linear(model, input, &options);
}
