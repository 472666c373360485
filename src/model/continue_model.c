/* SPDX-License-Identifier: Apache-2.0 */
/* A model of text that looks back only, made into one that reads a text part by part. Its tensors
 * are those of the whole model, so both take the same weights. */
#include <stdlib.h>
#include <string.h>

#include "model/graph.h"
#include "yoke/elementary.h"

typedef struct continuation {
    const yoke_model *from;
    yoke_model *to;
    int positions, context;
    int last;        /* the last layer that reads more than its own position, or the row's input */
    bool looks_back; /* some layer does */
    bool *along;     /* [values of `from`] whether it has a position for each token */
    int *values;     /* [values of `from`] in `to` */
    int *last_place; /* [values of `from`] the last position alone, in `to`; NONE: not made yet */
    yoke_value begin;
} continuation;

/* What may follow from a position's own features alone, for any number of positions. */
static bool is_own(const yoke_node *layer) {
    const yoke_operation *operation = &layer->operation;
    switch (operation->kind) {
    case YOKE_OP_LINEAR:
    case YOKE_OP_LAYER_NORM:
    case YOKE_OP_ACTIVATION:
    case YOKE_OP_ADD:
    case YOKE_OP_CONCAT:
    case YOKE_OP_SOFTMAX:
    case YOKE_OP_DROPOUT:
    case YOKE_OP_EXPRESSION:
        return true;
    case YOKE_OP_MULTIPLY:
        return !operation->by_channel;
    case YOKE_OP_REDUCE: /* over the features */
        return operation->output.height == operation->input.height;
    default:
        return false;
    }
}

static bool reads_tokens(const yoke_node *layer) {
    return layer->operation.kind == YOKE_OP_EMBEDDING && layer->inputs[0] == 0;
}

static bool looks_back(const yoke_node *layer) {
    return (layer->operation.kind == YOKE_OP_ATTENTION && layer->operation.causal) ||
           layer->operation.kind == YOKE_OP_POSITIONS;
}

static yoke_status refuse(const yoke_node *layer) {
    return FAIL(YOKE_ERROR_ARGUMENT,
                "%s (%s) may read other positions, and nothing of it can be kept from one token to "
                "the next",
                layer->operation.name, yoke_kind_name(layer->operation.kind));
}

/* Whether layer `index` has positions, and none of them reads a later one. */
static yoke_status follow(continuation *c, int index) {
    const yoke_node *layer = &c->from->layers[index];
    bool along = false, fits = true;
    for (int k = 0; k < layer->input_count; k++) {
        int value = layer->inputs[k];
        along = along || c->along[value];
        fits =
            fits && value > 0 && (c->along[value] || yoke_value_shape(c->from, value).height == 1);
    }
    bool mixes = reads_tokens(layer) || (along && looks_back(layer));
    if (mixes) c->last = index;
    c->looks_back = c->looks_back || (mixes && looks_back(layer));
    bool is_kept = mixes || (along && fits && is_own(layer));
    bool is_apart = !along && fits; /* a parameter, and what is made of it */
    c->along[layer->output] = is_kept;
    if (is_kept && layer->shape.sequence && layer->shape.height == c->context) return YOKE_OK;
    return is_apart && !is_kept ? YOKE_OK : refuse(layer);
}

/* Building. */

/* The value as layer `index` reads it: behind the last layer that looks back, one position is all
 * that anybody asks for. */
static yoke_status find_value(continuation *c, int value, int index, int *found) {
    *found = c->values[value];
    bool alone = index > c->last && c->along[value] && value <= c->last + 1 && c->positions > 1;
    if (!alone) return YOKE_OK;
    if (c->last_place[value] == YOKE_NONE)
        c->last_place[value] = yoke_slice(c->to, (yoke_value){*found}, YOKE_AXIS_HEIGHT,
                                          c->positions - 1, c->positions, 0)
                                   .index;
    *found = c->last_place[value];
    return c->to->error.status == YOKE_OK ? YOKE_OK : yoke_error_restore(&c->to->error);
}

static yoke_status copy_text(char **to, const char *from) {
    *to = yoke_strdup(from);
    return *to != NULL ? YOKE_OK : FAIL_MEMORY(strlen(from) + 1, "a name");
}

/* A constant's elements. */
static yoke_status copy_weights(yoke_operation *operation, const yoke_node *layer) {
    operation->weights = NULL;
    if (layer->operation.weights == NULL) return YOKE_OK;
    size_t bytes = yoke_row_elements(yoke_dims_of(layer->shape)) * sizeof(float);
    float *weights = yoke_malloc(bytes);
    if (weights == NULL) return FAIL_MEMORY(bytes, "a constant");
    operation->weights = memcpy(weights, layer->operation.weights, bytes);
    return YOKE_OK;
}

static void continue_layer(continuation *c, yoke_node *layer) {
    yoke_operation *operation = &layer->operation;
    operation->plain_weight = operation->kind == YOKE_OP_LINEAR;
    if (operation->kind != YOKE_OP_POSITIONS && operation->kind != YOKE_OP_ATTENTION) return;
    operation->kind = operation->kind == YOKE_OP_POSITIONS ? YOKE_OP_CONTINUED_POSITIONS
                                                           : YOKE_OP_CONTINUED_ATTENTION;
    operation->capacity = c->context;
}

