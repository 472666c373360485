/* A model as plain loops over double: forward, loss and backward of the list of layers as
 * written, before any fusing, in PyTorch's layouts. The tests compare replicas with it. */
#ifndef TESTS_REFERENCE_MODEL_H
#define TESTS_REFERENCE_MODEL_H

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/graph.h"

struct reference {
    const yoke_model *model;
    int rows;
    bool training;
    yoke_plan_step step;
    double **values, **gradients;         /* [layers + 1], each [rows, channels, height, width] */
    double **tensors, **tensor_gradients; /* [tensors] */
    const int32_t *labels;
    const float *targets;
    double loss_sum;
    int correct;
};

static inline size_t reference_row(const struct reference *r, int value) {
    yoke_shape shape = yoke_value_shape(r->model, value);
    return (size_t)shape.channels * (size_t)shape.height * (size_t)shape.width;
}

static inline double **reference_list(int count) {
    return calloc((size_t)count, sizeof(double *));
}

static inline struct reference *reference_create(const yoke_model *model, int rows) {
    struct reference *r = calloc(1, sizeof *r);
    r->model = model;
    r->rows = rows;
    r->training = true;
    r->values = reference_list(model->layer_count + 1);
    r->gradients = reference_list(model->layer_count + 1);
    for (int i = 0; i <= model->layer_count; i++) {
        r->values[i] = calloc((size_t)rows * reference_row(r, i), sizeof(double));
        r->gradients[i] = calloc((size_t)rows * reference_row(r, i), sizeof(double));
    }
    r->tensors = reference_list(model->tensor_count);
    r->tensor_gradients = reference_list(model->tensor_count);
    for (int i = 0; i < model->tensor_count; i++) {
        r->tensors[i] = calloc(model->tensors[i].count, sizeof(double));
        r->tensor_gradients[i] = calloc(model->tensors[i].count, sizeof(double));
    }
    return r;
}

static inline void reference_free_list(double **list, int count) {
    for (int i = 0; i < count; i++)
        free(list[i]);
    free(list);
}

static inline void reference_destroy(struct reference *r) {
    reference_free_list(r->values, r->model->layer_count + 1);
    reference_free_list(r->gradients, r->model->layer_count + 1);
    reference_free_list(r->tensors, r->model->tensor_count);
    reference_free_list(r->tensor_gradients, r->model->tensor_count);
    free(r);
}

/* Windows. */

/* Visits every tap of every place of a layer's window: at the output element and the input element
 * (inside: it is no padding) of one row and channel pair. */
struct tap {
    const yoke_node *layer;
    int row, out_channel, in_channel; /* in_channel within the input */
    int y, x, ky, kx;
    size_t out, in;
    bool inside;
};
typedef void (*tap_visitor)(struct reference *r, const struct tap *tap);

static inline void reference_taps(struct reference *r, const yoke_node *layer, struct tap at,
                                  tap_visitor visit) {
    const yoke_operation *o = &layer->operation;
    bool global = o->kernel == 0;
    int kernel_height = global ? o->input.height : o->kernel;
    int kernel_width = global ? o->input.width : o->kernel;
    at.layer = layer;
    for (at.y = 0; at.y < o->output.height; at.y++)
        for (at.x = 0; at.x < o->output.width; at.x++)
            for (at.ky = 0; at.ky < kernel_height; at.ky++)
                for (at.kx = 0; at.kx < kernel_width; at.kx++) {
                    int y = at.y * o->stride - o->padding + at.ky;
                    int x = at.x * o->stride - o->padding + at.kx;
                    at.inside = y >= 0 && y < o->input.height && x >= 0 && x < o->input.width;
                    at.out = ((size_t)(at.row * o->output.channels + at.out_channel) *
                                  (size_t)o->output.height +
                              (size_t)at.y) *
                                 (size_t)o->output.width +
                             (size_t)at.x;
                    at.in = at.inside ? ((size_t)(at.row * o->input.channels + at.in_channel) *
                                             (size_t)o->input.height +
                                         (size_t)y) *
                                                (size_t)o->input.width +
                                            (size_t)x
                                      : 0;
                    if (at.inside) visit(r, &at);
                }
}

static inline void reference_windows(struct reference *r, const yoke_node *layer,
                                     tap_visitor visit) {
    const yoke_operation *o = &layer->operation;
    bool conv = o->kind == YOKE_OP_CONV2D;
    int in_per_group = conv ? o->input.channels / o->groups : 1;
    int out_per_group = conv ? o->output.channels / o->groups : 1;
    for (int row = 0; row < r->rows; row++)
        for (int out = 0; out < o->output.channels; out++)
            for (int k = 0; k < in_per_group; k++) {
                int in = conv ? out / out_per_group * in_per_group + k : out;
                reference_taps(r, layer,
                               (struct tap){.row = row, .out_channel = out, .in_channel = in},
                               visit);
            }
}

