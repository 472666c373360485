/* SPDX-License-Identifier: Apache-2.0 */
/* The encoder and decoder of Vaswani et al. 2017, as torch.nn.Transformer with norm_first=True:
 * names, shapes and initial values are its, but that a decoder's multihead_attn has the rows of
 * in_proj_weight in two parts, q_proj and kv_proj. Before them are embeddings of tokens with the
 * paper's sines and cosines of positions, behind them a linear layer. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "model/presets/preset.h"
#include "yoke/attention.h"
#include "yoke/lengths.h"
#include "yoke/transformer.h"

enum { LAYERS, WIDTH, HEADS, FEEDFORWARD, DROPOUT };

static const yoke_preset_option options[] = {
    [LAYERS] = {"layers", 2, 1, 96, false}, /* of the encoder, and of the decoder */
    [WIDTH] = {"width", 128, 2, 1 << 14, false},
    [HEADS] = {"heads", 4, 1, 256, false},
    [FEEDFORWARD] = {"feedforward", 512, 1, 1 << 16, false},
    [DROPOUT] = {"dropout", 0, 0, 0.99, true},
    {0}};

#define NAME_BYTES 96

/* A layer of one of the two: "encoder.layers.0". */
typedef struct part {
    const yoke_preset_request *request;
    char prefix[NAME_BYTES / 2];
} part;

static yoke_value dropped(const part *in, yoke_value value) {
    double dropout = in->request->values[DROPOUT];
    return dropout > 0 ? yoke_dropout(in->request->model, value, dropout) : value;
}

static yoke_value add_norm(const part *in, yoke_value value, const char *name) {
    char full[NAME_BYTES];
    yoke_layer_norm_options norm = YOKE_LAYER_NORM_OPTIONS_INIT;
    snprintf(full, sizeof full, "%s.%s", in->prefix, name);
    norm.name = full;
    return yoke_layer_norm(in->request->model, value, &norm);
}

/* nn.init.xavier_uniform_, which nn.Transformer gives every matrix; whole: the rows of the matrix
 * that PyTorch has. */
static yoke_value add_linear(const part *in, yoke_value value, const char *name, int features,
                             int whole) {
    char full[NAME_BYTES];
    yoke_model *model = in->request->model;
    int read = yoke_shape_of(model, value).channels;
    snprintf(full, sizeof full, "%s.%s", in->prefix, name);
    value = yoke_preset_linear(model, value, full, features, 0);
    yoke_preset_fill(model, 0, (yoke_fill){YOKE_FILL_UNIFORM, sqrt(6.0 / (read + whole))});
    return value;
}

/* nn.MultiheadAttention's products begin with a bias of 0. */
static yoke_value add_product(const part *in, yoke_value value, const char *name, int features,
                              int whole) {
    value = add_linear(in, value, name, features, whole);
    yoke_preset_fill(in->request->model, 1, (yoke_fill){YOKE_FILL_CONSTANT, 0});
    return value;
}

static int width_of(const part *in) {
    return (int)in->request->values[WIDTH];
}

static yoke_value head_values(const part *in, yoke_value value, int index) {
    yoke_model *model = in->request->model;
    int width = width_of(in), first = index * width;
    value = yoke_slice(model, value, YOKE_AXIS_CHANNELS, first, first + width, 0);
    return yoke_split_heads(model, value, (int)in->request->values[HEADS]);
}

/* The product of queries, keys and values has PyTorch's names. */
static yoke_value add_in_proj(const part *in, yoke_value value) {
    yoke_model *model = in->request->model;
    char full[NAME_BYTES];
    value = add_product(in, value, "self_attn.in_proj", 3 * width_of(in), 3 * width_of(in));
    static const char *const names[] = {"weight", "bias"};
    for (int i = 0; i < 2; i++) {
        snprintf(full, sizeof full, "%s.self_attn.in_proj_%s", in->prefix, names[i]);
        yoke_tensor_rename(model, yoke_preset_parameter(model, i), full);
    }
    return value;
}

/* Positions look at all that are no padding. */
static yoke_value attend_encoder(const part *in, yoke_value value, yoke_value mask) {
    yoke_model *model = in->request->model;
    yoke_value all = add_in_proj(in, value);
    value = yoke_attend(model, head_values(in, all, 0), head_values(in, all, 1),
                        head_values(in, all, 2), mask);
    return add_product(in, yoke_merge_heads(model, value), "self_attn.out_proj", width_of(in),
                       width_of(in));
}

/* Positions look at themselves and those before, which are never padding where a label counts. */
static yoke_value attend_decoder(const part *in, yoke_value value) {
    yoke_attention_options attention = YOKE_ATTENTION_OPTIONS_INIT;
    attention.heads = (int)in->request->values[HEADS];
    attention.causal = true;
    value = yoke_attention(in->request->model, add_in_proj(in, value), &attention);
    return add_product(in, value, "self_attn.out_proj", width_of(in), width_of(in));
}

/* Queries of the target look at the encoded source. */
static yoke_value attend_source(const part *in, yoke_value value, yoke_value source,
                                yoke_value mask) {
    yoke_model *model = in->request->model;
    int width = width_of(in);
    yoke_value queries = add_product(in, value, "multihead_attn.q_proj", width, 3 * width);
    yoke_value all = add_product(in, source, "multihead_attn.kv_proj", 2 * width, 3 * width);
    queries = yoke_split_heads(model, queries, (int)in->request->values[HEADS]);
    value = yoke_attend(model, queries, head_values(in, all, 0), head_values(in, all, 1), mask);
    return add_product(in, yoke_merge_heads(model, value), "multihead_attn.out_proj", width, width);
}

