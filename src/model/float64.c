/* SPDX-License-Identifier: Apache-2.0 */
/* The float64 reference: the list of layers as plain loops over double. The tests compare replicas
 * with it, and `yoke verify` whole runs. float64_*.c hold the layers. */
#include <stdlib.h>
#include <string.h>

#include "model/float64.h"

size_t yoke_float64_row(const yoke_float64_model *r, int value) {
    yoke_shape shape = yoke_value_shape(r->model, value);
    return (size_t)shape.channels * (size_t)shape.height * (size_t)shape.width;
}

yoke_planes yoke_planes_of(yoke_shape shape) {
    return (yoke_planes){(size_t)shape.channels, (size_t)shape.height * (size_t)shape.width};
}

/* NULL: the kind computes nothing. */
static yoke_float64_layer function_of(yoke_operation_kind kind) {
    switch (kind) {
    case YOKE_OP_CONV2D:
        return yoke_float64_convolution;
    case YOKE_OP_LINEAR:
        return yoke_float64_linear;
    case YOKE_OP_BATCH_NORM:
        return yoke_float64_batch_norm;
    case YOKE_OP_LAYER_NORM:
        return yoke_float64_layer_norm;
    case YOKE_OP_MAX_POOL:
    case YOKE_OP_AVERAGE_POOL:
        return yoke_float64_pooling;
    case YOKE_OP_ACTIVATION:
        return yoke_float64_activation;
    case YOKE_OP_SOFTMAX:
        return yoke_float64_softmax;
    case YOKE_OP_CONCAT:
        return yoke_float64_concat;
    case YOKE_OP_MULTIPLY:
        return yoke_float64_multiply;
    case YOKE_OP_ADD:
    case YOKE_OP_FLATTEN:
    case YOKE_OP_DROPOUT:
        return yoke_float64_elementwise;
    case YOKE_OP_CLASS_TOKEN:
    case YOKE_OP_SELECT:
        return yoke_float64_class_token;
    case YOKE_OP_ATTENTION:
        return yoke_float64_attention;
    case YOKE_OP_SEQUENCE:
        return yoke_float64_sequence;
    case YOKE_OP_EMBEDDING:
        return yoke_float64_embedding;
    case YOKE_OP_POSITIONS:
        return yoke_float64_positions;
    case YOKE_OP_INPUT:
    case YOKE_OP_OUTPUT:
    case YOKE_OP_CROSS_ENTROPY:
    case YOKE_OP_MSE:
    case YOKE_OP_BCE:
    case YOKE_OP_HUBER:
        break;
    }
    return NULL;
}

static void run(yoke_float64_model *r, const yoke_node *layer, bool backward) {
    yoke_float64_layer function = function_of(layer->operation.kind);
    if (function != NULL) function(r, layer, backward);
}

void yoke_float64_forward(yoke_float64_model *r, const float *const *inputs) {
    for (int k = 0; k < r->model->input_count; k++) {
        int value = r->model->inputs[k].value;
        for (size_t i = 0; i < (size_t)r->rows * yoke_float64_row(r, value); i++)
            r->values[value][i] = (double)inputs[k][i];
    }
    for (int i = 0; i < r->model->layer_count; i++) {
        const yoke_node *layer = &r->model->layers[i];
        if (layer->operation.kind == YOKE_OP_INPUT) continue;
        memset(r->values[layer->output], 0,
               (size_t)r->rows * yoke_float64_row(r, layer->output) * sizeof(double));
        run(r, layer, false);
    }
}

void yoke_float64_backward(yoke_float64_model *r) {
    for (int i = r->model->layer_count - 1; i >= 0; i--)
        run(r, &r->model->layers[i], true);
}

double yoke_layer_work(const yoke_model *model, const yoke_node *layer) {
    yoke_operation_kind kind = layer->operation.kind;
    size_t pixels = yoke_planes_of(layer->shape).pixels;
    if (kind == YOKE_OP_ATTENTION) /* scores, and the values that they weigh; causal or not */
        return 2.0 * layer->shape.channels * (double)pixels * (double)pixels;
    if (kind != YOKE_OP_CONV2D && kind != YOKE_OP_LINEAR) return 0;
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