static inline size_t reference_weight(const struct tap *at) {
    const yoke_operation *o = &at->layer->operation;
    int per_group = o->input.channels / o->groups;
    return ((size_t)(at->out_channel * per_group + at->in_channel % per_group) * (size_t)o->kernel +
            (size_t)at->ky) *
               (size_t)o->kernel +
           (size_t)at->kx;
}

static inline void conv_forward_tap(struct reference *r, const struct tap *at) {
    const yoke_node *layer = at->layer;
    r->values[layer->output][at->out] +=
        r->values[layer->inputs[0]][at->in] * r->tensors[layer->tensors[0]][reference_weight(at)];
}

static inline void conv_backward_tap(struct reference *r, const struct tap *at) {
    const yoke_node *layer = at->layer;
    double gradient = r->gradients[layer->output][at->out];
    size_t weight = reference_weight(at);
    r->gradients[layer->inputs[0]][at->in] += gradient * r->tensors[layer->tensors[0]][weight];
    r->tensor_gradients[layer->tensors[0]][weight] +=
        gradient * r->values[layer->inputs[0]][at->in];
}

static inline double reference_window_size(const yoke_operation *o) {
    return o->kernel == 0 ? (double)(o->input.height * o->input.width)
                          : (double)(o->kernel * o->kernel);
}

static inline void average_forward_tap(struct reference *r, const struct tap *at) {
    r->values[at->layer->output][at->out] +=
        r->values[at->layer->inputs[0]][at->in] / reference_window_size(&at->layer->operation);
}

static inline void average_backward_tap(struct reference *r, const struct tap *at) {
    r->gradients[at->layer->inputs[0]][at->in] +=
        r->gradients[at->layer->output][at->out] / reference_window_size(&at->layer->operation);
}

static inline void max_forward_tap(struct reference *r, const struct tap *at) {
    double *out = &r->values[at->layer->output][at->out];
    *out = fmax(*out, r->values[at->layer->inputs[0]][at->in]);
}

/* The first of equal winners takes the gradient; taken ones are marked by making the output NaN. */
static inline void max_backward_tap(struct reference *r, const struct tap *at) {
    double *out = &r->values[at->layer->output][at->out];
    if (r->values[at->layer->inputs[0]][at->in] != *out) return;
    r->gradients[at->layer->inputs[0]][at->in] += r->gradients[at->layer->output][at->out];
    *out = NAN;
}

/* Layers. */

static inline void add_channel_bias(struct reference *r, const yoke_node *layer) {
    if (!layer->operation.bias) return;
    size_t channels = (size_t)layer->shape.channels;
    size_t pixels = (size_t)layer->shape.height * (size_t)layer->shape.width;
    for (size_t i = 0; i < (size_t)r->rows * channels * pixels; i++)
        r->values[layer->output][i] += r->tensors[layer->tensors[1]][i / pixels % channels];
}

static inline void channel_bias_backward(struct reference *r, const yoke_node *layer) {
    if (!layer->operation.bias) return;
    size_t channels = (size_t)layer->shape.channels;
    size_t pixels = (size_t)layer->shape.height * (size_t)layer->shape.width;
    for (size_t i = 0; i < (size_t)r->rows * channels * pixels; i++)
        r->tensor_gradients[layer->tensors[1]][i / pixels % channels] +=
            r->gradients[layer->output][i];
}

static inline void linear_layer(struct reference *r, const yoke_node *layer, bool backward) {
    size_t in = (size_t)layer->operation.input.channels, out = (size_t)layer->shape.channels;
    const double *weight = r->tensors[layer->tensors[0]];
    double *weight_gradient = r->tensor_gradients[layer->tensors[0]];
    for (size_t row = 0; row < (size_t)r->rows; row++)
        for (size_t o = 0; o < out; o++)
            for (size_t i = 0; i < in; i++) {
                double *x = &r->values[layer->inputs[0]][row * in + i];
                double *dx = &r->gradients[layer->inputs[0]][row * in + i];
                double dy = r->gradients[layer->output][row * out + o];
                if (!backward) r->values[layer->output][row * out + o] += *x * weight[o * in + i];
                if (backward) *dx += dy * weight[o * in + i];
                if (backward) weight_gradient[o * in + i] += dy * *x;
            }
}

typedef struct moments {
    double mean, variance, count;
} moments;

