/* SPDX-License-Identifier: Apache-2.0 */
/* Joins elementary functions to expressions, so that a chain of them is one pass over memory. A
 * layer takes in the layers before it that it alone reads and whose values have its shape, as far
 * as the inputs and terms of one expression go. An add or a product of two values of one shape
 * joins a function, but not its like: they have faster plans of their own. */
#include <string.h>

#include "model/graph.h"

const yoke_node *yoke_only_reader(const yoke_model *model, int value) {
    const yoke_node *reader = NULL;
    if (yoke_is_output(model, value)) return NULL;
    for (int i = value; i < model->layer_count; i++) {
        const yoke_node *layer = &model->layers[i];
        for (int k = 0; k < layer->input_count; k++) {
            if (layer->inputs[k] != value) continue;
            if (reader != NULL) return NULL;
            reader = layer;
        }
    }
    return reader;
}

static bool is_function(const yoke_node *layer) {
    return layer->operation.kind == YOKE_OP_EXPRESSION;
}

/* An add or a product that nothing else waits for. */
static bool may_join(const yoke_model *model, const yoke_node *layer) {
    const yoke_node *reader = yoke_only_reader(model, layer->output);
    bool relu = reader != NULL && reader->operation.kind == YOKE_OP_ACTIVATION &&
                reader->operation.activation == YOKE_RELU;
    return (layer->operation.kind == YOKE_OP_ADD && !relu) ||
           (layer->operation.kind == YOKE_OP_MULTIPLY && !layer->operation.by_channel);
}

/* The layer alone, as an expression. */
static yoke_joined alone(const yoke_node *layer) {
    yoke_joined own = {.expression = layer->operation.expression};
    memcpy(own.inputs, layer->inputs, sizeof own.inputs);
    if (is_function(layer)) return own;
    bool add = layer->operation.kind == YOKE_OP_ADD, twice = layer->inputs[0] == layer->inputs[1];
    own.expression = (yoke_expression){
        .inputs = twice ? 1 : 2,
        .count = 1,
        .terms = {{.function = add ? YOKE_FN_ADD : YOKE_FN_MULTIPLY,
                   .arguments = {0, twice ? 0 : 1}}},
    };
    return own;
}

/* The number of `value` among the inputs, which may gain one; -1: there is no room. */
static int take_input(yoke_joined *joined, int value) {
    int *count = &joined->expression.inputs;
    for (int k = 0; k < *count; k++)
        if (joined->inputs[k] == value) return k;
    if (*count == YOKE_EXPRESSION_INPUTS) return -1;
    joined->inputs[*count] = value;
    return (*count)++;
}

/* Appends the terms of `from`; places[k] is where its input k is found in `to`. */
static bool append_terms(yoke_joined *to, const yoke_expression *from, const int *places) {
    int before = to->expression.count;
    if (before + from->count > YOKE_TERMS_LIMIT) return false;
    for (int t = 0; t < from->count; t++) {
        yoke_term *term = &to->expression.terms[to->expression.count++];
        *term = from->terms[t];
        for (int a = 0; a < YOKE_ARGUMENTS; a++) {
            int own = term->arguments[a];
            bool is_input = own < YOKE_EXPRESSION_INPUTS;
            if (is_input && own >= from->inputs) continue; /* the function has no such argument */
            term->arguments[a] = (uint8_t)(is_input ? places[own] : own + before);
        }
    }
    return true;
}

/* Appends an expression with its inputs; *place is where its value is found. */
static bool take_in(yoke_joined *to, const yoke_joined *from, int *place) {
    yoke_joined trial = *to;
    int places[YOKE_EXPRESSION_INPUTS];
    for (int k = 0; k < from->expression.inputs; k++) {
        places[k] = take_input(&trial, from->inputs[k]);
        if (places[k] < 0) return false;
    }
    if (!append_terms(&trial, &from->expression, places)) return false;
    *to = trial;
    *place = YOKE_EXPRESSION_INPUTS + trial.expression.count - 1;
    return true;
}

static bool same_shape(yoke_shape a, yoke_shape b) {
    return a.channels == b.channels && a.height == b.height && a.width == b.width;
}

/* The writer of input k of `layer`, where it may be computed with the layer; or NULL. joined[]:
 * what the layers before it are. */
static const yoke_node *joinable(const yoke_model *model, const yoke_joined *joined,
                                 const yoke_node *layer, int k) {
    int value = layer->inputs[k];
    const yoke_node *writer = value > 0 ? &model->layers[value - 1] : NULL;
    if (writer == NULL || yoke_only_reader(model, value) != layer) return NULL;
    bool expression = joined[writer - model->layers].expression.count > 0;
    bool both = expression ? is_function(layer) || may_join(model, layer)
                           : is_function(layer) && may_join(model, writer);
    return both && same_shape(writer->shape, layer->shape) ? writer : NULL;
}

/* Joins a layer to what its inputs are; joined[] knows of all layers before it. */
static void join_layer(const yoke_model *model, yoke_joined *joined, const yoke_node *layer) {
    yoke_joined own = alone(layer), made = {0};
    int places[YOKE_EXPRESSION_INPUTS];
    bool taken[YOKE_EXPRESSION_INPUTS] = {false}, any = false, fits = true;
    for (int k = 0; k < own.expression.inputs && fits; k++) {
        const yoke_node *writer = joinable(model, joined, layer, k);
        yoke_joined before = {0};
        if (writer != NULL) {
            before = joined[writer - model->layers];
            if (before.expression.count == 0) before = alone(writer);
            taken[k] = take_in(&made, &before, &places[k]);
            any = any || taken[k];
        }
        if (!taken[k]) places[k] = take_input(&made, own.inputs[k]);
        fits = places[k] >= 0;
    }
    fits = fits && any && append_terms(&made, &own.expression, places);
    for (int k = 0; fits && k < own.expression.inputs; k++)
        if (taken[k]) joined[joinable(model, joined, layer, k) - model->layers].absorbed = true;
    if (fits)
        joined[layer - model->layers] = made;
    else if (is_function(layer))
        joined[layer - model->layers] = own;
}

void yoke_join_expressions(const yoke_model *model, yoke_joined *joined) {
    for (int i = 0; i < model->layer_count; i++) {
        const yoke_node *layer = &model->layers[i];
        if (is_function(layer) || may_join(model, layer)) join_layer(model, joined, layer);
    }
}
