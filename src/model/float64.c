/* The float64 reference: the list of layers as plain loops over double. The tests compare replicas
 * with it, and `yoke verify` whole runs. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/graph.h"

size_t yoke_float64_row(const yoke_float64_model *r, int value) {
    yoke_shape shape = yoke_value_shape(r->model, value);
    return (size_t)shape.channels * (size_t)shape.height * (size_t)shape.width;
}

/* One layer's channels and the pixels of a channel. */
typedef struct planes {
    size_t channels, pixels;
} planes;

static planes planes_of(yoke_shape shape) {
    return (planes){(size_t)shape.channels, (size_t)shape.height * (size_t)shape.width};
}

/* Convolution. */

/* The places of an output row (or column) whose tap at `offset` lies inside the input:
 * 0 <= place * stride + offset < inputs. */
typedef struct span {
    int begin, end;
} span;

static span inside(int outputs, int inputs, int stride, int offset) {
    int begin = offset >= 0 ? 0 : (stride - 1 - offset) / stride;
    int end = inputs - 1 - offset < 0 ? 0 : (inputs - 1 - offset) / stride + 1;
    return (span){begin, end < outputs ? end : outputs};
}

/* One tap of a kernel between a plane of the output and one of the input. */
typedef struct conv_tap {
    const yoke_operation *operation;
    size_t out, in; /* offsets of the planes */
    int ky, kx;
    double weight;
} conv_tap;