static inline moments channel_moments(struct reference *r, const yoke_node *layer, size_t channel) {
    size_t channels = (size_t)layer->shape.channels;
    size_t pixels = (size_t)layer->shape.height * (size_t)layer->shape.width;
    const double *x = r->values[layer->inputs[0]];
    moments m = {.count = (double)((size_t)r->rows * pixels)};
    if (!r->training) {
        m.mean = r->tensors[layer->buffers[0]][channel];
        m.variance = r->tensors[layer->buffers[1]][channel];
        return m;
    }
    for (size_t i = 0; i < (size_t)r->rows * pixels; i++)
        m.mean += x[(i / pixels * channels + channel) * pixels + i % pixels] / m.count;
    for (size_t i = 0; i < (size_t)r->rows * pixels; i++) {
        double d = x[(i / pixels * channels + channel) * pixels + i % pixels] - m.mean;
        m.variance += d * d / m.count;
    }
    return m;
}

static inline void batch_norm_forward(struct reference *r, const yoke_node *layer) {
    size_t channels = (size_t)layer->shape.channels;
    size_t pixels = (size_t)layer->shape.height * (size_t)layer->shape.width;
    double momentum = layer->operation.momentum;
    for (size_t c = 0; c < channels; c++) {
        moments m = channel_moments(r, layer, c);
        double scale =
            r->tensors[layer->tensors[0]][c] / sqrt(m.variance + layer->operation.epsilon);
        for (size_t i = 0; i < (size_t)r->rows * pixels; i++) {
            size_t at = (i / pixels * channels + c) * pixels + i % pixels;
            r->values[layer->output][at] = (r->values[layer->inputs[0]][at] - m.mean) * scale +
                                           r->tensors[layer->tensors[1]][c];
        }
        if (!r->training) continue;
        double *mean = &r->tensors[layer->buffers[0]][c], *var = &r->tensors[layer->buffers[1]][c];
        *mean = (1 - momentum) * *mean + momentum * m.mean;
        *var = (1 - momentum) * *var + momentum * m.variance * m.count / (m.count - 1);
    }
}

/* dx = w / s * (dy - mean(dy) - xhat * mean(dy * xhat)) */
static inline void batch_norm_backward(struct reference *r, const yoke_node *layer) {
    size_t channels = (size_t)layer->shape.channels;
    size_t pixels = (size_t)layer->shape.height * (size_t)layer->shape.width;
    for (size_t c = 0; c < channels; c++) {
        moments m = channel_moments(r, layer, c);
        double s = sqrt(m.variance + layer->operation.epsilon), sum = 0, dot = 0;
        for (int pass = 0; pass < 2; pass++)
            for (size_t i = 0; i < (size_t)r->rows * pixels; i++) {
                size_t at = (i / pixels * channels + c) * pixels + i % pixels;
                double dy = r->gradients[layer->output][at];
                double xhat = (r->values[layer->inputs[0]][at] - m.mean) / s;
                if (pass == 1)
                    r->gradients[layer->inputs[0]][at] +=
                        r->tensors[layer->tensors[0]][c] / s *
                        (dy - sum / m.count - xhat * dot / m.count);
                if (pass == 0) sum += dy;
                if (pass == 0) dot += dy * xhat;
            }
        r->tensor_gradients[layer->tensors[0]][c] += dot;
        r->tensor_gradients[layer->tensors[1]][c] += sum;
    }
}

/* Element e of a row is kept when its word is at least probability * 2^32. */
static inline double dropout_factor(const struct reference *r, const yoke_node *layer,
                                    size_t element) {
    if (!r->training) return 1;
    size_t row_elements = reference_row(r, layer->output), e = element % row_elements;
    uint32_t words[4];
    yoke_random_words(r->step.seed, YOKE_RANDOM_DROPOUT,
                      (r->step.first_row + element / row_elements) << 40 ^ r->step.step,
                      layer->operation.layer, (uint32_t)(e / 4), words);
    double probability = layer->operation.probability;
    return (double)words[e % 4] >= probability * 0x1p32 ? 1 / (1 - probability) : 0;
}

/* What an elementwise layer multiplies gradients with. */
static inline double elementwise_slope(const struct reference *r, const yoke_node *layer,
                                       size_t i) {
    if (layer->operation.kind == YOKE_OP_RELU) return r->values[layer->output][i] > 0 ? 1 : 0;
    return layer->operation.kind == YOKE_OP_DROPOUT ? dropout_factor(r, layer, i) : 1;
}

static inline void elementwise_forward(struct reference *r, const yoke_node *layer) {
    size_t count = (size_t)r->rows * reference_row(r, layer->output);
    for (size_t i = 0; i < count; i++) {
        double x = r->values[layer->inputs[0]][i], *y = &r->values[layer->output][i];
        *y = x;
        if (layer->operation.kind == YOKE_OP_RELU) *y = fmax(x, 0);
        if (layer->operation.kind == YOKE_OP_ADD) *y = x + r->values[layer->inputs[1]][i];
        if (layer->operation.kind == YOKE_OP_DROPOUT) *y = x * dropout_factor(r, layer, i);
    }
}

