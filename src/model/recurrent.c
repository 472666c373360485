/* SPDX-License-Identifier: Apache-2.0 */
/* LSTM and GRU of linear layers and elementary operations: one linear layer for the inputs of all
 * positions, and for each position one of the state before, with shared weights. */
#include "yoke/recurrent.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

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

/* The linear layer of the inputs, or that of a state: the first is "hh", others share its
 * weights. */
static yoke_value project(const pass *p, yoke_value input, const char *which, int position) {
    char first[NAME_BYTES], name[NAME_BYTES + 16];
    yoke_linear_options linear = YOKE_LINEAR_OPTIONS_INIT;
    snprintf(first, sizeof first, "%s.%s.%d%s", p->options->name, which, p->layer,
             p->reverse ? "r" : "");
    snprintf(name, sizeof name, "%s.%d", first, position);
    linear.name = position > 0 ? name : first;
    linear.shared_with = position > 0 ? first : NULL;
    linear.out_features = gates_of(p);
    linear.no_bias = p->options->no_bias;
    yoke_value made = yoke_linear(p->model, input, &linear);
    if (position == 0) name_tensors(p, which);
    return made;
}

static yoke_value gate(const pass *p, yoke_value gates, int index) {
    int hidden = p->options->hidden;
    return yoke_slice(p->model, gates, YOKE_AXIS_CHANNELS, index * hidden, (index + 1) * hidden, 0);
}

/* c = sigmoid(f) c + sigmoid(i) tanh(g); h = sigmoid(o) tanh(c). */
static yoke_value lstm_step(const pass *p, yoke_value inputs, yoke_value states, yoke_value *cell) {
    yoke_model *model = p->model;
    yoke_value gates = yoke_add(model, states, inputs);
    yoke_value kept =
        yoke_multiply(model, yoke_map(model, YOKE_FN_SIGMOID, gate(p, gates, 1)), *cell);
    yoke_value taken = yoke_multiply(model, yoke_map(model, YOKE_FN_SIGMOID, gate(p, gates, 0)),
                                     yoke_map(model, YOKE_FN_TANH, gate(p, gates, 2)));
    *cell = yoke_add(model, kept, taken);
    return yoke_multiply(model, yoke_map(model, YOKE_FN_SIGMOID, gate(p, gates, 3)),
                         yoke_map(model, YOKE_FN_TANH, *cell));
}

/* n = tanh(in + sigmoid(r) hn); h = n + sigmoid(z) (h - n). */
static yoke_value gru_step(const pass *p, yoke_value inputs, yoke_value states, yoke_value state) {
    yoke_model *model = p->model;
    yoke_value reset =
        yoke_map(model, YOKE_FN_SIGMOID, yoke_add(model, gate(p, states, 0), gate(p, inputs, 0)));
    yoke_value update =
        yoke_map(model, YOKE_FN_SIGMOID, yoke_add(model, gate(p, states, 1), gate(p, inputs, 1)));
    yoke_value news = yoke_map(
        model, YOKE_FN_TANH,
        yoke_add(model, yoke_multiply(model, reset, gate(p, states, 2)), gate(p, inputs, 2)));
    return yoke_add(model, news, yoke_multiply(model, update, yoke_subtract(model, state, news)));
}

/* Zeros of a state: places before the channels of a value. */
static yoke_value zeros(const pass *p, yoke_value value) {
    yoke_value padded = yoke_slice(p->model, value, YOKE_AXIS_CHANNELS, -p->options->hidden, 1, 0);
    return yoke_slice(p->model, padded, YOKE_AXIS_CHANNELS, 0, p->options->hidden, 0);
}

/* The states of positions begin .. end - 1 as one sequence. */
static yoke_value join_states(const pass *p, const yoke_value *states, int begin, int end) {
    if (end - begin == 1)
        return yoke_reshape(p->model, states[begin], yoke_shape_sequence(1, p->options->hidden));
    int middle = begin + (end - begin) / 2;
    return yoke_concat_along(p->model, join_states(p, states, begin, middle),
                             join_states(p, states, middle, end), YOKE_AXIS_HEIGHT);
}

/* What goes on to the next position: behind a row's end, what was there before. */
static yoke_value carry(const pass *p, int position, yoke_value before, yoke_value now) {
    if (p->valid.index < 0) return now;
    return yoke_where(p->model, yoke_select(p->model, p->valid, position), now, before);
}

/* The output of a position, 0 behind a row's end. */
static yoke_value output_of(const pass *p, int position, yoke_value state) {
    if (p->valid.index < 0) return state;
    return yoke_multiply(p->model, state, yoke_select(p->model, p->valid, position));
}

static yoke_value run_pass(const pass *p, yoke_value input, yoke_value *states, int positions) {
    yoke_value inputs = project(p, input, "ih", 0), state = {YOKE_NONE}, cell = state;
    for (int i = 0; i < positions; i++) {
        int at = p->reverse ? positions - 1 - i : i;
        yoke_value own = yoke_select(p->model, inputs, at);
        if (i == 0) state = cell = zeros(p, own);
        yoke_value gates = project(p, state, "hh", i), before = state, cell_before = cell;
        state = p->gru ? gru_step(p, own, gates, state) : lstm_step(p, own, gates, &cell);
        states[at] = output_of(p, at, state);
        if (i + 1 == positions) break;
        state = carry(p, at, before, state);
        if (!p->gru) cell = carry(p, at, cell_before, cell);
    }
    return join_states(p, states, 0, positions);
}

static yoke_value add_layers(yoke_model *model, yoke_value input,
                             const yoke_recurrent_options *options, bool gru, yoke_value *states,
                             int positions) {
    yoke_value valid = {YOKE_NONE};
    if (options->lengths != NULL) valid = yoke_valid_positions(model, *options->lengths, positions);
    for (int layer = 0; layer < options->layers; layer++) {
        pass p = {.model = model, .options = options, .layer = layer, .gru = gru, .valid = valid};
        if (layer > 0 && options->dropout > 0) input = yoke_dropout(model, input, options->dropout);
        yoke_value forward = run_pass(&p, input, states, positions);
        p.reverse = true;
        input = options->bidirectional
                    ? yoke_concat(model, forward, run_pass(&p, input, states, positions))
                    : forward;
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
    int positions = yoke_value_shape(model, input.index).height;
    size_t bytes = (size_t)positions * sizeof(yoke_value);
    yoke_value *states = malloc(bytes);
    if (states == NULL)
        return yoke_builder_result(model, FAIL_MEMORY(bytes, "the states of a recurrent layer"));
    yoke_value made = add_layers(model, input, &options, gru, states, positions);
    free(states);
    return made;
}

yoke_value yoke_lstm(yoke_model *model, yoke_value input, const yoke_recurrent_options *options) {
    return add_recurrent(model, input, options, false);
}

yoke_value yoke_gru(yoke_model *model, yoke_value input, const yoke_recurrent_options *options) {
    return add_recurrent(model, input, options, true);
}
