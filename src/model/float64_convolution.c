/* SPDX-License-Identifier: Apache-2.0 */
/* The float64 reference of convolutions and transposed convolutions. A tap connects a plane of the
 * large image, which the windows lie over, with one of the small image, which has a pixel for each
 * window. A convolution reads the large one, a transposed convolution writes it. */
#include <stddef.h>

#include "model/float64.h"

/* One tap of a kernel between two planes. */
typedef struct conv_tap {
    const yoke_operation *convolution;
    size_t large, small; /* offsets of the planes */
    int ky, kx;
} conv_tap;

/* The pixels that a tap connects: for each of `lines`, `count` pairs. */
typedef struct tap_pixels {
    yoke_window lines;
    int count, step;        /* from pair to pair in the large image */
    ptrdiff_t large, small; /* the first pair of line 0 */
    ptrdiff_t large_line, small_line;
} tap_pixels;

static tap_pixels pixels_of(const conv_tap *tap) {
    const yoke_operation *o = tap->convolution;
    yoke_taps down = yoke_taps_down(o), across = yoke_taps_across(o);
    int top = tap->ky * down.dilation - down.padding;
    int left = tap->kx * across.dilation - across.padding;
    yoke_window xs = yoke_tap_window(o->output.width, o->input.width, across.stride, left);
    return (tap_pixels){.lines =
                            yoke_tap_window(o->output.height, o->input.height, down.stride, top),
                        .count = xs.end - xs.begin,
                        .step = across.stride,
                        .large = (ptrdiff_t)tap->large + (ptrdiff_t)top * o->input.width +
                                 (ptrdiff_t)xs.begin * across.stride + left,
                        .small = (ptrdiff_t)tap->small + xs.begin,
                        .large_line = (ptrdiff_t)down.stride * o->input.width,
                        .small_line = o->output.width};
}

/* small += weight * large. */
static void gather(const conv_tap *tap, double weight, const double *large, double *small) {
    tap_pixels p = pixels_of(tap);
    for (int line = p.lines.begin; line < p.lines.end; line++) {
        const double *from = large + p.large + line * p.large_line;
        double *to = small + p.small + line * p.small_line;
#pragma omp simd
        for (int i = 0; i < p.count; i++)
            to[i] += weight * from[i * p.step];
    }
}

/* large += weight * small. */
static void scatter(const conv_tap *tap, double weight, const double *small, double *large) {
    tap_pixels p = pixels_of(tap);
    for (int line = p.lines.begin; line < p.lines.end; line++) {
        const double *from = small + p.small + line * p.small_line;
        double *to = large + p.large + line * p.large_line;
#pragma omp simd
        for (int i = 0; i < p.count; i++)
            to[i * p.step] += weight * from[i];
    }
}

/* The sum of large * small: the gradient of the tap's weight. */
static double dot(const conv_tap *tap, const double *large, const double *small) {
    tap_pixels p = pixels_of(tap);
    double sum = 0;
    for (int line = p.lines.begin; line < p.lines.end; line++) {
        const double *x = large + p.large + line * p.large_line;
        const double *y = small + p.small + line * p.small_line;
#pragma omp simd reduction(+ : sum)
        for (int i = 0; i < p.count; i++)
            sum += y[i] * x[i * p.step];
    }
    return sum;
}

static void run_tap(yoke_float64_model *r, const yoke_node *layer, const conv_tap *tap,
                    size_t weight, bool backward) {
    bool transposed = layer->operation.kind == YOKE_OP_CONV_TRANSPOSE2D;
    double *input = r->values[layer->inputs[0]], *output = r->values[layer->output];
    double *dx = r->gradients[layer->inputs[0]], *dy = r->gradients[layer->output];
    double w = r->tensors[layer->tensors[0]][weight];
    double *dw = &r->tensor_gradients[layer->tensors[0]][weight];
    if (!backward) {
        if (transposed)
            scatter(tap, w, input, output);
        else
            gather(tap, w, input, output);
        return;
    }
    *dw += transposed ? dot(tap, dy, input) : dot(tap, input, dy);
    if (transposed)
        gather(tap, w, dy, dx);
    else
        scatter(tap, w, dy, dx);
}

/* The weight is [channels of the small image, channels of the large one / groups, kh, kw]. */
void yoke_float64_convolution(yoke_float64_model *r, const yoke_node *layer, bool backward) {
    bool transposed = layer->operation.kind == YOKE_OP_CONV_TRANSPOSE2D;
    yoke_operation o =
        transposed ? yoke_transposed_convolution(&layer->operation) : layer->operation;
    size_t large = (size_t)o.input.channels, small = (size_t)o.output.channels;
    size_t large_pixels = (size_t)o.input.height * (size_t)o.input.width;
    size_t small_pixels = (size_t)o.output.height * (size_t)o.output.width;
    size_t large_per_group = large / (size_t)o.groups, small_per_group = small / (size_t)o.groups;
    int height = yoke_taps_down(&o).kernel, width = yoke_taps_across(&o).kernel;
    for (size_t row = 0; row < (size_t)r->rows; row++)
        for (size_t k = 0; k < small * large_per_group; k++) {
            size_t channel = k / large_per_group;
            size_t other = channel / small_per_group * large_per_group + k % large_per_group;
            conv_tap tap = {.convolution = &o,
                            .large = (row * large + other) * large_pixels,
                            .small = (row * small + channel) * small_pixels};
            size_t weight = k * (size_t)height * (size_t)width;
            for (tap.ky = 0; tap.ky < height; tap.ky++)
                for (tap.kx = 0; tap.kx < width; tap.kx++)
                    run_tap(r, layer, &tap, weight++, backward);
        }
    yoke_float64_bias(r, layer, backward);
}