static inline void elementwise_backward(struct reference *r, const yoke_node *layer) {
    size_t count = (size_t)r->rows * reference_row(r, layer->output);
    for (size_t i = 0; i < count; i++) {
        double slope = elementwise_slope(r, layer, i);
        for (int k = 0; k < layer->input_count; k++)
            r->gradients[layer->inputs[k]][i] += slope * r->gradients[layer->output][i];
    }
}

/* The whole. */

static inline void reference_layer_forward(struct reference *r, const yoke_node *layer) {
    size_t count = (size_t)r->rows * reference_row(r, layer->output);
    bool max = layer->operation.kind == YOKE_OP_MAX_POOL;
    for (size_t i = 0; i < count; i++)
        r->values[layer->output][i] = max ? -DBL_MAX : 0;
    switch (layer->operation.kind) {
    case YOKE_OP_CONV2D:
        reference_windows(r, layer, conv_forward_tap);
        break;
    case YOKE_OP_LINEAR:
        linear_layer(r, layer, false);
        break;
    case YOKE_OP_BATCH_NORM:
        batch_norm_forward(r, layer);
        break;
    case YOKE_OP_MAX_POOL:
        reference_windows(r, layer, max_forward_tap);
        break;
    case YOKE_OP_AVERAGE_POOL:
        reference_windows(r, layer, average_forward_tap);
        break;
    default:
        elementwise_forward(r, layer);
    }
    add_channel_bias(r, layer);
}

static inline void reference_layer_backward(struct reference *r, const yoke_node *layer) {
    switch (layer->operation.kind) {
    case YOKE_OP_CONV2D:
        reference_windows(r, layer, conv_backward_tap);
        break;
    case YOKE_OP_LINEAR:
        linear_layer(r, layer, true);
        break;
    case YOKE_OP_BATCH_NORM:
        batch_norm_backward(r, layer);
        break;
    case YOKE_OP_MAX_POOL:
        reference_windows(r, layer, max_backward_tap);
        break;
    case YOKE_OP_AVERAGE_POOL:
        reference_windows(r, layer, average_backward_tap);
        break;
    default:
        elementwise_backward(r, layer);
    }
    channel_bias_backward(r, layer);
}

static inline void cross_entropy_row(struct reference *r, int row, const double *x,
                                     double *gradient) {
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
        gradient[j] = (exp(log_p) - target) * (double)r->step.loss_scale;
    }
    r->correct += best == label;
}

static inline void reference_loss(struct reference *r) {
    int channels = yoke_model_output_shape(r->model).channels;
    const double *outputs = r->values[r->model->output];
    double *gradients = r->gradients[r->model->output];
    r->loss_sum = 0;
    r->correct = 0;
    for (int row = 0; row < r->rows; row++) {
        size_t at = (size_t)row * (size_t)channels;
        if (r->model->loss.kind == YOKE_LOSS_CROSS_ENTROPY)
            cross_entropy_row(r, row, outputs + at, gradients + at);
        for (int j = 0; r->model->loss.kind == YOKE_LOSS_MSE && j < channels; j++) {
            double error = outputs[at + (size_t)j] - (double)r->targets[at + (size_t)j];
            r->loss_sum += error * error / channels;
            gradients[at + (size_t)j] = 2 * error / channels * (double)r->step.loss_scale;
        }
    }
}

static inline void reference_forward(struct reference *r, const float *inputs) {
    for (size_t i = 0; i < (size_t)r->rows * reference_row(r, 0); i++)
        r->values[0][i] = (double)inputs[i];
    for (int i = 0; i < r->model->layer_count; i++)
        reference_layer_forward(r, &r->model->layers[i]);
}

static inline void reference_backward(struct reference *r) {
    const yoke_model *model = r->model;
    for (int i = 0; i <= model->layer_count; i++)
        memset(r->gradients[i], 0, (size_t)r->rows * reference_row(r, i) * sizeof(double));
    for (int i = 0; i < model->tensor_count; i++)
        memset(r->tensor_gradients[i], 0, model->tensors[i].count * sizeof(double));
    reference_loss(r);
    for (int i = model->layer_count - 1; i >= 0; i--)
        reference_layer_backward(r, &model->layers[i]);
}

/* Takes parameters and running statistics from a replica. */
static inline yoke_status reference_load(struct reference *r, yoke_replica *replica) {
    yoke_status status = YOKE_OK;
    for (int i = 0; i < r->model->tensor_count && status == YOKE_OK; i++) {
        const yoke_tensor *tensor = &r->model->tensors[i];
        if (tensor->integer) continue;
        float *values = malloc(tensor->count * sizeof *values);
        status = yoke_replica_read(replica, i, false, values);
        for (size_t k = 0; k < tensor->count; k++)
            r->tensors[i][k] = (double)values[k];
        free(values);
    }
    return status;
}

#endif
