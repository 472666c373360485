/* SPDX-License-Identifier: Apache-2.0 */
/* The weight and bias of a linear layer or a convolution: its own, or an earlier layer's. */
#include <math.h>
#include <string.h>

#include "model/graph.h"

static bool can_share(const yoke_operation *own, const yoke_operation *owner) {
    bool is_tied = own->kind == YOKE_OP_LINEAR && owner->kind == YOKE_OP_EMBEDDING;
    return (is_tied || own->kind == owner->kind) && own->bias == owner->bias &&
           own->transposed == owner->transposed;
}

/* Uses the weight and bias of an earlier layer of the same kind, or of an embedding, and shape. */
static yoke_status share_tensors(yoke_model *model, yoke_node *layer, const char *owner_name,
                                 const yoke_tensor *weight) {
    const yoke_node *owner = yoke_builder_find(model, owner_name);
    const char *name = layer->operation.name;
    if (owner == NULL || owner == layer)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: shared_with '%s' is not an earlier layer", name,
                    owner_name);
    if (!can_share(&layer->operation, &owner->operation))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%s: shared_with '%s' is another kind of layer or differs in bias or in "
                    "transposed",
                    name, owner_name);
    const yoke_tensor *theirs = &model->tensors[owner->tensors[0]];
    if (memcmp(theirs->shape, weight->shape, sizeof weight->shape) != 0 ||
        theirs->groups != weight->groups)
        return FAIL(
            YOKE_ERROR_ARGUMENT,
            "%s: its weight is %lld x %lld x ..., that of '%s' is %lld x %lld x ... or differs "
            "in kernel or groups",
            name, (long long)weight->shape[0], (long long)weight->shape[1], owner_name,
            (long long)theirs->shape[0], (long long)theirs->shape[1]);
    memcpy(layer->tensors, owner->tensors, sizeof layer->tensors);
    layer->tensor_count = owner->tensor_count;
    return YOKE_OK;
}

/* nn.Linear and nn's convolutions initialise both by kaiming_uniform(a = sqrt 5), which is
 * U(+-1/sqrt(fan_in)). */
static yoke_status own_tensors(yoke_model *model, yoke_node *layer, const yoke_tensor *weight,
                               size_t fan_in) {
    yoke_fill fill = {YOKE_FILL_UNIFORM, 1 / sqrt((double)fan_in)};
    yoke_tensor own = *weight;
    if (own.fill.kind == YOKE_FILL_CONSTANT) own.fill = fill;
    const char *name = layer->operation.name;
    TRY(yoke_tensor_add(model, name, "weight", &own, &layer->tensors[0]));
    layer->tensor_count = 1;
    if (!layer->operation.bias) return YOKE_OK;
    yoke_tensor bias = {
        .ndim = 1, .shape = {layer->shape.channels}, .trainable = true, .groups = 1, .fill = fill};
    if (weight->fill.kind == YOKE_FILL_NORMAL) bias.fill = (yoke_fill){YOKE_FILL_CONSTANT, 0};
    TRY(yoke_tensor_add(model, name, "bias", &bias, &layer->tensors[1]));
    layer->tensor_count = 2;
    return YOKE_OK;
}

yoke_status yoke_layer_tensors(yoke_model *model, yoke_node *layer, const yoke_tensor *weight,
                               size_t fan_in, const char *shared_with) {
    if (shared_with != NULL) return share_tensors(model, layer, shared_with, weight);
    return own_tensors(model, layer, weight, fan_in);
}
