/* SPDX-License-Identifier: Apache-2.0 */
/* The float64 reference of batch norm and layer norm. */
#include <math.h>

#include "model/float64.h"

typedef struct moments {
    double mean, variance, count;
} moments;

static bool uses_running(const yoke_float64_model *r, const yoke_node *layer) {
    return !r->training || (r->fixed_statistics != NULL && r->fixed_statistics[layer->buffers[0]]);
}

static moments channel_moments(const yoke_float64_model *r, const yoke_node *layer,
                               yoke_planes shape, size_t channel) {
    moments m = {.count = (double)((size_t)r->rows * shape.pixels)};
    if (uses_running(r, layer)) {
        m.mean = r->tensors[layer->buffers[0]][channel];
        m.variance = r->tensors[layer->buffers[1]][channel];
        return m;
    }
    for (int pass = 0; pass < 2; pass++)
        for (size_t row = 0; row < (size_t)r->rows; row++) {
            const double *x =
                r->values[layer->inputs[0]] + (row * shape.channels + channel) * shape.pixels;
            for (size_t i = 0; i < shape.pixels; i++) {
                if (pass == 0)
                    m.mean += x[i] / m.count;
                else
                    m.variance += (x[i] - m.mean) * (x[i] - m.mean) / m.count;
            }
        }
    return m;
}

static void batch_norm_forward(yoke_float64_model *r, const yoke_node *layer) {
    yoke_planes shape = yoke_planes_of(layer->shape);
    const double *x = r->values[layer->inputs[0]];
    for (size_t c = 0; c < shape.channels; c++) {
        moments m = channel_moments(r, layer, shape, c);
        double scale =
            r->tensors[layer->tensors[0]][c] / sqrt(m.variance + layer->operation.epsilon);
        for (size_t i = 0; i < (size_t)r->rows * shape.pixels; i++) {
            size_t at = (i / shape.pixels * shape.channels + c) * shape.pixels + i % shape.pixels;
            r->values[layer->output][at] =
                (x[at] - m.mean) * scale + r->tensors[layer->tensors[1]][c];
        }
        if (!uses_running(r, layer) && !r->keeps_statistics) {
            double momentum = layer->operation.momentum;
            double *mean = &r->tensors[layer->buffers[0]][c];
            double *variance = &r->tensors[layer->buffers[1]][c];
            *mean = (1 - momentum) * *mean + momentum * m.mean;
            *variance =
                (1 - momentum) * *variance + momentum * m.variance * m.count / (m.count - 1);
        }
    }
}

/* dx = w / s * (dy - mean(dy) - xhat * mean(dy * xhat)), without the means where the statistics do
 * not depend on x. */
static void batch_norm_backward(yoke_float64_model *r, const yoke_node *layer) {
    yoke_planes shape = yoke_planes_of(layer->shape);
    const double *x = r->values[layer->inputs[0]], *gradient = r->gradients[layer->output];
    for (size_t c = 0; c < shape.channels; c++) {
        moments m = channel_moments(r, layer, shape, c);
        double s = sqrt(m.variance + layer->operation.epsilon), sum = 0, projection = 0;
        if (uses_running(r, layer)) m.count = (double)INFINITY;
        for (int pass = 0; pass < 2; pass++)
            for (size_t i = 0; i < (size_t)r->rows * shape.pixels; i++) {
                size_t at =
                    (i / shape.pixels * shape.channels + c) * shape.pixels + i % shape.pixels;
                double dy = gradient[at], xhat = (x[at] - m.mean) / s;
                if (pass == 1)
                    r->gradients[layer->inputs[0]][at] +=
                        r->tensors[layer->tensors[0]][c] / s *
                        (dy - sum / m.count - xhat * projection / m.count);
                if (pass == 0) sum += dy;
                if (pass == 0) projection += dy * xhat;
            }
        r->tensor_gradients[layer->tensors[0]][c] += projection;
        r->tensor_gradients[layer->tensors[1]][c] += sum;
    }
}

void yoke_float64_batch_norm(yoke_float64_model *r, const yoke_node *layer, bool backward) {
    if (backward)
        batch_norm_backward(r, layer);
    else
        batch_norm_forward(r, layer);
}

/* Layer norm. */

static moments position_moments(const double *x, size_t features) {
    moments m = {.count = (double)features};
    for (size_t i = 0; i < features; i++)
        m.mean += x[i] / m.count;
    for (size_t i = 0; i < features; i++)
        m.variance += (x[i] - m.mean) * (x[i] - m.mean) / m.count;
    return m;
}

/* Backward of one position, at the offset `at`: batch norm's formula, over features. */
static void layer_norm_backward(yoke_float64_model *r, const yoke_node *layer, size_t at) {
    size_t features = (size_t)layer->shape.channels;
    const double *x = r->values[layer->inputs[0]] + at, *dy = r->gradients[layer->output] + at;
    const double *weight = r->tensors[layer->tensors[0]];
    moments m = position_moments(x, features);
    double s = sqrt(m.variance + layer->operation.epsilon), sum = 0, projection = 0;
    for (size_t i = 0; i < features; i++) {
        double xhat = (x[i] - m.mean) / s;
        sum += dy[i] * weight[i];
        projection += dy[i] * weight[i] * xhat;
        r->tensor_gradients[layer->tensors[0]][i] += dy[i] * xhat;
        r->tensor_gradients[layer->tensors[1]][i] += dy[i];
    }
    for (size_t i = 0; i < features; i++) {
        double xhat = (x[i] - m.mean) / s;
        r->gradients[layer->inputs[0]][at + i] +=
            (dy[i] * weight[i] - sum / m.count - xhat * projection / m.count) / s;
    }
}

static void layer_norm_forward(yoke_float64_model *r, const yoke_node *layer, size_t at) {
    size_t features = (size_t)layer->shape.channels;
    const double *x = r->values[layer->inputs[0]] + at;
    const double *weight = r->tensors[layer->tensors[0]], *bias = r->tensors[layer->tensors[1]];
    moments m = position_moments(x, features);
    double s = sqrt(m.variance + layer->operation.epsilon);
    for (size_t i = 0; i < features; i++)
        r->values[layer->output][at + i] = (x[i] - m.mean) / s * weight[i] + bias[i];
}

void yoke_float64_layer_norm(yoke_float64_model *r, const yoke_node *layer, bool backward) {
    size_t count = (size_t)r->rows * yoke_float64_row(r, layer->output);
    for (size_t at = 0; at < count; at += (size_t)layer->shape.channels)
        if (backward)
            layer_norm_backward(r, layer, at);
        else
            layer_norm_forward(r, layer, at);
}