static void conv_forward_tap(const conv_tap *tap, const double *input, double *output) {
    const yoke_operation *o = tap->operation;
    int offset_y = tap->ky - o->padding, offset_x = tap->kx - o->padding, stride = o->stride;
    span ys = inside(o->output.height, o->input.height, stride, offset_y);
    span xs = inside(o->output.width, o->input.width, stride, offset_x);
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
    int offset_y = tap->ky - o->padding, offset_x = tap->kx - o->padding, stride = o->stride;
    span ys = inside(o->output.height, o->input.height, stride, offset_y);
    span xs = inside(o->output.width, o->input.width, stride, offset_x);
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

static void convolution(yoke_float64_model *r, const yoke_node *layer, bool backward) {
    const yoke_operation *o = &layer->operation;
    planes in = planes_of(yoke_value_shape(r->model, layer->inputs[0]));
    planes out = planes_of(layer->shape);
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
}

/* Pooling. */

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

/* Bias and linear. */

static void bias(yoke_float64_model *r, const yoke_node *layer, bool backward) {
    if (!layer->operation.bias) return;
    planes out = planes_of(layer->shape);
    int tensor = layer->tensors[1];
    for (size_t i = 0; i < (size_t)r->rows * out.channels * out.pixels; i++) {
        size_t channel = i / out.pixels % out.channels;
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

static void linear(yoke_float64_model *r, const yoke_node *layer, bool backward) {
    size_t in = (size_t)layer->operation.input.channels, out = (size_t)layer->shape.channels;
    int tensor = layer->tensors[0];
    for (size_t i = 0; i < (size_t)r->rows * out; i++) {
        size_t row = i / out * in, weights = i % out * in;
        const double *x = r->values[layer->inputs[0]] + row, *w = r->tensors[tensor] + weights;
        double dy = r->gradients[layer->output][i];
        if (!backward) {
            r->values[layer->output][i] = dot(x, w, in);
            continue;
        }
        add_scaled(r->gradients[layer->inputs[0]] + row, w, dy, in);
        add_scaled(r->tensor_gradients[tensor] + weights, x, dy, in);
    }
}

/* Batch norm. */

typedef struct moments {
    double mean, variance, count;
} moments;

static moments channel_moments(const yoke_float64_model *r, const yoke_node *layer, planes shape,
                               size_t channel) {
    moments m = {.count = (double)((size_t)r->rows * shape.pixels)};
    if (!r->training) {
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

static void update_statistics(yoke_float64_model *r, const yoke_node *layer, size_t channel,
                              moments m) {
    double momentum = layer->operation.momentum;
    double *mean = &r->tensors[layer->buffers[0]][channel];
    double *variance = &r->tensors[layer->buffers[1]][channel];
    *mean = (1 - momentum) * *mean + momentum * m.mean;
    *variance = (1 - momentum) * *variance + momentum * m.variance * m.count / (m.count - 1);
}

static void batch_norm_forward(yoke_float64_model *r, const yoke_node *layer) {
    planes shape = planes_of(layer->shape);
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
        if (r->training && !r->keeps_statistics) update_statistics(r, layer, c, m);
    }
}

/* dx = w / s * (dy - mean(dy) - xhat * mean(dy * xhat)) */
static void batch_norm_backward(yoke_float64_model *r, const yoke_node *layer) {
    planes shape = planes_of(layer->shape);
    const double *x = r->values[layer->inputs[0]], *gradient = r->gradients[layer->output];
    for (size_t c = 0; c < shape.channels; c++) {
        moments m = channel_moments(r, layer, shape, c);
        double s = sqrt(m.variance + layer->operation.epsilon), sum = 0, projection = 0;
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

/* Layers that compute each element by itself. */

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

static void elementwise_forward(yoke_float64_model *r, const yoke_node *layer) {
    size_t count = (size_t)r->rows * yoke_float64_row(r, layer->output);
    for (size_t i = 0; i < count; i++) {
        double x = r->values[layer->inputs[0]][i], *y = &r->values[layer->output][i];
        *y = x;
        if (layer->operation.kind == YOKE_OP_RELU) *y = x <= 0 ? 0 : x; /* NaN stays */
        if (layer->operation.kind == YOKE_OP_ADD) *y = x + r->values[layer->inputs[1]][i];
        if (layer->operation.kind == YOKE_OP_DROPOUT) *y = x * dropout_factor(r, layer, i);
    }
}

/* What an elementwise layer multiplies gradients with. */
static double slope_of(const yoke_float64_model *r, const yoke_node *layer, size_t i) {
    if (layer->operation.kind == YOKE_OP_RELU) return r->values[layer->output][i] > 0 ? 1 : 0;
    return layer->operation.kind == YOKE_OP_DROPOUT ? dropout_factor(r, layer, i) : 1;
}

static void elementwise_backward(yoke_float64_model *r, const yoke_node *layer) {
    size_t count = (size_t)r->rows * yoke_float64_row(r, layer->output);
    for (size_t i = 0; i < count; i++) {
        double gradient = slope_of(r, layer, i) * r->gradients[layer->output][i];
        for (int k = 0; k < layer->input_count; k++)
            r->gradients[layer->inputs[k]][i] += gradient;
    }
}

/* The whole. */

static void layer_forward(yoke_float64_model *r, const yoke_node *layer) {
    if (layer->operation.kind == YOKE_OP_INPUT) return;
    size_t count = (size_t)r->rows * yoke_float64_row(r, layer->output);
    bool max = layer->operation.kind == YOKE_OP_MAX_POOL;
    for (size_t i = 0; i < count; i++)
        r->values[layer->output][i] = max ? -DBL_MAX : 0;
    switch (layer->operation.kind) {
    case YOKE_OP_CONV2D:
        convolution(r, layer, false);
        break;
    case YOKE_OP_LINEAR:
        linear(r, layer, false);
        break;
    case YOKE_OP_BATCH_NORM:
        batch_norm_forward(r, layer);
        break;
    case YOKE_OP_MAX_POOL:
        pool(r, layer, max_forward);
        break;
    case YOKE_OP_AVERAGE_POOL:
        pool(r, layer, average_forward);
        break;
    default:
        elementwise_forward(r, layer);
    }
    bias(r, layer, false);
}

static void layer_backward(yoke_float64_model *r, const yoke_node *layer) {
    if (layer->operation.kind == YOKE_OP_INPUT) return;
    switch (layer->operation.kind) {
    case YOKE_OP_CONV2D:
        convolution(r, layer, true);
        break;
    case YOKE_OP_LINEAR:
        linear(r, layer, true);
        break;
    case YOKE_OP_BATCH_NORM:
        batch_norm_backward(r, layer);
        break;
    case YOKE_OP_MAX_POOL:
        pool(r, layer, max_backward);
        break;
    case YOKE_OP_AVERAGE_POOL:
        pool(r, layer, average_backward);
        break;
    default:
        elementwise_backward(r, layer);
    }
    bias(r, layer, true);
}

static void cross_entropy_row(yoke_float64_model *r, int row, const double *x, double *gradient) {
    int classes = yoke_model_output_shape(r->model).channels, best = 0, label = r->labels[row];
    double smoothing = r->model->loss.label_smoothing, sum = 0;
    for (int j = 0; j < classes; j++)
        if (x[j] > x[best]) best = j;
    for (int j = 0; j < classes; j++)
        sum += exp(x[j] - x[best]);
    for (int j = 0; j < classes; j++) {
        double log_p = x[j] - x[best] - log(sum);
        double target = (j == label ? 1 - smoothing : 0) + smoothing / classes;
        r->loss_sum -= target * log_p;
        gradient[j] = (exp(log_p) - target) * r->loss_scale;
    }
    r->correct += best == label;
}

void yoke_float64_loss(yoke_float64_model *r) {
    int channels = yoke_model_output_shape(r->model).channels;
    int value = r->model->outputs[0].value;
    const double *outputs = r->values[value];
    double *gradients = r->gradients[value];
    for (int i = 0; i <= r->model->layer_count; i++)
        memset(r->gradients[i], 0, (size_t)r->rows * yoke_float64_row(r, i) * sizeof(double));
    r->loss_sum = 0;
    r->correct = 0;
    for (int row = 0; row < r->rows; row++) {
        size_t at = (size_t)row * (size_t)channels;
        if (r->model->loss.kind == YOKE_LOSS_CROSS_ENTROPY)
            cross_entropy_row(r, row, outputs + at, gradients + at);
        for (int j = 0; r->model->loss.kind == YOKE_LOSS_MSE && j < channels; j++) {
            double error = outputs[at + (size_t)j] - (double)r->targets[at + (size_t)j];
            r->loss_sum += error * error / channels;
            gradients[at + (size_t)j] = 2 * error / channels * r->loss_scale;
        }
    }
}

void yoke_float64_forward(yoke_float64_model *r, const float *const *inputs) {
    for (int k = 0; k < r->model->input_count; k++) {
        int value = r->model->inputs[k].value;
        for (size_t i = 0; i < (size_t)r->rows * yoke_float64_row(r, value); i++)
            r->values[value][i] = (double)inputs[k][i];
    }
    for (int i = 0; i < r->model->layer_count; i++)
        layer_forward(r, &r->model->layers[i]);
}

void yoke_float64_backward(yoke_float64_model *r) {
    for (int i = r->model->layer_count - 1; i >= 0; i--)
        layer_backward(r, &r->model->layers[i]);
}

double yoke_layer_work(const yoke_model *model, const yoke_node *layer) {
    yoke_operation_kind kind = layer->operation.kind;
    if (kind != YOKE_OP_CONV2D && kind != YOKE_OP_LINEAR) return 0;
    size_t pixels = planes_of(layer->shape).pixels;
    return (double)model->tensors[layer->tensors[0]].count * (double)pixels;
}

/* Forward, and the gradients of weights and inputs: a product each. */
double yoke_float64_work(const yoke_model *model, int rows) {
    double work = 0;
    for (int i = 0; i < model->layer_count; i++)
        work += 3 * yoke_layer_work(model, &model->layers[i]) * rows;
    return work;
}

/* Memory. */

static bool fill_list(double ***list, int count) {
    *list = calloc((size_t)count + 1, sizeof **list);
    return *list != NULL;
}

static yoke_status build(yoke_float64_model *r) {
    const yoke_model *model = r->model;
    size_t rows = (size_t)r->rows, bytes = 0;
    bool fits = fill_list(&r->values, model->layer_count + 1) &&
                fill_list(&r->gradients, model->layer_count + 1) &&
                fill_list(&r->tensors, model->tensor_count) &&
                fill_list(&r->tensor_gradients, model->tensor_count);
    for (int i = 0; i <= model->layer_count && fits; i++) {
        size_t count = rows * yoke_float64_row(r, i);
        r->values[i] = calloc(count, sizeof(double));
        r->gradients[i] = calloc(count, sizeof(double));
        fits = r->values[i] != NULL && r->gradients[i] != NULL;
        bytes += 2 * count * sizeof(double);
    }
    for (int i = 0; i < model->tensor_count && fits; i++) {
        size_t count = model->tensors[i].count;
        r->tensors[i] = calloc(count, sizeof(double));
        r->tensor_gradients[i] = calloc(count, sizeof(double));
        fits = r->tensors[i] != NULL && r->tensor_gradients[i] != NULL;
        bytes += 2 * count * sizeof(double);
    }
    return fits ? YOKE_OK : FAIL_MEMORY(bytes, "a float64 reference");
}

yoke_status yoke_float64_create(yoke_float64_model **reference, const yoke_model *model, int rows) {
    *reference = NULL;
    yoke_float64_model *made = calloc(1, sizeof *made);
    if (made == NULL) return FAIL_MEMORY(sizeof *made, "a float64 reference");
    made->model = model;
    made->rows = rows;
    made->training = true;
    yoke_status status = build(made);
    if (status == YOKE_OK)
        *reference = made;
    else
        yoke_float64_destroy(made);
    return status;
}

static void free_list(double **list, int count) {
    for (int i = 0; i < count && list != NULL; i++)
        free(list[i]);
    free(list);
}

void yoke_float64_destroy(yoke_float64_model *r) {
    if (r == NULL) return;
    free_list(r->values, r->model->layer_count + 1);
    free_list(r->gradients, r->model->layer_count + 1);
    free_list(r->tensors, r->model->tensor_count);
    free_list(r->tensor_gradients, r->model->tensor_count);
    free(r);
}
