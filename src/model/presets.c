/* Models by name. A residual network is one row of a table. */
#include <stdio.h>
#include <string.h>

#include "model/graph.h"

#define STAGES 4

enum stem { STEM_MLP, STEM_IMAGENET, STEM_CIFAR };

/* torchvision/models/resnet.py for 18, 34 and 50; kuangliu/pytorch-cifar for their 3x3 stem; He et
 * al. 2015, section 4.2 (6n + 2 layers, 16 channels) with projection shortcuts (option B) for 20
 * to 56. Dropout of 0.5 in hidden layers: Srivastava et al. 2014. Names and initialisation are
 * torchvision's throughout. */
struct preset {
    const char *name;
    enum stem stem;
    bool bottleneck;
    int width;          /* channels of the first stage; doubles every stage */
    int blocks[STAGES]; /* 0: no such stage */
    double dropout;     /* of every hidden layer; 0: no dropout */
};

static const struct preset presets[] = {
    {"mlp", STEM_MLP, false, 1024, {0}, 0},
    {"mlp-dropout", STEM_MLP, false, 1024, {0}, 0.5},
    {"resnet18", STEM_IMAGENET, false, 64, {2, 2, 2, 2}, 0},
    {"resnet34", STEM_IMAGENET, false, 64, {3, 4, 6, 3}, 0},
    {"resnet50", STEM_IMAGENET, true, 64, {3, 4, 6, 3}, 0},
    {"resnet18-cifar", STEM_CIFAR, false, 64, {2, 2, 2, 2}, 0},
    {"resnet34-cifar", STEM_CIFAR, false, 64, {3, 4, 6, 3}, 0},
    {"resnet50-cifar", STEM_CIFAR, true, 64, {3, 4, 6, 3}, 0},
    {"resnet20", STEM_CIFAR, false, 16, {3, 3, 3}, 0},
    {"resnet32", STEM_CIFAR, false, 16, {5, 5, 5}, 0},
    {"resnet44", STEM_CIFAR, false, 16, {7, 7, 7}, 0},
    {"resnet56", STEM_CIFAR, false, 16, {9, 9, 9}, 0},
};
#define PRESET_COUNT (sizeof presets / sizeof presets[0])

const char *yoke_model_preset_name(int index) {
    return index >= 0 && (size_t)index < PRESET_COUNT ? presets[index].name : NULL;
}

static yoke_status find_preset(const char *name, const struct preset **found) {
    const char *names[PRESET_COUNT];
    if (name == NULL) return FAIL(YOKE_ERROR_ARGUMENT, "yoke_model_preset needs a name");
    for (size_t i = 0; i < PRESET_COUNT; i++) {
        *found = &presets[i];
        if (strcmp(presets[i].name, name) == 0) return YOKE_OK;
        names[i] = presets[i].name;
    }
    const char *near = yoke_text_nearest(name, names, PRESET_COUNT);
    if (near != NULL)
        return FAIL(YOKE_ERROR_ARGUMENT, "no model is called '%s'; did you mean '%s'?", name, near);
    return FAIL(YOKE_ERROR_ARGUMENT,
                "no model is called '%s'; known: mlp, mlp-dropout, resnet18/34/50 (also with "
                "-cifar) and resnet20/32/44/56",
                name);
}

/* Residual networks. */

/* PREFIX.conv and PREFIX.norm: "layer1.0.conv1" with "layer1.0.bn1". */
typedef struct conv_norm {
    const char *prefix, *conv, *norm;
    int channels, kernel, stride;
} conv_norm;

static yoke_value add_conv_norm(yoke_model *model, yoke_value input, const conv_norm *layer) {
    char conv[64], norm[64];
    snprintf(conv, sizeof conv, "%s%s", layer->prefix, layer->conv);
    snprintf(norm, sizeof norm, "%s%s", layer->prefix, layer->norm);
    yoke_value value =
        yoke_conv2d(model, input,
                    &(yoke_conv2d_options){.struct_size = sizeof(yoke_conv2d_options),
                                           .name = conv,
                                           .out_channels = layer->channels,
                                           .kernel = layer->kernel,
                                           .stride = layer->stride,
                                           .padding = layer->kernel / 2,
                                           .kaiming_fan_out = true});
    return yoke_batch_norm(
        model, value,
        &(yoke_batch_norm_options){.struct_size = sizeof(yoke_batch_norm_options),
                                   .name = norm,
                                   .epsilon = 1e-5,
                                   .momentum = 0.1});
}

