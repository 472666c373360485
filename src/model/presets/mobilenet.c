/* SPDX-License-Identifier: Apache-2.0 */
/* MobileNetV2 (Sandler et al. 2018): torchvision/models/mobilenetv2.py, with its names and
 * initialisation. */
#include <stdio.h>

#include "model/presets/preset.h"

enum { DROPOUT, WIDTH };

static const yoke_preset_option options[] = {
    [DROPOUT] = {"dropout", 0.2, 0, 0.99, true}, [WIDTH] = {"width", 1, 0.1, 8, true}, {0}};

/* The paper's table 2: `repeats` blocks, the first with this stride. */
static const struct {
    int expansion, channels, repeats, stride;
} stages[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
              {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
enum { STAGES = sizeof stages / sizeof stages[0], FIRST = 32, LAST = 1280 };

/* torchvision's _make_divisible: the nearest multiple of 8, but at most 10 % less. */
static int scaled(int channels, double width) {
    double wanted = channels * width;
    int rounded = (int)(wanted + 4) / 8 * 8;
    if (rounded < 8) rounded = 8;
    return rounded < 0.9 * wanted ? rounded + 8 : rounded;
}

static yoke_value add_activated(yoke_model *model, yoke_value input, const char *prefix,
                                yoke_preset_conv layer) {
    return yoke_relu6(model, yoke_preset_numbered(model, input, prefix, layer));
}

typedef struct block {
    int index; /* in `features` */
    int in, hidden, out, stride;
} block;

/* An inverted residual: expands the channels, filters each by itself, and narrows them again. */
static yoke_value add_block(yoke_model *model, yoke_value input, const block *b) {
    char prefix[32], norm[32];
    yoke_value value = input;
    int part = 0;
    if (b->hidden != b->in) {
        snprintf(prefix, sizeof prefix, "features.%d.conv.%d", b->index, part++);
        value = add_activated(model, value, prefix,
                              (yoke_preset_conv){.channels = b->hidden, .kernel = 1, .stride = 1});
    }
    snprintf(prefix, sizeof prefix, "features.%d.conv.%d", b->index, part++);
    value = add_activated(
        model, value, prefix,
        (yoke_preset_conv){
            .channels = b->hidden, .kernel = 3, .stride = b->stride, .groups = b->hidden});
    snprintf(prefix, sizeof prefix, "features.%d.conv.%d", b->index, part++);
    snprintf(norm, sizeof norm, "features.%d.conv.%d", b->index, part);
    value = yoke_preset_conv_norm(model, value,
                                  &(yoke_preset_conv){.conv = prefix,
                                                      .norm = norm,
                                                      .channels = b->out,
                                                      .kernel = 1,
                                                      .stride = 1,
                                                      .no_bias = true});
    bool shortcut = b->stride == 1 && b->in == b->out;
    return shortcut ? yoke_add(model, input, value) : value;
}

static yoke_value build_mobilenet(const yoke_preset_request *request) {
    yoke_model *model = request->model;
    double width = request->values[WIDTH], dropout = request->values[DROPOUT];
    block b = {.index = 1, .out = scaled(FIRST, width)};
    yoke_value value =
        add_activated(model, yoke_model_input(model), "features.0",
                      (yoke_preset_conv){.channels = b.out, .kernel = 3, .stride = 2});
    for (int stage = 0; stage < STAGES; stage++)
        for (int i = 0; i < stages[stage].repeats; i++, b.index++) {
            b.in = b.out;
            b.hidden = b.in * stages[stage].expansion;
            b.out = scaled(stages[stage].channels, width);
            b.stride = i == 0 ? stages[stage].stride : 1;
            value = add_block(model, value, &b);
        }
    value = add_activated(model, value, "features.18",
                          (yoke_preset_conv){.channels = scaled(LAST, width > 1 ? width : 1),
                                             .kernel = 1,
                                             .stride = 1});
    value = yoke_flatten(model, yoke_global_average_pool(model, value));
    if (dropout > 0) value = yoke_dropout(model, value, dropout);
    return yoke_preset_linear(model, value, "classifier.1", request->classes, 0.01);
}

static const yoke_preset presets[] = {
    {"mobilenet_v2",
     "torchvision's; width: its width_mult",
     build_mobilenet,
     NULL,
     options,
     {.channels = 3, .height = 224, .width = 224},
     1000},
};
const yoke_preset_family yoke_mobilenet_family = {presets, sizeof presets / sizeof presets[0]};
