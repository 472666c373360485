/* SPDX-License-Identifier: Apache-2.0 */
/* EfficientNet-B0 (Tan and Le 2019): torchvision/models/efficientnet.py, with its names and
 * initialisation. */
#include <math.h>
#include <stdio.h>

#include "model/presets/preset.h"
#include "yoke/composed.h"

enum { DROPOUT, STOCHASTIC_DEPTH };

static const yoke_preset_option options[] = {
    [DROPOUT] = {"dropout", 0.2, 0, 0.99, true},
    [STOCHASTIC_DEPTH] = {"stochastic_depth", 0.2, 0, 0.99, true}, /* of the last block */
    {0}};

/* The paper's table 1: `repeats` blocks, the first with this stride. */
static const struct {
    int expansion, kernel, stride, channels, repeats;
} stages[] = {{1, 3, 1, 16, 1},  {6, 3, 2, 24, 2},  {6, 5, 2, 40, 2}, {6, 3, 2, 80, 3},
              {6, 5, 1, 112, 3}, {6, 5, 2, 192, 4}, {6, 3, 1, 320, 1}};
enum { STAGES = sizeof stages / sizeof stages[0], BLOCKS = 16, FIRST = 32, LAST = 1280 };
enum { PREFIX_BYTES = 48, NAME_BYTES = 64 };

static yoke_value add_activated(yoke_model *model, yoke_value input, const char *prefix,
                                yoke_preset_conv layer) {
    return yoke_silu(model, yoke_preset_numbered(model, input, prefix, layer));
}

/* PREFIX.fc1 or PREFIX.fc2: a linear layer of the channels' means. */
static yoke_value add_squeeze(yoke_model *model, yoke_value input, const char *prefix,
                              const char *suffix, int channels) {
    char name[NAME_BYTES + 8];
    snprintf(name, sizeof name, "%s.%s", prefix, suffix);
    yoke_conv2d_options conv = {.struct_size = sizeof conv,
                                .name = name,
                                .out_channels = channels,
                                .kernel = 1,
                                .kaiming_fan_out = true};
    return yoke_conv2d(model, input, &conv);
}

typedef struct block {
    char prefix[PREFIX_BYTES]; /* "features.1.0.block." */
    int in, hidden, out, kernel, stride;
    double dropped; /* probability that a row skips the block */
} block;

/* Squeeze-and-excitation: a factor for each channel, made of the means of all. */
static yoke_value add_excitation(yoke_model *model, yoke_value input, const char *prefix,
                                 const block *b) {
    yoke_value scale = yoke_global_average_pool(model, input);
    scale = yoke_silu(model, add_squeeze(model, scale, prefix, "fc1", b->in / 4));
    scale = yoke_sigmoid(model, add_squeeze(model, scale, prefix, "fc2", b->hidden));
    return yoke_multiply(model, input, scale);
}

/* MBConv: expands the channels, filters and scales each by itself, and narrows them again. */
static yoke_value add_block(yoke_model *model, yoke_value input, const block *b) {
    char prefix[NAME_BYTES];
    yoke_value value = input;
    int part = 0;
    if (b->hidden != b->in) {
        snprintf(prefix, sizeof prefix, "%s%d", b->prefix, part++);
        value = add_activated(model, value, prefix,
                              (yoke_preset_conv){.channels = b->hidden, .kernel = 1, .stride = 1});
    }
    snprintf(prefix, sizeof prefix, "%s%d", b->prefix, part++);
    value = add_activated(
        model, value, prefix,
        (yoke_preset_conv){
            .channels = b->hidden, .kernel = b->kernel, .stride = b->stride, .groups = b->hidden});
    snprintf(prefix, sizeof prefix, "%s%d", b->prefix, part++);
    value = add_excitation(model, value, prefix, b);
    snprintf(prefix, sizeof prefix, "%s%d", b->prefix, part);
    value = yoke_preset_numbered(model, value, prefix,
                                 (yoke_preset_conv){.channels = b->out, .kernel = 1, .stride = 1});
    if (b->stride > 1 || b->in != b->out) return value;
    return yoke_add(model, input, yoke_stochastic_depth(model, value, b->dropped));
}

static yoke_value build_efficientnet(const yoke_preset_request *request) {
    yoke_model *model = request->model;
    double dropout = request->values[DROPOUT];
    block b = {.out = FIRST};
    int count = 0;
    yoke_value value =
        add_activated(model, yoke_model_input(model), "features.0",
                      (yoke_preset_conv){.channels = FIRST, .kernel = 3, .stride = 2});
    for (int stage = 0; stage < STAGES; stage++)
        for (int i = 0; i < stages[stage].repeats; i++, count++) {
            snprintf(b.prefix, sizeof b.prefix, "features.%d.%d.block.", stage + 1, i);
            b.in = b.out;
            b.hidden = b.in * stages[stage].expansion;
            b.out = stages[stage].channels;
            b.kernel = stages[stage].kernel;
            b.stride = i == 0 ? stages[stage].stride : 1;
            b.dropped = request->values[STOCHASTIC_DEPTH] * count / BLOCKS;
            value = add_block(model, value, &b);
        }
    value = add_activated(model, value, "features.8",
                          (yoke_preset_conv){.channels = LAST, .kernel = 1, .stride = 1});
    value = yoke_flatten(model, yoke_global_average_pool(model, value));
    if (dropout > 0) value = yoke_dropout(model, value, dropout);
    value = yoke_preset_linear(model, value, "classifier.1", request->classes, 0);
    yoke_preset_fill(model, 0, (yoke_fill){YOKE_FILL_UNIFORM, 1 / sqrt(request->classes)});
    yoke_preset_fill(model, 1, (yoke_fill){YOKE_FILL_CONSTANT, 0});
    return value;
}

static const yoke_preset presets[] = {
    {.name = "efficientnet_b0",
     .summary = "torchvision's",
     .build = build_efficientnet,
     .options = options,
     .input = {.channels = 3, .height = 224, .width = 224},
     .classes = 1000},
};
const yoke_preset_family yoke_efficientnet_family = {presets, sizeof presets / sizeof presets[0]};
