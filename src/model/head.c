/* SPDX-License-Identifier: Apache-2.0 */
/* The layer that fine-tuning replaces. */
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

void yoke_model_matrix(const yoke_model *model, int tensor, size_t *rows, size_t *columns) {
    const yoke_tensor *own = &model->tensors[tensor];
    const yoke_node *owner = NULL;
    for (int i = 0; owner == NULL && i < model->layer_count; i++)
        if (model->layers[i].tensor_count > 0 && model->layers[i].tensors[0] == tensor)
            owner = &model->layers[i];
    yoke_operation_kind kind = owner != NULL ? owner->operation.kind : YOKE_OP_PARAMETER;
    bool multiplies = own->ndim == 2 && (kind == YOKE_OP_LINEAR || kind == YOKE_OP_RECURRENCE);
    *rows = multiplies ? (size_t)own->shape[0] : 0;
    *columns = multiplies ? (size_t)own->shape[1] : 0;
}

bool yoke_model_is_head(const yoke_model *model, int tensor) {
    const yoke_node *head = head_of(model);
    if (head == NULL || !has_tensor(head, tensor)) return false;
    for (int i = 0; i < model->layer_count; i++)
        if (&model->layers[i] != head && has_tensor(&model->layers[i], tensor)) return false;
    return true;
}
