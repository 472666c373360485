/* SPDX-License-Identifier: Apache-2.0 */
/* Residual networks: torchvision/models/resnet.py for 18, 34, 50 and ResNeXt;
 * kuangliu/pytorch-cifar for their 3x3 stem; He et al. 2015, section 4.2 (6n + 2 layers, 16
 * channels) with projection shortcuts (option B) for 20 to 56. Names and initialisation are
 * torchvision's throughout. */
#include <stdio.h>
#include <string.h>

#include "model/presets/preset.h"

#define STAGES 4

typedef struct resnet {
    bool large; /* 7x7 stem and max pool, for ImageNet; otherwise a 3x3 stem */
    bool bottleneck;
    int width;               /* channels of the first stage; doubles every stage */
    int blocks[STAGES];      /* 0: no such stage */
    int groups, group_width; /* ResNeXt: of a bottleneck's 3x3 convolution; 0: one group */
} resnet;

/* PREFIX.conv and PREFIX.norm: "layer1.0.conv1" with "layer1.0.bn1". */
typedef struct conv_norm {
    const char *prefix, *conv, *norm;
    int channels, kernel, stride;
    int groups; /* 0: 1 */
} conv_norm;

static yoke_value add_conv_norm(yoke_model *model, yoke_value input, const conv_norm *layer) {
    char conv[64], norm[64];
    snprintf(conv, sizeof conv, "%s%s", layer->prefix, layer->conv);
    snprintf(norm, sizeof norm, "%s%s", layer->prefix, layer->norm);
    return yoke_preset_conv_norm(model, input,
                                 &(yoke_preset_conv){.conv = conv,
                                                     .norm = norm,
                                                     .channels = layer->channels,
                                                     .kernel = layer->kernel,
                                                     .stride = layer->stride,
                                                     .groups = layer->groups,
                                                     .no_bias = true});
}

struct block {
    const char *prefix; /* "layer1.0." */
    bool bottleneck, project;
    int width, stride;
    int groups, group_width;
};

/* torchvision's ResNet v1.5: the bottleneck's stride is at its 3x3 convolution. */
static yoke_value add_block(yoke_model *model, yoke_value input, const struct block *block) {
    const char *prefix = block->prefix;
    int width = block->width, out = block->bottleneck ? 4 * width : width, stride = block->stride;
    yoke_value value = input, shortcut = input;
    if (block->bottleneck) {
        /* group_width is that of the first stage, where a ResNet's has 64 channels */
        int groups = block->groups;
        int inner = groups > 0 ? width * block->group_width / 64 * groups : width;
        value = add_conv_norm(model, value, &(conv_norm){prefix, "conv1", "bn1", inner, 1, 1});
        value = yoke_relu(model, value);
        value = add_conv_norm(model, value,
                              &(conv_norm){prefix, "conv2", "bn2", inner, 3, stride, groups});
        value = yoke_relu(model, value);
        value = add_conv_norm(model, value, &(conv_norm){prefix, "conv3", "bn3", out, 1, 1});
    } else {
        value = add_conv_norm(model, value, &(conv_norm){prefix, "conv1", "bn1", width, 3, stride});
        value = yoke_relu(model, value);
        value = add_conv_norm(model, value, &(conv_norm){prefix, "conv2", "bn2", width, 3, 1});
    }
    if (block->project)
        shortcut = add_conv_norm(
            model, input, &(conv_norm){prefix, "downsample.0", "downsample.1", out, 1, stride});
    return yoke_relu(model, yoke_add(model, value, shortcut));
}

static yoke_value add_stem(yoke_model *model, const resnet *net) {
    yoke_value input = yoke_model_input(model);
    bool large = net->large;
    conv_norm stem = {"", "conv1", "bn1", net->width, large ? 7 : 3, large ? 2 : 1};
    yoke_value value = yoke_relu(model, add_conv_norm(model, input, &stem));
    if (!large) return value;
    yoke_pool_options pool = {.struct_size = sizeof pool, .kernel = 3, .stride = 2, .padding = 1};
    return yoke_max_pool(model, value, &pool);
}

static yoke_value add_stages(yoke_model *model, yoke_value value, const resnet *net) {
    for (int stage = 0; stage < STAGES && net->blocks[stage] > 0; stage++) {
        for (int i = 0; i < net->blocks[stage]; i++) {
            char prefix[32];
            snprintf(prefix, sizeof prefix, "layer%d.%d.", stage + 1, i);
            bool first = i == 0;
            value = add_block(model, value,
                              &(struct block){.prefix = prefix,
                                              .bottleneck = net->bottleneck,
                                              .project = first && (stage > 0 || net->bottleneck),
                                              .width = net->width << stage,
                                              .stride = first && stage > 0 ? 2 : 1,
                                              .groups = net->groups,
                                              .group_width = net->group_width});
        }
    }
    return value;
}

static yoke_value build_resnet(const yoke_preset_request *request) {
    yoke_model *model = request->model;
    const resnet *net = request->preset->member;
    yoke_value value = add_stages(model, add_stem(model, net), net);
    value = yoke_flatten(model, yoke_global_average_pool(model, value));
    return yoke_preset_linear(model, value, "fc", request->classes, 0);
}

#define RESNET(name, summary, side, classes, ...)                                                  \
    {                                                                                              \
        name, summary, build_resnet, &(const resnet)__VA_ARGS__, NULL,                             \
            {.channels = 3, .height = side, .width = side}, classes                                \
    }
#define IMAGENET(name, ...) RESNET(name, "torchvision's", 224, 1000, __VA_ARGS__)
#define STEM3(name, ...)                                                                           \
    RESNET(name, "torchvision's with a 3x3 stem and no max pool", 32, 10, __VA_ARGS__)
#define CIFAR(name, ...) RESNET(name, "He et al. 2015 for CIFAR-10, option B", 32, 10, __VA_ARGS__)

static const yoke_preset presets[] = {
    IMAGENET("resnet18", {true, false, 64, {2, 2, 2, 2}}),
    IMAGENET("resnet34", {true, false, 64, {3, 4, 6, 3}}),
    IMAGENET("resnet50", {true, true, 64, {3, 4, 6, 3}}),
    RESNET("resnext50", "torchvision's resnext50_32x4d", 224, 1000,
           {true, true, 64, {3, 4, 6, 3}, 32, 4}),
    STEM3("resnet18-cifar", {false, false, 64, {2, 2, 2, 2}}),
    STEM3("resnet34-cifar", {false, false, 64, {3, 4, 6, 3}}),
    STEM3("resnet50-cifar", {false, true, 64, {3, 4, 6, 3}}),
    CIFAR("resnet20", {false, false, 16, {3, 3, 3}}),
    CIFAR("resnet32", {false, false, 16, {5, 5, 5}}),
    CIFAR("resnet44", {false, false, 16, {7, 7, 7}}),
    CIFAR("resnet56", {false, false, 16, {9, 9, 9}}),
};
const yoke_preset_family yoke_resnet_family = {presets, sizeof presets / sizeof presets[0]};
