/* SPDX-License-Identifier: Apache-2.0 */
/* LSTM and GRU: in each direction of a layer, a linear layer for the inputs of all positions and a
 * recurrence that walks through them. */
#include "yoke/recurrent.h"

#include <math.h>
#include <stdio.h>

#include "model/graph.h"
#include "yoke/lengths.h"
#include "yoke/transformer.h"

enum { NAME_BYTES = 224, LSTM_GATES = 4, GRU_GATES = 3 };

/* One layer in one direction. */
typedef struct pass {
    yoke_model *model;
    const yoke_recurrent_options *options;
    int layer;
    bool reverse, gru;
    yoke_value valid; /* [positions, 1] 1 at a row's own positions; index -1: all are */
} pass;

static int gates_of(const pass *p) {
    return (p->gru ? GRU_GATES : LSTM_GATES) * p->options->hidden;
}

/* Gives the tensors of the layer that was just added PyTorch's names and initial values. */
static void name_tensors(const pass *p, const char *which) {
    static const char *const kinds[] = {"weight", "bias"};
    yoke_model *model = p->model;
    if (yoke_builder_stopped(model)) return;
    const yoke_node *layer = &model->layers[model->layer_count - 1];
    for (int k = 0; k < layer->tensor_count; k++) {
        char name[NAME_BYTES];
        yoke_tensor *tensor = &model->tensors[layer->tensors[k]];
        snprintf(name, sizeof name, "%s.%s_%s_l%d%s", p->options->name, kinds[k], which, p->layer,
                 p->reverse ? "_reverse" : "");
        tensor->fill = (yoke_fill){YOKE_FILL_UNIFORM, 1 / sqrt((double)p->options->hidden)};
        yoke_tensor_rename(model, tensor, name);
    }
}

/* The recurrence over the inputs' share of the gates. */
static yoke_status add_recurrence(const pass *p, yoke_value inputs) {
    yoke_model *model = p->model;
    yoke_node *layer = NULL;
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%s.hh.%d%s", p->options->name, p->layer, p->reverse ? "r" : "");
    TRY(yoke_builder_layer(model, YOKE_OP_RECURRENCE, name, &layer));
    TRY(yoke_builder_read(model, layer, inputs));
    if (p->valid.index >= 0) TRY(yoke_builder_read(model, layer, p->valid));
    layer->operation.bias = !p->options->no_bias;
    layer->operation.reverse = p->reverse;
    yoke_shape shape = yoke_value_shape(model, inputs.index);
    shape.channels = p->options->hidden;
    TRY(yoke_builder_shape(layer, shape));
    yoke_tensor weight = {
        .ndim = 2, .shape = {gates_of(p), p->options->hidden}, .trainable = true, .groups = 1};
    yoke_tensor bias = {.ndim = 1, .shape = {gates_of(p)}, .trainable = true, .groups = 1};
    TRY(yoke_tensor_add(model, layer->operation.name, "weight", &weight, &layer->tensors[0]));
    layer->tensor_count = 1;
    if (p->options->no_bias) return YOKE_OK;
    TRY(yoke_tensor_add(model, layer->operation.name, "bias", &bias, &layer->tensors[1]));
    layer->tensor_count = 2;
    return YOKE_OK;
}

static yoke_value run_pass(const pass *p, yoke_value input) {
    yoke_linear_options linear = YOKE_LINEAR_OPTIONS_INIT;
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%s.ih.%d%s", p->options->name, p->layer, p->reverse ? "r" : "");
    linear.name = name;
    linear.out_features = gates_of(p);
    linear.no_bias = p->options->no_bias;
    yoke_value inputs = yoke_linear(p->model, input, &linear);
    name_tensors(p, "ih");
    if (yoke_builder_stopped(p->model)) return inputs;
    yoke_value states = yoke_builder_result(p->model, add_recurrence(p, inputs));
    name_tensors(p, "hh");
    return states;
}

static yoke_value add_layers(yoke_model *model, yoke_value input,
                             const yoke_recurrent_options *options, bool gru) {
    yoke_value valid = {YOKE_NONE};
    if (options->lengths != NULL)
        valid = yoke_valid_positions(model, *options->lengths,
                                     yoke_value_shape(model, input.index).height);
    for (int layer = 0; layer < options->layers; layer++) {
        pass p = {.model = model, .options = options, .layer = layer, .gru = gru, .valid = valid};
        if (layer > 0 && options->dropout > 0) input = yoke_dropout(model, input, options->dropout);
        yoke_value forward = run_pass(&p, input);
        p.reverse = true;
        input = options->bidirectional ? yoke_concat(model, forward, run_pass(&p, input)) : forward;
    }
    return input;
}

static yoke_status check_options(const yoke_model *model, yoke_value input, const char *what,
                                 yoke_recurrent_options *options) {
    const char *name = options->name != NULL ? options->name : what;
    yoke_shape shape = yoke_shape_of(model, input);
    if (options->layers == 0) options->layers = 1;
    if (options->name == NULL || options->name[0] == '\0' ||
        snprintf(NULL, 0, "%s", options->name) > NAME_BYTES / 2)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: needs a name of 1 to %d characters", what,
                    NAME_BYTES / 2);
    if (!shape.sequence)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: reads %d x %d x %d%s, needs a sequence", name,
                    shape.channels, shape.height, shape.width, yoke_shape_kind(shape));
    if (options->hidden < 1 || options->hidden > 1 << 24)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: %d hidden features, must be at least 1", name,
                    options->hidden);
    if (options->layers < 1)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: %d layers, must be at least 1", name,
                    options->layers);
    return YOKE_OK;
}

static yoke_value add_recurrent(yoke_model *model, yoke_value input,
                                const yoke_recurrent_options *given, bool gru) {
    yoke_recurrent_options options = {.struct_size = sizeof options};
    if (yoke_builder_stopped(model)) return (yoke_value){YOKE_NONE};
    yoke_status status =
        yoke_options_load(&options, sizeof options, given, "yoke_recurrent_options");
    if (status == YOKE_OK) status = check_options(model, input, gru ? "gru" : "lstm", &options);
    if (status != YOKE_OK) return yoke_builder_result(model, status);
    return add_layers(model, input, &options, gru);
}

yoke_value yoke_lstm(yoke_model *model, yoke_value input, const yoke_recurrent_options *options) {
    return add_recurrent(model, input, options, false);
}

yoke_value yoke_gru(yoke_model *model, yoke_value input, const yoke_recurrent_options *options) {
    return add_recurrent(model, input, options, true);
}
