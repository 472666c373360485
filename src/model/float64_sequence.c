/* SPDX-License-Identifier: Apache-2.0 */
/* The float64 reference of layers of sequences. */
#include <math.h>

#include "model/float64.h"

/* An image [channels, pixels] becomes [pixels, channels]. */
void yoke_float64_sequence(yoke_float64_model *r, const yoke_node *layer, bool backward) {
    size_t channels = (size_t)layer->shape.channels, pixels = (size_t)layer->shape.height;
    for (size_t i = 0; i < (size_t)r->rows * channels * pixels; i++) {
        size_t pixel = i % pixels, channel = i / pixels % channels, row = i / pixels / channels;
        size_t at = (row * pixels + pixel) * channels + channel;
        if (backward)
            r->gradients[layer->inputs[0]][i] += r->gradients[layer->output][at];
        else
            r->values[layer->output][at] = r->values[layer->inputs[0]][i];
    }
}

void yoke_float64_embedding(yoke_float64_model *r, const yoke_node *layer, bool backward) {
    size_t features = (size_t)layer->shape.channels;
    const double *ids = r->values[layer->inputs[0]];
    for (size_t i = 0; i < (size_t)r->rows * (size_t)layer->shape.height * features; i++) {
        double id = ids[i / features];
        bool known = id >= 0 && id < layer->operation.table && id == floor(id);
        size_t at = known ? (size_t)id * features + i % features : 0;
        if (!backward)
            r->values[layer->output][i] = known ? r->tensors[layer->tensors[0]][at] : (double)NAN;
        else if (known)
            r->tensor_gradients[layer->tensors[0]][at] += r->gradients[layer->output][i];
    }
}

void yoke_float64_positions(yoke_float64_model *r, const yoke_node *layer, bool backward) {
    size_t row = (size_t)layer->shape.height * (size_t)layer->shape.channels;
    for (size_t i = 0; i < (size_t)r->rows * row; i++) {
        if (!backward) {
            r->values[layer->output][i] =
                r->values[layer->inputs[0]][i] + r->tensors[layer->tensors[0]][i % row];
            continue;
        }
        r->gradients[layer->inputs[0]][i] += r->gradients[layer->output][i];
        r->tensor_gradients[layer->tensors[0]][i % row] += r->gradients[layer->output][i];
    }
}