struct block {
    const char *prefix; /* "layer1.0." */
    bool bottleneck, project;
    int width, stride;
};

/* torchvision's ResNet v1.5: the bottleneck's stride is at its 3x3 convolution. */
static yoke_value add_block(yoke_model *model, yoke_value input, const struct block *block) {
    const char *prefix = block->prefix;
    int width = block->width, out = block->bottleneck ? 4 * width : width, stride = block->stride;
    yoke_value value = input, shortcut = input;
    if (block->bottleneck) {
        value = add_conv_norm(model, value, &(conv_norm){prefix, "conv1", "bn1", width, 1, 1});
        value = yoke_relu(model, value);
        value = add_conv_norm(model, value, &(conv_norm){prefix, "conv2", "bn2", width, 3, stride});
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

static yoke_value add_stem(yoke_model *model, const struct preset *preset) {
    yoke_value input = yoke_model_input(model);
    bool large = preset->stem == STEM_IMAGENET;
    conv_norm stem = {"", "conv1", "bn1", preset->width, large ? 7 : 3, large ? 2 : 1};
    yoke_value value = yoke_relu(model, add_conv_norm(model, input, &stem));
    if (!large) return value;
    yoke_pool_options pool = {.struct_size = sizeof pool, .kernel = 3, .stride = 2, .padding = 1};
    return yoke_max_pool(model, value, &pool);
}

static yoke_value add_stages(yoke_model *model, yoke_value value, const struct preset *preset) {
    for (int stage = 0; stage < STAGES && preset->blocks[stage] > 0; stage++) {
        for (int i = 0; i < preset->blocks[stage]; i++) {
            char prefix[32];
            snprintf(prefix, sizeof prefix, "layer%d.%d.", stage + 1, i);
            bool first = i == 0;
            value = add_block(model, value,
                              &(struct block){.prefix = prefix,
                                              .bottleneck = preset->bottleneck,
                                              .project = first && (stage > 0 || preset->bottleneck),
                                              .width = preset->width << stage,
                                              .stride = first && stage > 0 ? 2 : 1});
        }
    }
    return value;
}

static yoke_value add_linear_layer(yoke_model *model, yoke_value input, const char *name,
                                   int features) {
    yoke_linear_options options = {
        .struct_size = sizeof options, .name = name, .out_features = features};
    return yoke_linear(model, input, &options);
}

static yoke_value add_resnet(yoke_model *model, const struct preset *preset, int classes) {
    yoke_value value = add_stages(model, add_stem(model, preset), preset);
    value = yoke_flatten(model, yoke_global_average_pool(model, value));
    return add_linear_layer(model, value, "fc", classes);
}

static yoke_value add_hidden_layer(yoke_model *model, yoke_value input, const char *name,
                                   const struct preset *preset) {
    yoke_value value = yoke_relu(model, add_linear_layer(model, input, name, preset->width));
    return preset->dropout > 0 ? yoke_dropout(model, value, preset->dropout) : value;
}

static yoke_value add_mlp(yoke_model *model, const struct preset *preset, int classes) {
    yoke_value value = yoke_flatten(model, yoke_model_input(model));
    value = add_hidden_layer(model, value, "fc1", preset);
    value = add_hidden_layer(model, value, "fc2", preset);
    return add_linear_layer(model, value, "fc3", classes);
}

yoke_status yoke_model_preset(yoke_model **model, const char *name, yoke_shape input, int classes,
                              const yoke_loss_options *loss) {
    const struct preset *preset = NULL;
    if (model == NULL) return FAIL(YOKE_ERROR_ARGUMENT, "yoke_model_preset: `model` is NULL");
    *model = NULL;
    TRY(find_preset(name, &preset));
    if (classes < 1)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: %d classes, must be at least 1", name, classes);
    yoke_model *made = NULL;
    TRY(yoke_model_create(&made, name, input));
    yoke_value output = preset->stem == STEM_MLP ? add_mlp(made, preset, classes)
                                                 : add_resnet(made, preset, classes);
    yoke_status status = yoke_model_finish(made, output, loss);
    if (status != YOKE_OK) {
        yoke_model_destroy(made);
        return status;
    }
    *model = made;
    return YOKE_OK;
}
