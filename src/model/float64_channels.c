/* SPDX-License-Identifier: Apache-2.0 */
/* The float64 reference of layers over the channels of each position: softmax, concatenation. */
#include <math.h>

#include "model/float64.h"

static void softmax_forward(const double *x, double *y, size_t features) {
    double largest = x[0], sum = 0;
    for (size_t i = 1; i < features; i++)
        if (!(x[i] <= largest)) largest = x[i]; /* NaN too */
    for (size_t i = 0; i < features; i++)
        sum += exp(x[i] - largest);
    for (size_t i = 0; i < features; i++)
        y[i] = exp(x[i] - largest) / sum;
}

static void softmax_backward(const double *y, const double *dy, double *dx, size_t features) {
    double sum = 0;
    for (size_t i = 0; i < features; i++)
        sum += dy[i] * y[i];
    for (size_t i = 0; i < features; i++)
        dx[i] += y[i] * (dy[i] - sum);
}

void yoke_float64_softmax(yoke_float64_model *r, const yoke_node *layer, bool backward) {
    size_t features = (size_t)layer->shape.channels;
    int input = layer->inputs[0], output = layer->output;
    for (size_t at = 0; at < (size_t)r->rows * yoke_float64_row(r, output); at += features)
        if (backward)
            softmax_backward(r->values[output] + at, r->gradients[output] + at,
                             r->gradients[input] + at, features);
        else
            softmax_forward(r->values[input] + at, r->values[output] + at, features);
}

/* The channels of a row of an image, or of a position, lie one behind the other. */
void yoke_float64_concat(yoke_float64_model *r, const yoke_node *layer, bool backward) {
    yoke_planes out = yoke_planes_of(layer->shape);
    size_t inner = layer->shape.sequence ? 1 : out.pixels, first = 0;
    size_t outer = (size_t)r->rows * (layer->shape.sequence ? out.pixels : 1);
    for (int k = 0; k < layer->input_count; k++) {
        int input = layer->inputs[k];
        size_t part = (size_t)yoke_value_shape(r->model, input).channels * inner;
        for (size_t i = 0; i < outer * part; i++) {
            size_t at = i / part * out.channels * inner + first + i % part;
            if (backward)
                r->gradients[input][i] += r->gradients[layer->output][at];
            else
                r->values[layer->output][at] = r->values[input][i];
        }
        first += part;
    }
}
