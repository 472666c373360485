/* SPDX-License-Identifier: Apache-2.0 */
/* The float64 reference of layers that compute each element by itself. */
#include "model/float64.h"

/* Element e of a row is kept when its word is at least probability * 2^32. */
static double dropout_factor(const yoke_float64_model *r, const yoke_node *layer, size_t element) {
    if (!r->training) return 1;
    size_t row_elements = yoke_float64_row(r, layer->output), e = element % row_elements;
    uint32_t words[4];
    yoke_random_words(r->step.seed, YOKE_RANDOM_DROPOUT,
                      (r->step.first_row + element / row_elements) << 40 ^ r->step.step,
                      layer->operation.layer, (uint32_t)(e / 4), words);
    double probability = layer->operation.probability;
    return (double)words[e % 4] >= probability * 0x1p32 ? 1 / (1 - probability) : 0;
}

void yoke_float64_elementwise(yoke_float64_model *r, const yoke_node *layer, bool backward) {
    size_t count = (size_t)r->rows * yoke_float64_row(r, layer->output);
    if (backward) {
        for (size_t i = 0; i < count; i++) {
            double gradient = r->gradients[layer->output][i];
            if (layer->operation.kind == YOKE_OP_DROPOUT) gradient *= dropout_factor(r, layer, i);
            for (int k = 0; k < layer->input_count; k++)
                r->gradients[layer->inputs[k]][i] += gradient;
        }
    } else {
        for (size_t i = 0; i < count; i++) {
            double x = r->values[layer->inputs[0]][i], *y = &r->values[layer->output][i];
            *y = x;
            if (layer->operation.kind == YOKE_OP_ADD) *y = x + r->values[layer->inputs[1]][i];
            if (layer->operation.kind == YOKE_OP_DROPOUT) *y = x * dropout_factor(r, layer, i);
        }
    }
}

void yoke_float64_multiply(yoke_float64_model *r, const yoke_node *layer, bool backward) {
    int left = layer->inputs[0], right = layer->inputs[1];
    size_t each = yoke_float64_row(r, left) / yoke_float64_row(r, right); /* pixels of a factor */
    for (size_t i = 0; i < (size_t)r->rows * yoke_float64_row(r, layer->output); i++) {
        double dy = r->gradients[layer->output][i];
        if (!backward) {
            r->values[layer->output][i] = r->values[left][i] * r->values[right][i / each];
            continue;
        }
        r->gradients[left][i] += dy * r->values[right][i / each];
        r->gradients[right][i / each] += dy * r->values[left][i];
    }
}
