/* SPDX-License-Identifier: Apache-2.0 */
/* What a layer is and costs, for people who read a model. */
#include "model/graph.h"
#include "yoke/elementary.h"

static double elements_of(yoke_shape shape) {
    return (double)shape.channels * (double)shape.height * (double)shape.width;
}

/* Along one direction, the taps of all windows, padding included. */
static double taps_of(yoke_taps pool, int outputs, int inputs) {
    if (pool.kernel > 0) return (double)outputs * pool.kernel;
    double taps = 0;
    for (int i = 0; i < outputs; i++) {
        yoke_window window = yoke_adaptive_window(i, outputs, inputs);
        taps += window.end - window.begin;
    }
    return taps;
}

static double flops_of(const yoke_model *model, const yoke_node *layer) {
    const yoke_operation *o = &layer->operation;
    double elements = elements_of(layer->shape), products = 2 * yoke_layer_work(model, layer);
    if (products > 0) return products + (o->bias ? elements : 0);
    switch (o->kind) {
    case YOKE_OP_FLATTEN:
    case YOKE_OP_SEQUENCE:
    case YOKE_OP_EMBEDDING:
    case YOKE_OP_CLASS_TOKEN:
    case YOKE_OP_SELECT:
    case YOKE_OP_CONCAT:
    case YOKE_OP_RESHAPE:
    case YOKE_OP_MOVE:
    case YOKE_OP_PARAMETER:
    case YOKE_OP_CONSTANT:
    case YOKE_OP_DROPOUT: /* does nothing in evaluation */
        return 0;
    case YOKE_OP_BATCH_NORM:
    case YOKE_OP_LAYER_NORM:
        return 2 * elements;
    case YOKE_OP_MAX_POOL:
    case YOKE_OP_AVERAGE_POOL:
        return o->output.channels * taps_of(yoke_taps_down(o), o->output.height, o->input.height) *
               taps_of(yoke_taps_across(o), o->output.width, o->input.width);
    case YOKE_OP_REDUCE:
        return (double)yoke_row_elements(o->input);
    default:
        return elements;
    }
}

static bool is_shared(const yoke_model *model, const yoke_node *layer, int tensor) {
    for (const yoke_node *other = model->layers; other < layer; other++)
        for (int k = 0; k < other->tensor_count; k++)
            if (other->tensors[k] == tensor) return true;
    return false;
}

static size_t parameters_of(const yoke_model *model, const yoke_node *layer) {
    size_t count = 0;
    for (int k = 0; k < layer->tensor_count; k++)
        if (!is_shared(model, layer, layer->tensors[k]))
            count += model->tensors[layer->tensors[k]].count;
    return count;
}

/* A further input is a layer of the list, but computes nothing. */
static const yoke_node *computing_layer(const yoke_model *model, int index) {
    for (int i = 0; i < model->layer_count && index >= 0; i++)
        if (model->layers[i].operation.kind != YOKE_OP_INPUT && index-- == 0)
            return &model->layers[i];
    return NULL;
}

static const char *kind_of(const yoke_model *model, const yoke_node *layer) {
    const yoke_operation *operation = &layer->operation;
    bool weighted = operation->kind == YOKE_OP_CONV2D;
    if (weighted && model->tensors[layer->tensors[0]].line) return "conv1d";
    if (operation->kind == YOKE_OP_ACTIVATION) return yoke_activation_name(operation->activation);
    if (operation->kind != YOKE_OP_EXPRESSION) return yoke_kind_name(operation->kind);
    return yoke_function_name((yoke_function)operation->expression.terms[0].function);
}

yoke_status yoke_model_describe_layer(const yoke_model *model, int index, yoke_layer_info *info) {
    TRY(yoke_pointer_check(model, "model"));
    if (!model->finished)
        return FAIL(YOKE_ERROR_ARGUMENT, "model '%s' is not finished", model->name);
    const yoke_node *layer = computing_layer(model, index);
    if (layer == NULL)
        return FAIL(YOKE_ERROR_ARGUMENT, "layer %d: model '%s' has 0 to %d", index, model->name,
                    yoke_model_layer_count(model) - 1);
    const yoke_layer_info own = {
        .struct_size = sizeof own,
        .name = layer->operation.name,
        .kind = kind_of(model, layer),
        .output = layer->shape,
        .parameters = parameters_of(model, layer),
        .flops = flops_of(model, layer),
        .activation_bytes = (size_t)elements_of(layer->shape) * sizeof(float),
    };
    return yoke_options_store(info, &own, sizeof own, "yoke_layer_info");
}
