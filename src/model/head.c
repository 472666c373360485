/* SPDX-License-Identifier: Apache-2.0 */
/* Layers that somebody asks for by what they are: the head, which fine-tuning replaces, matrices,
 * and the stem. */
#include <string.h>

#include "model/graph.h"

static bool has_tensor(const yoke_node *layer, int tensor) {
    for (int i = 0; i < layer->tensor_count; i++)
        if (layer->tensors[i] == tensor) return true;
    return false;
}

/* NULL: the last layer is no linear layer. Value i + 1 is that of layer i. */
static const yoke_node *head_of(const yoke_model *model) {
    int value = model->outputs[0].value;
    if (value < 1 || value > model->layer_count) return NULL;
    const yoke_node *layer = &model->layers[value - 1];
    return layer->operation.kind == YOKE_OP_LINEAR ? layer : NULL;
}

void yoke_model_matrix(const yoke_model *model, int tensor, bool filters, size_t *rows,
                       size_t *columns) {
    const yoke_tensor *own = &model->tensors[tensor];
    const yoke_node *owner = NULL;
    for (int i = 0; owner == NULL && i < model->layer_count; i++)
        if (model->layers[i].tensor_count > 0 && model->layers[i].tensors[0] == tensor)
            owner = &model->layers[i];
    yoke_operation_kind kind = owner != NULL ? owner->operation.kind : YOKE_OP_PARAMETER;
    bool multiplies = own->ndim == 2 && (kind == YOKE_OP_LINEAR || kind == YOKE_OP_RECURRENCE);
    if (filters) multiplies = own->ndim == 4 && kind == YOKE_OP_CONV2D;
    *rows = multiplies ? (size_t)own->shape[0] : 0;
    *columns = multiplies ? own->count / (size_t)own->shape[0] : 0;
}

yoke_status yoke_model_stem(const yoke_model *model, const char *layer, yoke_stem *stem) {
    const yoke_node *found = NULL;
    for (int i = 0; found == NULL && i < model->layer_count; i++)
        if (strcmp(model->layers[i].operation.name, layer) == 0) found = &model->layers[i];
    if (found == NULL || found->operation.kind != YOKE_OP_CONV2D)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s has no convolution '%s'; yoke model show lists layers",
                    model->name, layer);
    const yoke_operation *conv = &found->operation;
    const yoke_tensor *weight = &model->tensors[found->tensors[0]];
    if (found->inputs[0] != 0 || conv->groups != 1 || weight->ndim != 4 ||
        yoke_taps_down(conv).dilation != 1 || yoke_taps_across(conv).dilation != 1)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: '%s' is no plain convolution of the rows themselves",
                    model->name, layer);
    *stem = (yoke_stem){.weight = weight->name,
                        .filters = (int)weight->shape[0],
                        .channels = (int)weight->shape[1],
                        .height = (int)weight->shape[2],
                        .width = (int)weight->shape[3]};
    return YOKE_OK;
}

bool yoke_model_is_head(const yoke_model *model, int tensor) {
    const yoke_node *head = head_of(model);
    if (head == NULL || !has_tensor(head, tensor)) return false;
    for (int i = 0; i < model->layer_count; i++)
        if (&model->layers[i] != head && has_tensor(&model->layers[i], tensor)) return false;
    return true;
}
