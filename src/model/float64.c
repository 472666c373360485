/* SPDX-License-Identifier: Apache-2.0 */
/* The float64 reference: the list of layers as plain loops over double. The tests compare replicas
 * with it, and `yoke verify` whole runs. float64_*.c hold the layers. */
#include <stdlib.h>
#include <string.h>

#include "model/float64.h"

static void run_layer(yoke_float64_model *r, const yoke_node *layer, bool backward) {
    static const yoke_float64_layer functions[] = {
        [YOKE_OP_CONV2D] = yoke_float64_convolution,
        [YOKE_OP_CONV_TRANSPOSE2D] = yoke_float64_convolution,
        [YOKE_OP_LINEAR] = yoke_float64_linear,
        [YOKE_OP_BATCH_NORM] = yoke_float64_batch_norm,
        [YOKE_OP_LAYER_NORM] = yoke_float64_layer_norm,
        [YOKE_OP_MAX_POOL] = yoke_float64_pooling,
        [YOKE_OP_AVERAGE_POOL] = yoke_float64_pooling,
        [YOKE_OP_ACTIVATION] = yoke_float64_activation,
        [YOKE_OP_SOFTMAX] = yoke_float64_softmax,
        [YOKE_OP_CONCAT] = yoke_float64_concat,
        [YOKE_OP_MULTIPLY] = yoke_float64_multiply,
        [YOKE_OP_ADD] = yoke_float64_elementwise,
        [YOKE_OP_FLATTEN] = yoke_float64_elementwise,
        [YOKE_OP_DROPOUT] = yoke_float64_elementwise,
        [YOKE_OP_CLASS_TOKEN] = yoke_float64_class_token,
        [YOKE_OP_SELECT] = yoke_float64_select,
        [YOKE_OP_RECURRENCE] = yoke_float64_recurrence,
        [YOKE_OP_ATTENTION] = yoke_float64_attention,
        [YOKE_OP_SEQUENCE] = yoke_float64_sequence,
        [YOKE_OP_EMBEDDING] = yoke_float64_embedding,
        [YOKE_OP_POSITIONS] = yoke_float64_positions,
        [YOKE_OP_EXPRESSION] = yoke_float64_function,
        [YOKE_OP_REDUCE] = yoke_float64_reduction,
        [YOKE_OP_RESHAPE] = yoke_float64_elementwise,
        [YOKE_OP_MOVE] = yoke_float64_move,
        [YOKE_OP_MATMUL] = yoke_float64_matmul,
        [YOKE_OP_PARAMETER] = yoke_float64_parameter,
        [YOKE_OP_CONSTANT] = yoke_float64_constant,
        [YOKE_OP_HOST] = NULL,                /* create refuses it */
        [YOKE_OP_INPUT] = NULL,               /* computes nothing */
        [YOKE_OP_CONTINUED_ATTENTION] = NULL, /* in engines that predict alone */
    };
    yoke_float64_layer function = functions[layer->operation.kind];
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
        run_layer(r, layer, false);
    }
}

void yoke_float64_backward(yoke_float64_model *r) {
    for (int i = r->model->layer_count - 1; i >= 0; i--)
        run_layer(r, &r->model->layers[i], true);
}

double yoke_layer_work(const yoke_model *model, const yoke_node *layer) {
    yoke_operation_kind kind = layer->operation.kind;
    size_t pixels = yoke_planes_of(layer->shape).pixels;
    if (kind == YOKE_OP_ATTENTION) /* scores, and the values that they weigh; causal or not */
        return 2.0 * layer->shape.channels * (double)pixels * (double)pixels;
    if (kind == YOKE_OP_MATMUL) {
        yoke_matrices size = yoke_matmul_matrices(&layer->operation);
        return (double)size.count * (double)size.m * (double)size.k * (double)size.n;
    }
    if (kind == YOKE_OP_CONV_TRANSPOSE2D) /* each pixel that it reads meets the whole weight */
        pixels = yoke_planes_of(yoke_value_shape(model, layer->inputs[0])).pixels;
    else if (kind != YOKE_OP_CONV2D && kind != YOKE_OP_LINEAR && kind != YOKE_OP_RECURRENCE)
        return 0;
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
    *list = yoke_calloc((size_t)count + 1, sizeof **list);
    return *list != NULL;
}

/* Callbacks of the host program compute in float32, on a device. */
static yoke_status refuse_host_operations(const yoke_model *model) {
    for (int i = 0; i < model->layer_count; i++)
        if (model->layers[i].operation.kind == YOKE_OP_HOST)
            return FAIL(YOKE_ERROR_ARGUMENT,
                        "%s is an operation of the host program, which the float64 reference can "
                        "not run; yoke_model_check_gradients checks it",
                        model->layers[i].operation.name);
    return YOKE_OK;
}

static yoke_status float64_build(yoke_float64_model *r) {
    const yoke_model *model = r->model;
    TRY(refuse_host_operations(model));
    size_t rows = (size_t)r->rows, bytes = 0;
    bool fits = fill_list(&r->values, model->layer_count + 1) &&
                fill_list(&r->gradients, model->layer_count + 1) &&
                fill_list(&r->tensors, model->tensor_count) &&
                fill_list(&r->tensor_gradients, model->tensor_count);
    for (int i = 0; i <= model->layer_count && fits; i++) {
        size_t count = rows * yoke_float64_row(r, i);
        r->values[i] = yoke_calloc(count, sizeof(double));
        r->gradients[i] = yoke_calloc(count, sizeof(double));
        fits = r->values[i] != NULL && r->gradients[i] != NULL;
        bytes += 2 * count * sizeof(double);
    }
    for (int i = 0; i < model->tensor_count && fits; i++) {
        size_t count = model->tensors[i].count;
        r->tensors[i] = yoke_calloc(count, sizeof(double));
        r->tensor_gradients[i] = yoke_calloc(count, sizeof(double));
        fits = r->tensors[i] != NULL && r->tensor_gradients[i] != NULL;
        bytes += 2 * count * sizeof(double);
    }
    size_t scratch = 0;
    for (int i = 0; i < model->layer_count; i++) {
        size_t own = yoke_float64_recurrence_scratch(&model->layers[i]);
        if (own > scratch) scratch = own;
    }
    r->scratch = fits && scratch > 0 ? yoke_malloc(scratch * sizeof(double)) : NULL;
    fits = fits && (scratch == 0 || r->scratch != NULL);
    return fits ? YOKE_OK : FAIL_MEMORY(bytes + scratch * sizeof(double), "a float64 reference");
}

yoke_status yoke_float64_create(yoke_float64_model **reference, const yoke_model *model, int rows) {
    *reference = NULL;
    yoke_float64_model *made = yoke_calloc(1, sizeof *made);
    if (made == NULL) return FAIL_MEMORY(sizeof *made, "a float64 reference");
    made->model = model;
    made->rows = rows;
    made->training = true;
    yoke_status status = float64_build(made);
    if (status == YOKE_OK)
        *reference = made;
    else
        yoke_float64_destroy(made);
    return status;
}

static void free_list(double **list, int count) {
    for (int i = 0; i < count && list != NULL; i++)
        yoke_free(list[i]);
    yoke_free(list);
}

void yoke_float64_destroy(yoke_float64_model *r) {
    if (r == NULL) return;
    free_list(r->values, r->model->layer_count + 1);
    free_list(r->gradients, r->model->layer_count + 1);
    free_list(r->tensors, r->model->tensor_count);
    free_list(r->tensor_gradients, r->model->tensor_count);
    yoke_free(r->scratch);
    yoke_free(r);
}