static yoke_status copy_layer(continuation *c, int index) {
    const yoke_node *from = &c->from->layers[index];
    int inputs[YOKE_PLAN_INPUTS];
    for (int k = 0; k < from->input_count; k++)
        TRY(find_value(c, from->inputs[k], index, &inputs[k]));
    yoke_node *layer = NULL;
    TRY(yoke_builder_layer(c->to, from->operation.kind, from->operation.name, &layer));
    const char *name = layer->operation.name;
    int output = layer->output;
    *layer = *from;
    layer->operation.name = name;
    layer->operation.weights = NULL;
    layer->output = output;
    layer->recomputed = 0;
    layer->input_count = 0;
    TRY(copy_weights(&layer->operation, from));
    continue_layer(c, layer);
    for (int k = 0; k < from->input_count; k++)
        TRY(yoke_builder_read(c->to, layer, (yoke_value){inputs[k]}));
    if (layer->operation.capacity > 0) TRY(yoke_builder_read(c->to, layer, c->begin));
    yoke_shape shape = from->shape;
    if (c->along[from->output]) shape.height = index > c->last ? 1 : c->positions;
    c->values[from->output] = output;
    return yoke_builder_shape(layer, shape);
}

static yoke_status copy_tensors(yoke_model *to, const yoke_model *from) {
    to->tensors = yoke_calloc((size_t)from->tensor_count + 1, sizeof *to->tensors);
    if (to->tensors == NULL) return FAIL_MEMORY(sizeof *to->tensors, "a tensor table");
    to->tensor_capacity = from->tensor_count + 1;
    to->buffer_elements = from->buffer_elements;
    for (int i = 0; i < from->tensor_count; i++) {
        to->tensors[i] = from->tensors[i];
        to->tensors[i].name = NULL;
        to->tensor_count++;
        TRY(copy_text(&to->tensors[i].name, from->tensors[i].name));
    }
    return YOKE_OK;
}

static yoke_status build(continuation *c) {
    const yoke_model *from = c->from;
    int output = from->outputs[0].value;
    if (from->input_count != 1 || from->output_count != 1 || !from->input.flat || c->context < 2)
        return FAIL(YOKE_ERROR_ARGUMENT, "model '%s' is not of one row of tokens and one output",
                    yoke_model_name(from));
    for (int i = 0; i < from->layer_count; i++)
        TRY(follow(c, i));
    if (!c->along[output])
        return FAIL(YOKE_ERROR_ARGUMENT, "the output of model '%s' is not one for each token",
                    yoke_model_name(from));
    if (!c->looks_back)
        return FAIL(YOKE_ERROR_ARGUMENT, "no layer of model '%s' looks back: nothing can be kept",
                    yoke_model_name(from));
    TRY(yoke_model_create(&c->to, yoke_model_name(from),
                          (yoke_shape){c->positions, 1, 1, true, false}));
    TRY(copy_tensors(c->to, from));
    c->begin = yoke_model_add_input(c->to, "begin", (yoke_shape){1, 1, 1, true, false});
    if (c->to->error.status != YOKE_OK) return yoke_error_restore(&c->to->error);
    for (int i = 0; i < from->layer_count; i++)
        TRY(copy_layer(c, i));
    int last = YOKE_NONE;
    TRY(find_value(c, output, from->layer_count, &last));
    return yoke_model_finish(c->to, (yoke_value){last}, NULL);
}

yoke_status yoke_model_continue(yoke_model **continued, const yoke_model *model, int positions) {
    size_t values = (size_t)model->layer_count + 1;
    continuation c = {.from = model,
                      .positions = positions,
                      .context = yoke_model_input_shape(model).channels,
                      .last = YOKE_NONE,
                      .along = yoke_calloc(values, sizeof *c.along),
                      .values = yoke_calloc(values, sizeof *c.values),
                      .last_place = yoke_malloc(values * sizeof *c.last_place)};
    *continued = NULL;
    yoke_status status = YOKE_OK;
    if (c.along == NULL || c.values == NULL || c.last_place == NULL)
        status = FAIL_MEMORY(values * sizeof *c.values, "a model");
    for (size_t i = 0; i < values && status == YOKE_OK; i++)
        c.last_place[i] = YOKE_NONE;
    if (status == YOKE_OK) status = build(&c);
    if (status == YOKE_OK)
        *continued = c.to;
    else
        yoke_model_destroy(c.to);
    yoke_free(c.last_place);
    yoke_free(c.values);
    yoke_free(c.along);
    return status;
}

size_t yoke_model_kept_bytes(const yoke_model *continued) {
    size_t bytes = 0;
    for (int i = 0; i < continued->layer_count; i++) {
        const yoke_operation *operation = &continued->layers[i].operation;
        if (operation->kind == YOKE_OP_CONTINUED_ATTENTION)
            bytes += 2 * (size_t)operation->capacity * (size_t)operation->output.channels *
                     sizeof(float);
    }
    return bytes;
}
