/* SPDX-License-Identifier: Apache-2.0 */
/* The float64 reference of activations. */
#include <math.h>

#include "model/float64.h"

static const double root_half = 0.70710678118654752440;   /* sqrt(1 / 2) */
static const double normal_peak = 0.39894228040143267794; /* 1 / sqrt(2 pi) */
static const double tanh_scale = 0.79788456080286535588;  /* sqrt(2 / pi) */

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

static double bend(double x) {
    return tanh(tanh_scale * (x + 0.044715 * x * x * x));
}

/* ReLU and ReLU6 keep NaN. */
static double value_at(yoke_activation activation, double x) {
    switch (activation) {
    case YOKE_RELU:
        return x <= 0 ? 0 : x;
    case YOKE_RELU6:
        return x <= 0 ? 0 : x >= 6 ? 6 : x;
    case YOKE_GELU:
        return x / 2 * erfc(-x * root_half);
    case YOKE_GELU_TANH:
        return x / 2 * (1 + bend(x));
    case YOKE_SILU:
        return x * sigmoid(x);
    case YOKE_SIGMOID:
        return sigmoid(x);
    case YOKE_TANH:
        return tanh(x);
    }
    return NAN;
}

static double slope_at(yoke_activation activation, double x) {
    double s = sigmoid(x), t = activation == YOKE_GELU_TANH ? bend(x) : tanh(x);
    switch (activation) {
    case YOKE_RELU:
        return x > 0 ? 1 : 0;
    case YOKE_RELU6:
        return x > 0 && x < 6 ? 1 : 0;
    case YOKE_GELU:
        return erfc(-x * root_half) / 2 + x * normal_peak * exp(-x * x / 2);
    case YOKE_GELU_TANH:
        return (1 + t) / 2 + x / 2 * (1 - t * t) * tanh_scale * (1 + 3 * 0.044715 * x * x);
    case YOKE_SILU:
        return s * (1 + x * (1 - s));
    case YOKE_SIGMOID:
        return s * (1 - s);
    case YOKE_TANH:
        return 1 - t * t;
    }
    return NAN;
}

void yoke_float64_activation(yoke_float64_model *r, const yoke_node *layer, bool backward) {
    const double *x = r->values[layer->inputs[0]];
    yoke_activation activation = layer->operation.activation;
    for (size_t i = 0; i < (size_t)r->rows * yoke_float64_row(r, layer->output); i++)
        if (backward)
            r->gradients[layer->inputs[0]][i] +=
                slope_at(activation, x[i]) * r->gradients[layer->output][i];
        else
            r->values[layer->output][i] = value_at(activation, x[i]);
}
