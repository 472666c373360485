/* SPDX-License-Identifier: Apache-2.0 */
/* Vision transformers: torchvision/models/vision_transformer.py, its names and its initialisation
 * (but normal numbers where torchvision truncates them). */
#include <math.h>
#include <stdio.h>

#include "model/presets/preset.h"
#include "yoke/transformer.h"

#define PREFIX_BYTES 64 /* of a layer's part */
#define NAME_BYTES 96

enum { PATCH, LAYERS, WIDTH, HEADS };

/* patch 0: 16, and 4 for images of less than SMALL_IMAGE pixels a side. */
#define SMALL_IMAGE 128

static const yoke_preset_option tiny[] = {[PATCH] = {"patch", 0, 0, 1024, false},
                                          [LAYERS] = {"layers", 12, 1, 1000, false},
                                          [WIDTH] = {"width", 192, 1, 1 << 16, false},
                                          [HEADS] = {"heads", 3, 1, 1 << 16, false},
                                          {0}};

static const yoke_fill zero = {YOKE_FILL_CONSTANT, 0};

/* nn.init.xavier_uniform_ */
static yoke_fill xavier(int in, int out) {
    return (yoke_fill){YOKE_FILL_UNIFORM, sqrt(6.0 / (in + out))};
}

static yoke_value add_linear(yoke_model *model, yoke_value input, const char *prefix,
                             const char *name, int features) {
    char full[NAME_BYTES];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    yoke_linear_options options = YOKE_LINEAR_OPTIONS_INIT;
    options.name = full;
    options.out_features = features;
    return yoke_linear(model, input, &options);
}

static yoke_value add_norm(yoke_model *model, yoke_value input, const char *prefix,
                           const char *name) {
    char full[NAME_BYTES];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    yoke_layer_norm_options options = YOKE_LAYER_NORM_OPTIONS_INIT;
    options.name = full;
    options.epsilon = 1e-6;
    return yoke_layer_norm(model, input, &options);
}

/* nn.MultiheadAttention names the two parameters of its first product as its own. */
static yoke_value add_attention(const yoke_preset_request *request, yoke_value input,
                                const char *prefix) {
    yoke_model *model = request->model;
    int width = (int)request->values[WIDTH];
    char names[2][NAME_BYTES];
    snprintf(names[0], NAME_BYTES, "%sin_proj_weight", prefix);
    snprintf(names[1], NAME_BYTES, "%sin_proj_bias", prefix);
    yoke_value value = add_linear(model, input, prefix, "in_proj", 3 * width);
    yoke_preset_fill(model, 0, xavier(width, 3 * width));
    yoke_preset_fill(model, 1, zero);
    for (int i = 0; i < 2; i++)
        yoke_tensor_rename(model, yoke_preset_parameter(model, i), names[i]);
    yoke_attention_options attention = YOKE_ATTENTION_OPTIONS_INIT;
    attention.heads = (int)request->values[HEADS];
    value = yoke_attention(model, value, &attention);
    value = add_linear(model, value, prefix, "out_proj", width);
    yoke_preset_fill(model, 1, zero);
    return value;
}

static yoke_value add_perceptron(const yoke_preset_request *request, yoke_value input,
                                 const char *prefix) {
    const yoke_fill bias = {YOKE_FILL_NORMAL, 1e-6};
    yoke_model *model = request->model;
    int width = (int)request->values[WIDTH];
    yoke_value value = add_linear(model, input, prefix, "0", 4 * width);
    yoke_preset_fill(model, 0, xavier(width, 4 * width));
    yoke_preset_fill(model, 1, bias);
    value = add_linear(model, yoke_gelu(model, value), prefix, "3", width);
    yoke_preset_fill(model, 0, xavier(4 * width, width));
    yoke_preset_fill(model, 1, bias);
    return value;
}

