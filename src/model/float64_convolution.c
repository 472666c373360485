/* SPDX-License-Identifier: Apache-2.0 */
/* The float64 reference of convolutions. */
#include <stddef.h>

#include "model/float64.h"

/* One tap of a kernel between a plane of the output and one of the input. */
typedef struct conv_tap {
    const yoke_operation *operation;
    size_t out, in; /* offsets of the planes */
    int ky, kx;
    double weight;
} conv_tap;

static void conv_forward_tap(const conv_tap *tap, const double *input, double *output) {
    const yoke_operation *o = tap->operation;
    int offset_y = tap->ky * o->dilation - o->padding;
    int offset_x = tap->kx * o->dilation - o->padding, stride = o->stride;
    yoke_window ys = yoke_tap_window(o->output.height, o->input.height, stride, offset_y);
    yoke_window xs = yoke_tap_window(o->output.width, o->input.width, stride, offset_x);
    for (int oy = ys.begin; oy < ys.end; oy++) {
        const double *x =
            input + tap->in + (ptrdiff_t)(oy * stride + offset_y) * o->input.width + offset_x;
        double *y = output + tap->out + (ptrdiff_t)oy * o->output.width;
#pragma omp simd
        for (int ox = xs.begin; ox < xs.end; ox++)
            y[ox] += tap->weight * x[ox * stride];
    }
}

/* Adds to the gradient of the input; returns the gradient of the weight. */
static double conv_backward_tap(const conv_tap *tap, const double *input,
                                const double *output_gradient, double *input_gradient) {
    const yoke_operation *o = tap->operation;
    int offset_y = tap->ky * o->dilation - o->padding;
    int offset_x = tap->kx * o->dilation - o->padding, stride = o->stride;
    yoke_window ys = yoke_tap_window(o->output.height, o->input.height, stride, offset_y);
    yoke_window xs = yoke_tap_window(o->output.width, o->input.width, stride, offset_x);
    double sum = 0;
    for (int oy = ys.begin; oy < ys.end; oy++) {
        ptrdiff_t at = (ptrdiff_t)(oy * stride + offset_y) * o->input.width + offset_x;
        const double *x = input + tap->in + at;
        const double *dy = output_gradient + tap->out + (ptrdiff_t)oy * o->output.width;
        double *dx = input_gradient + tap->in + at;
#pragma omp simd reduction(+ : sum)
        for (int ox = xs.begin; ox < xs.end; ox++) {
            dx[ox * stride] += dy[ox] * tap->weight;
            sum += dy[ox] * x[ox * stride];
        }
    }
    return sum;
}

/* Every tap of the planes of one output channel and one input channel in its group. */
static void conv_planes(yoke_float64_model *r, const yoke_node *layer, conv_tap tap, size_t weight,
                        bool backward) {
    const double *input = r->values[layer->inputs[0]];
    int tensor = layer->tensors[0];
    for (tap.ky = 0; tap.ky < layer->operation.kernel; tap.ky++)
        for (tap.kx = 0; tap.kx < layer->operation.kernel; tap.kx++, weight++) {
            tap.weight = r->tensors[tensor][weight];
            if (backward)
                r->tensor_gradients[tensor][weight] += conv_backward_tap(
                    &tap, input, r->gradients[layer->output], r->gradients[layer->inputs[0]]);
            else
                conv_forward_tap(&tap, input, r->values[layer->output]);
        }
}

void yoke_float64_convolution(yoke_float64_model *r, const yoke_node *layer, bool backward) {
    const yoke_operation *o = &layer->operation;
    yoke_planes in = yoke_planes_of(yoke_value_shape(r->model, layer->inputs[0]));
    yoke_planes out = yoke_planes_of(layer->shape);
    size_t in_per_group = in.channels / (size_t)o->groups;
    size_t out_per_group = out.channels / (size_t)o->groups;
    size_t taps = (size_t)o->kernel * (size_t)o->kernel;
    for (size_t row = 0; row < (size_t)r->rows; row++)
        for (size_t k = 0; k < out.channels * in_per_group; k++) {
            size_t channel = k / in_per_group;
            size_t from = channel / out_per_group * in_per_group + k % in_per_group;
            conv_tap tap = {.operation = o,
                            .out = (row * out.channels + channel) * out.pixels,
                            .in = (row * in.channels + from) * in.pixels};
            conv_planes(r, layer, tap, k * taps, backward);
        }
    yoke_float64_bias(r, layer, backward);
}
