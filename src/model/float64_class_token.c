/* SPDX-License-Identifier: Apache-2.0 */
/* The float64 reference of a class token, and of select. */
#include "model/float64.h"

/* Element i of the output is the token's at position 0, and elsewhere the input's one position
 * before. */
void yoke_float64_class_token(yoke_float64_model *r, const yoke_node *layer, bool backward) {
    size_t features = (size_t)layer->shape.channels, row = yoke_float64_row(r, layer->output);
    int tensor = layer->tensors[0];
    for (size_t i = 0; i < (size_t)r->rows * row; i++) {
        size_t at = i % row, from = i / row * (row - features) + at - features;
        bool token = at < features;
        double *value = token ? &r->tensors[tensor][at] : &r->values[layer->inputs[0]][from];
        double *gradient =
            token ? &r->tensor_gradients[tensor][at] : &r->gradients[layer->inputs[0]][from];
        if (backward)
            *gradient += r->gradients[layer->output][i];
        else
            r->values[layer->output][i] = *value;
    }
}

void yoke_float64_select(yoke_float64_model *r, const yoke_node *layer, bool backward) {
    size_t features = (size_t)layer->shape.channels, row = yoke_float64_row(r, layer->inputs[0]);
    for (size_t i = 0; i < (size_t)r->rows * features; i++) {
        size_t position = (size_t)layer->operation.index;
        size_t from = i / features * row + position * features + i % features;
        if (backward)
            r->gradients[layer->inputs[0]][from] += r->gradients[layer->output][i];
        else
            r->values[layer->output][i] = r->values[layer->inputs[0]][from];
    }
}