static yoke_value add_layer(const yoke_preset_request *request, yoke_value input, int index) {
    yoke_model *model = request->model;
    char prefix[PREFIX_BYTES], part[PREFIX_BYTES];
    snprintf(prefix, sizeof prefix, "encoder.layers.encoder_layer_%d.", index);
    snprintf(part, sizeof part, "encoder.layers.encoder_layer_%d.self_attention.", index);
    yoke_value value = add_norm(model, input, prefix, "ln_1");
    input = yoke_add(model, input, add_attention(request, value, part));
    snprintf(part, sizeof part, "encoder.layers.encoder_layer_%d.mlp.", index);
    value = add_norm(model, input, prefix, "ln_2");
    return yoke_add(model, input, add_perceptron(request, value, part));
}

static yoke_status choose_patch(const yoke_preset_request *request, int *patch) {
    yoke_shape image = yoke_model_input_shape(request->model);
    int least = image.height < image.width ? image.height : image.width;
    *patch = (int)request->values[PATCH];
    if (*patch == 0) *patch = least < SMALL_IMAGE ? 4 : 16;
    if (image.height % *patch != 0 || image.width % *patch != 0)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%s: an image of %d x %d is no whole number of patches of %d x %d; choose a "
                    "size that divides it (%s:patch=...)",
                    request->preset->name, image.height, image.width, *patch, *patch,
                    request->preset->name);
    return YOKE_OK;
}

/* Patches of the image as a sequence, behind the class token, with their positions added. */
static yoke_value add_patches(const yoke_preset_request *request, int patch) {
    yoke_model *model = request->model;
    yoke_shape image = yoke_model_input_shape(model);
    int width = (int)request->values[WIDTH];
    yoke_conv2d_options options = YOKE_CONV2D_OPTIONS_INIT;
    options.name = "conv_proj";
    options.out_channels = width;
    options.kernel = options.stride = patch;
    yoke_value value = yoke_conv2d(model, yoke_model_input(model), &options);
    double inputs = (double)image.channels * patch * patch;
    yoke_preset_fill(model, 0, (yoke_fill){YOKE_FILL_NORMAL, sqrt(1 / inputs)});
    yoke_preset_fill(model, 1, zero);
    value = yoke_class_token(model, yoke_sequence(model, value), "class_token");
    yoke_embedding_options places = YOKE_EMBEDDING_OPTIONS_INIT;
    places.name = "encoder.pos_embedding";
    places.count = 1 + image.height / patch * (image.width / patch);
    places.std = 0.02;
    value = yoke_positional_embedding(model, value, &places);
    yoke_tensor *positions = yoke_preset_parameter(model, 0);
    if (positions != NULL) {
        positions->ndim = 3;
        positions->shape[0] = 1;
        positions->shape[1] = places.count;
        positions->shape[2] = width;
    }
    yoke_tensor_rename(model, positions, places.name);
    return value;
}

static yoke_value build_vit(const yoke_preset_request *request) {
    yoke_model *model = request->model;
    int patch = 0;
    yoke_status status = choose_patch(request, &patch);
    if (status != YOKE_OK) return yoke_builder_result(model, status);
    yoke_value value = add_patches(request, patch);
    for (int i = 0; i < (int)request->values[LAYERS]; i++)
        value = add_layer(request, value, i);
    value = yoke_select(model, add_norm(model, value, "encoder.", "ln"), 0);
    value = add_linear(model, value, "heads.", "head", request->classes);
    yoke_preset_fill(model, 0, zero);
    yoke_preset_fill(model, 1, zero);
    return value;
}

static const yoke_preset presets[] = {
    {"vit_tiny",
     "torchvision's VisionTransformer; patch 0: 16, below 128 pixels 4",
     build_vit,
     NULL,
     tiny,
     {.channels = 3, .height = 224, .width = 224},
     1000},
};
const yoke_preset_family yoke_vit_family = {presets, sizeof presets / sizeof presets[0]};
