/* SPDX-License-Identifier: Apache-2.0 */
/* The float64 reference of linear layers, and of biases. */
#include "model/float64.h"

void yoke_float64_bias(yoke_float64_model *r, const yoke_node *layer, bool backward) {
    if (!layer->operation.bias) return;
    yoke_planes out = yoke_planes_of(layer->shape);
    int tensor = layer->tensors[1];
    size_t apart = layer->shape.sequence ? 1 : out.pixels; /* values from channel to channel */
    for (size_t i = 0; i < (size_t)r->rows * out.channels * out.pixels; i++) {
        size_t channel = i / apart % out.channels;
        if (backward)
            r->tensor_gradients[tensor][channel] += r->gradients[layer->output][i];
        else
            r->values[layer->output][i] += r->tensors[tensor][channel];
    }
}

static double dot(const double *a, const double *b, size_t count) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

/* to += scale * from */
static void add_scaled(double *to, const double *from, double scale, size_t count) {
#pragma omp simd
    for (size_t i = 0; i < count; i++)
        to[i] += scale * from[i];
}

/* Element i of the output, with weights [in, out]. */
static void transposed_product(yoke_float64_model *r, const yoke_node *layer, size_t i,
                               bool backward) {
    size_t in = (size_t)layer->operation.input.channels, out = (size_t)layer->shape.channels;
    size_t row = i / out * in, column = i % out;
    const double *x = r->values[layer->inputs[0]] + row, *w = r->tensors[layer->tensors[0]];
    double *y = &r->values[layer->output][i], dy = r->gradients[layer->output][i];
    for (size_t k = 0; k < in; k++) {
        if (!backward) {
            *y += x[k] * w[k * out + column];
            continue;
        }
        r->gradients[layer->inputs[0]][row + k] += dy * w[k * out + column];
        r->tensor_gradients[layer->tensors[0]][k * out + column] += dy * x[k];
    }
}

void yoke_float64_linear(yoke_float64_model *r, const yoke_node *layer, bool backward) {
    size_t in = (size_t)layer->operation.input.channels, out = (size_t)layer->shape.channels;
    size_t rows = (size_t)r->rows * (size_t)layer->shape.height; /* all positions of a sequence */
    int tensor = layer->tensors[0];
    for (size_t i = 0; i < rows * out; i++) {
        size_t row = i / out * in, weights = i % out * in;
        if (layer->operation.transposed) {
            transposed_product(r, layer, i, backward);
            continue;
        }
        const double *x = r->values[layer->inputs[0]] + row, *w = r->tensors[tensor] + weights;
        double dy = r->gradients[layer->output][i];
        if (!backward) {
            r->values[layer->output][i] = dot(x, w, in);
            continue;
        }
        add_scaled(r->gradients[layer->inputs[0]] + row, w, dy, in);
        add_scaled(r->tensor_gradients[tensor] + weights, x, dy, in);
    }
    yoke_float64_bias(r, layer, backward);
}
