/* SPDX-License-Identifier: Apache-2.0 */
/* GPT-2 (Radford et al. 2019), with the names and shapes of openai-community/gpt2. The vocabulary
 * is the classes of the rows, and the context the length of a row. */
#include <math.h>
#include <stdio.h>

#include "model/presets/preset.h"
#include "yoke/transformer.h"

enum { LAYERS, WIDTH, HEADS, CONTEXT, DROPOUT };

static const yoke_preset_option options[] = {
    [LAYERS] = {"layers", 4, 1, 96, false},
    [WIDTH] = {"width", 128, 1, 1 << 14, false},
    [HEADS] = {"heads", 4, 1, 256, false},
    [CONTEXT] = {"context", 0, 0, 1 << 16, false}, /* positions with an embedding; 0: a row's */
    [DROPOUT] = {"dropout", 0, 0, 0.99, true},
    {0}};

#define STD 0.02
#define NAME_BYTES 32

/* A layer of a block: "h.3.attn.c_attn". */
typedef struct block {
    const yoke_preset_request *request;
    int index;
} block;

static yoke_value dropped(const yoke_preset_request *request, yoke_value value) {
    double dropout = request->values[DROPOUT];
    return dropout > 0 ? yoke_dropout(request->model, value, dropout) : value;
}

static yoke_value normalized(yoke_model *model, yoke_value value, const char *name) {
    yoke_layer_norm_options norm = YOKE_LAYER_NORM_OPTIONS_INIT;
    norm.name = name;
    return yoke_layer_norm(model, value, &norm);
}

static yoke_value block_norm(const block *in, yoke_value value, const char *name) {
    char full[NAME_BYTES];
    snprintf(full, sizeof full, "h.%d.%s", in->index, name);
    return normalized(in->request->model, value, full);
}

/* Conv1D: a linear layer whose weight is [in, out]. */
static yoke_value conv1d(const block *in, yoke_value value, const char *name, int features,
                         double std) {
    char full[NAME_BYTES];
    yoke_linear_options linear = YOKE_LINEAR_OPTIONS_INIT;
    snprintf(full, sizeof full, "h.%d.%s", in->index, name);
    linear.name = full;
    linear.out_features = features;
    linear.transposed = true;
    linear.std = std;
    return yoke_linear(in->request->model, value, &linear);
}

/* The layers that end a branch begin smaller, since 2 * layers of them add up. */
static yoke_value add_block(const block *in, yoke_value value) {
    const yoke_preset_request *request = in->request;
    yoke_model *model = request->model;
    int width = (int)request->values[WIDTH];
    double ending = STD / sqrt(2 * request->values[LAYERS]);
    yoke_attention_options attention = YOKE_ATTENTION_OPTIONS_INIT;
    attention.heads = (int)request->values[HEADS];
    attention.causal = true;
    yoke_value x = block_norm(in, value, "ln_1");
    x = conv1d(in, x, "attn.c_attn", 3 * width, STD);
    x = conv1d(in, yoke_attention(model, x, &attention), "attn.c_proj", width, ending);
    value = yoke_add(model, value, dropped(request, x));
    x = conv1d(in, block_norm(in, value, "ln_2"), "mlp.c_fc", 4 * width, STD);
    x = conv1d(in, yoke_gelu_tanh(model, x), "mlp.c_proj", width, ending);
    return yoke_add(model, value, dropped(request, x));
}

static yoke_value build_gpt2(const yoke_preset_request *request) {
    yoke_model *model = request->model;
    yoke_embedding_options tokens = YOKE_EMBEDDING_OPTIONS_INIT, positions = tokens;
    yoke_linear_options head = YOKE_LINEAR_OPTIONS_INIT;
    int context = (int)request->values[CONTEXT];
    tokens.name = "wte";
    tokens.count = request->classes;
    tokens.features = (int)request->values[WIDTH];
    tokens.std = positions.std = STD;
    positions.name = "wpe";
    positions.count = context > 0 ? context : yoke_model_input_shape(model).channels;
    yoke_value value = yoke_embedding(model, yoke_model_input(model), &tokens);
    value = dropped(request, yoke_positional_embedding(model, value, &positions));
    for (int i = 0; i < (int)request->values[LAYERS]; i++)
        value = add_block(&(block){request, i}, value);
    head.name = "lm_head";
    head.out_features = request->classes;
    head.no_bias = true;
    head.shared_with = "wte";
    return yoke_linear(model, normalized(model, value, "ln_f"), &head);
}

static const yoke_preset presets[] = {
    {.name = "gpt2",
     .summary = "GPT-2; reads text",
     .build = build_gpt2,
     .options = options,
     .input = {.channels = 128, .height = 1, .width = 1, .flat = true},
     .classes = 65},
};
const yoke_preset_family yoke_gpt2_family = {presets, sizeof presets / sizeof presets[0]};
