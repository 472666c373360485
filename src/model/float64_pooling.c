/* The float64 reference of max and average pooling. */
#include <float.h>
#include <math.h>

#include "model/float64.h"

/* Visits every tap inside the image of every place of a pooling window, window by window. */
typedef void (*pool_visitor)(yoke_float64_model *r, const yoke_node *layer, size_t out, size_t in);

static void pool_plane(yoke_float64_model *r, const yoke_node *layer, size_t plane,
                       pool_visitor visit) {
    const yoke_operation *o = &layer->operation;
    yoke_dims in = o->input, out = o->output;
    int kernel_height = o->kernel == 0 ? in.height : o->kernel;
    int kernel_width = o->kernel == 0 ? in.width : o->kernel;
    for (int place = 0; place < out.height * out.width; place++)
        for (int tap = 0; tap < kernel_height * kernel_width; tap++) {
            int y = place / out.width * o->stride - o->padding + tap / kernel_width;
            int x = place % out.width * o->stride - o->padding + tap % kernel_width;
            if (y < 0 || y >= in.height || x < 0 || x >= in.width) continue;
            visit(r, layer, plane * (size_t)(out.height * out.width) + (size_t)place,
                  (plane * (size_t)in.height + (size_t)y) * (size_t)in.width + (size_t)x);
        }
}

static void pool(yoke_float64_model *r, const yoke_node *layer, pool_visitor visit) {
    size_t count = (size_t)r->rows * (size_t)layer->shape.channels;
    for (size_t plane = 0; plane < count; plane++)
        pool_plane(r, layer, plane, visit);
}

static double window_size(const yoke_operation *o) {
    return o->kernel == 0 ? (double)(o->input.height * o->input.width)
                          : (double)(o->kernel * o->kernel);
}

static void average_forward(yoke_float64_model *r, const yoke_node *layer, size_t out, size_t in) {
    r->values[layer->output][out] +=
        r->values[layer->inputs[0]][in] / window_size(&layer->operation);
}

static void average_backward(yoke_float64_model *r, const yoke_node *layer, size_t out, size_t in) {
    r->gradients[layer->inputs[0]][in] +=
        r->gradients[layer->output][out] / window_size(&layer->operation);
}

static void max_forward(yoke_float64_model *r, const yoke_node *layer, size_t out, size_t in) {
    double *y = &r->values[layer->output][out], x = r->values[layer->inputs[0]][in];
    if (x > *y || isnan(x)) *y = x;
}

/* The first of equal winners takes the gradient; NaN marks an output whose winner has it. */
static void max_backward(yoke_float64_model *r, const yoke_node *layer, size_t out, size_t in) {
    double *y = &r->values[layer->output][out];
    if (r->values[layer->inputs[0]][in] != *y) return;
    r->gradients[layer->inputs[0]][in] += r->gradients[layer->output][out];
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
