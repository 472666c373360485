/* SPDX-License-Identifier: Apache-2.0 */
/* The float64 reference of max and average pooling. */
#include <float.h>
#include <math.h>

#include "model/float64.h"

/* One tap inside the image of one window: elements of the output and of the input. */
typedef struct pool_tap {
    size_t out, in;
    double window; /* taps of the window, padding included */
} pool_tap;

/* Visits every tap inside the image, window by window. */
typedef void (*pool_visitor)(yoke_float64_model *r, const yoke_node *layer, const pool_tap *tap);

/* Along one direction, the taps of window `place`, padding included. */
static yoke_window window_of(yoke_taps taps, int place, int outputs, int inputs) {
    if (taps.kernel == 0) return yoke_adaptive_window(place, outputs, inputs);
    int begin = place * taps.stride - taps.padding;
    return (yoke_window){begin, begin + taps.kernel};
}

static void pool_plane(yoke_float64_model *r, const yoke_node *layer, size_t plane,
                       pool_visitor visit) {
    yoke_dims in = layer->operation.input, out = layer->operation.output;
    yoke_taps high = yoke_taps_down(&layer->operation), wide = yoke_taps_across(&layer->operation);
    for (int place = 0; place < out.height * out.width; place++) {
        yoke_window down = window_of(high, place / out.width, out.height, in.height);
        yoke_window across = window_of(wide, place % out.width, out.width, in.width);
        int width = across.end - across.begin, taps = (down.end - down.begin) * width;
        for (int tap = 0; tap < taps; tap++) {
            int y = down.begin + tap / width, x = across.begin + tap % width;
            if (y < 0 || y >= in.height || x < 0 || x >= in.width) continue;
            visit(
                r, layer,
                &(pool_tap){plane * (size_t)(out.height * out.width) + (size_t)place,
                            (plane * (size_t)in.height + (size_t)y) * (size_t)in.width + (size_t)x,
                            taps});
        }
    }
}

static void pool(yoke_float64_model *r, const yoke_node *layer, pool_visitor visit) {
    size_t count = (size_t)r->rows * (size_t)layer->shape.channels;
    for (size_t plane = 0; plane < count; plane++)
        pool_plane(r, layer, plane, visit);
}

static void average_forward(yoke_float64_model *r, const yoke_node *layer, const pool_tap *tap) {
    r->values[layer->output][tap->out] += r->values[layer->inputs[0]][tap->in] / tap->window;
}

static void average_backward(yoke_float64_model *r, const yoke_node *layer, const pool_tap *tap) {
    r->gradients[layer->inputs[0]][tap->in] += r->gradients[layer->output][tap->out] / tap->window;
}

static void max_forward(yoke_float64_model *r, const yoke_node *layer, const pool_tap *tap) {
    double *y = &r->values[layer->output][tap->out], x = r->values[layer->inputs[0]][tap->in];
    if (x > *y || isnan(x)) *y = x;
}

/* The first of equal winners takes the gradient; NaN marks an output whose winner has it. */
static void max_backward(yoke_float64_model *r, const yoke_node *layer, const pool_tap *tap) {
    double *y = &r->values[layer->output][tap->out];
    if (r->values[layer->inputs[0]][tap->in] != *y) return;
    r->gradients[layer->inputs[0]][tap->in] += r->gradients[layer->output][tap->out];
    *y = NAN;
}

void yoke_float64_pooling(yoke_float64_model *r, const yoke_node *layer, bool backward) {
    if (layer->operation.kind == YOKE_OP_AVERAGE_POOL) {
        pool(r, layer, backward ? average_backward : average_forward);
        return;
    }
    size_t count = (size_t)r->rows * yoke_float64_row(r, layer->output);
    for (size_t i = 0; i < count && !backward; i++)
        r->values[layer->output][i] = -DBL_MAX;
    pool(r, layer, backward ? max_backward : max_forward);
}