static yoke_value add_perceptron(const part *in, yoke_value value) {
    int inner = (int)in->request->values[FEEDFORWARD];
    value = yoke_relu(in->request->model, add_linear(in, value, "linear1", inner, inner));
    return add_linear(in, dropped(in, value), "linear2", width_of(in), width_of(in));
}

static yoke_value add_branch(const part *in, yoke_value value, yoke_value branch) {
    return yoke_add(in->request->model, value, dropped(in, branch));
}

static yoke_value encode(const yoke_preset_request *request, yoke_value value, yoke_value mask) {
    part in = {.request = request};
    for (int i = 0; i < (int)request->values[LAYERS]; i++) {
        snprintf(in.prefix, sizeof in.prefix, "encoder.layers.%d", i);
        value = add_branch(&in, value, attend_encoder(&in, add_norm(&in, value, "norm1"), mask));
        value = add_branch(&in, value, add_perceptron(&in, add_norm(&in, value, "norm2")));
    }
    snprintf(in.prefix, sizeof in.prefix, "encoder");
    return add_norm(&in, value, "norm");
}

static yoke_value decode(const yoke_preset_request *request, yoke_value value, yoke_value source,
                         yoke_value mask) {
    part in = {.request = request};
    for (int i = 0; i < (int)request->values[LAYERS]; i++) {
        snprintf(in.prefix, sizeof in.prefix, "decoder.layers.%d", i);
        value = add_branch(&in, value, attend_decoder(&in, add_norm(&in, value, "norm1")));
        value =
            add_branch(&in, value, attend_source(&in, add_norm(&in, value, "norm2"), source, mask));
        value = add_branch(&in, value, add_perceptron(&in, add_norm(&in, value, "norm3")));
    }
    snprintf(in.prefix, sizeof in.prefix, "decoder");
    return add_norm(&in, value, "norm");
}

/* sin(position / 10000^(i / width)) for even features i, the cosine of the same for i + 1. */
static yoke_value add_positions(yoke_model *model, yoke_value value) {
    yoke_shape shape = yoke_shape_of(model, value);
    size_t count = (size_t)shape.height * (size_t)shape.channels;
    if (yoke_builder_stopped(model)) return value;
    float *waves = yoke_malloc(count * sizeof *waves);
    if (waves == NULL)
        return yoke_builder_result(model, FAIL_MEMORY(count * sizeof *waves, "positions"));
    for (int position = 0; position < shape.height; position++)
        for (int i = 0; i < shape.channels; i++) {
            double angle = position / pow(10000, (double)(i / 2 * 2) / shape.channels);
            waves[(size_t)position * (size_t)shape.channels + (size_t)i] =
                (float)(i % 2 == 0 ? sin(angle) : cos(angle));
        }
    yoke_value places = yoke_constant(model, shape, waves);
    yoke_free(waves);
    return yoke_add(model, value, places);
}

/* Features of about 1, as the waves are: the embedding begins with 1 / sqrt(width), and the paper's
 * factor undoes that. */
static yoke_value embed(const yoke_preset_request *request, yoke_value tokens, const char *name) {
    yoke_model *model = request->model;
    double width = request->values[WIDTH];
    yoke_embedding_options embedding = YOKE_EMBEDDING_OPTIONS_INIT;
    embedding.name = name;
    embedding.count = request->classes;
    embedding.features = (int)width;
    embedding.std = 1 / sqrt(width);
    yoke_value value = yoke_embedding(model, tokens, &embedding);
    value = add_positions(model, yoke_map_with(model, YOKE_FN_SCALE, value, sqrt(width), 0));
    return dropped(&(part){.request = request}, value);
}

static yoke_value build_transformer(const yoke_preset_request *request) {
    yoke_model *model = request->model;
    yoke_shape tokens = yoke_model_input_shape(model);
    if ((int)request->values[WIDTH] % (int)request->values[HEADS] != 0)
        return yoke_builder_result(
            model, FAIL(YOKE_ERROR_ARGUMENT, "transformer: %d heads must divide the width, %d",
                        (int)request->values[HEADS], (int)request->values[WIDTH]));
    yoke_value length = yoke_model_add_input(model, "source_length", yoke_shape_vector(1));
    yoke_value target = yoke_model_add_input(model, "target", tokens);
    yoke_value mask = yoke_padding_mask(model, length, tokens.channels);
    yoke_value source = embed(request, yoke_model_input(model), "source_embedding");
    source = encode(request, source, mask);
    target = decode(request, embed(request, target, "target_embedding"), source, mask);
    return yoke_preset_linear(model, target, "generator", request->classes, 0);
}

static const yoke_preset presets[] = {
    {.name = "transformer",
     .summary = "encoder and decoder; reads pairs of texts",
     .build = build_transformer,
     .options = options,
     .input = {.channels = 64, .height = 1, .width = 1, .flat = true},
     .classes = 65},
};
const yoke_preset_family yoke_transformer_family = {presets, sizeof presets / sizeof presets[0]};
