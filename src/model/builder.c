/* SPDX-License-Identifier: Apache-2.0 */
/* Collects the layers of a model. The model stores the first error: later calls do nothing, and
 * yoke_model_finish reports it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/graph.h"

#define NAME_BYTES 200 /* longest layer name */

void *yoke_grow(void *array, int *capacity, int count, size_t size, const char *what) {
    if (count < *capacity) return array;
    int wanted = *capacity > 0 ? 2 * *capacity : 32;
    void *larger = yoke_realloc(array, (size_t)wanted * size);
    if (larger == NULL)
        FAIL_MEMORY((size_t)wanted * size, what);
    else
        *capacity = wanted;
    return larger;
}

bool yoke_builder_stopped(const yoke_model *model) {
    return model == NULL || model->error.status != YOKE_OK;
}

yoke_value yoke_builder_result(yoke_model *model, yoke_status status) {
    if (status == YOKE_OK) return (yoke_value){model->layer_count};
    model->error = yoke_error_take(status);
    return (yoke_value){YOKE_NONE};
}

void yoke_activation_checkpoint_begin(yoke_model *model) {
    if (yoke_builder_stopped(model)) return;
    yoke_status status = YOKE_OK;
    if (model->recomputing > 0)
        status = FAIL(YOKE_ERROR_ARGUMENT,
                      "activation checkpoint behind layer %d: the one before it has not ended",
                      model->layer_count);
    else
        model->recomputing = ++model->recompute_count;
    yoke_builder_result(model, status);
}

void yoke_activation_checkpoint_end(yoke_model *model) {
    if (yoke_builder_stopped(model)) return;
    yoke_status status = YOKE_OK;
    if (model->recomputing == 0)
        status = FAIL(YOKE_ERROR_ARGUMENT,
                      "activation checkpoint behind layer %d: it ends, and none has begun",
                      model->layer_count);
    model->recomputing = 0;
    yoke_builder_result(model, status);
}

const char *yoke_kind_name(yoke_operation_kind kind) {
    static const char *const names[] = {
        [YOKE_OP_CONV2D] = "conv2d",
        [YOKE_OP_CONV_TRANSPOSE2D] = "conv_transpose2d",
        [YOKE_OP_LINEAR] = "linear",
        [YOKE_OP_BATCH_NORM] = "batch_norm",
        [YOKE_OP_LAYER_NORM] = "layer_norm",
        [YOKE_OP_ACTIVATION] = "activation",
        [YOKE_OP_ADD] = "add",
        [YOKE_OP_MULTIPLY] = "multiply",
        [YOKE_OP_CONCAT] = "concat",
        [YOKE_OP_SOFTMAX] = "softmax",
        [YOKE_OP_MAX_POOL] = "max_pool",
        [YOKE_OP_AVERAGE_POOL] = "average_pool",
        [YOKE_OP_FLATTEN] = "flatten",
        [YOKE_OP_SEQUENCE] = "sequence",
        [YOKE_OP_EMBEDDING] = "embedding",
        [YOKE_OP_POSITIONS] = "positional_embedding",
        [YOKE_OP_DROPOUT] = "dropout",
        [YOKE_OP_CLASS_TOKEN] = "class_token",
        [YOKE_OP_SELECT] = "select",
        [YOKE_OP_RECURRENCE] = "recurrence",
        [YOKE_OP_ATTENTION] = "attention",
        [YOKE_OP_OUTPUT] = "output",
        [YOKE_OP_CROSS_ENTROPY] = "cross_entropy",
        [YOKE_OP_MSE] = "mse",
        [YOKE_OP_BCE] = "bce",
        [YOKE_OP_HUBER] = "huber",
        [YOKE_OP_OUTPUT_LOSS] = "output_loss",
        [YOKE_OP_EXPRESSION] = "expression",
        [YOKE_OP_REDUCE] = "reduce",
        [YOKE_OP_RESHAPE] = "reshape",
        [YOKE_OP_MOVE] = "move",
        [YOKE_OP_MATMUL] = "matmul",
        [YOKE_OP_PARAMETER] = "parameter",
        [YOKE_OP_CONSTANT] = "constant",
        [YOKE_OP_HOST] = "host_operation",
        [YOKE_OP_INPUT] = "input",
        [YOKE_OP_CONTINUED_POSITIONS] = "continued_positions",
        [YOKE_OP_CONTINUED_ATTENTION] = "continued_attention",
    };
    return names[kind];
}

const yoke_node *yoke_builder_find(const yoke_model *model, const char *name) {
    for (int i = 0; i < model->layer_count; i++) {
        const char *other = model->layers[i].operation.name;
        if (other != NULL && strcmp(other, name) == 0) return &model->layers[i];
    }
    return NULL;
}

yoke_status yoke_builder_layer(yoke_model *model, yoke_operation_kind kind, const char *name,
                               yoke_node **layer) {
    bool named = kind == YOKE_OP_CONV2D || kind == YOKE_OP_CONV_TRANSPOSE2D ||
                 kind == YOKE_OP_LINEAR || kind == YOKE_OP_BATCH_NORM ||
                 kind == YOKE_OP_LAYER_NORM || kind == YOKE_OP_EMBEDDING ||
                 kind == YOKE_OP_POSITIONS || kind == YOKE_OP_CLASS_TOKEN ||
                 kind == YOKE_OP_PARAMETER || kind == YOKE_OP_RECURRENCE || kind == YOKE_OP_HOST;
    const char *what = yoke_kind_name(kind);
    if (model->finished)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%s: model '%s' is finished; add layers before finishing it", what,
                    model->name);
    if (named && (name == NULL || name[0] == '\0' || strlen(name) > NAME_BYTES))
        return FAIL(YOKE_ERROR_ARGUMENT, "%s as layer %d: needs a name of 1 to %d characters", what,
                    model->layer_count, NAME_BYTES);
    if (named && yoke_builder_find(model, name) != NULL)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s '%s': an earlier layer has this name", what, name);
    yoke_node *layers = yoke_grow(model->layers, &model->layer_capacity, model->layer_count,
                                  sizeof *layers, "a list of layers");
    if (layers == NULL) return YOKE_ERROR_MEMORY;
    model->layers = layers;
    *layer = &model->layers[model->layer_count++];
    **layer = (yoke_node){
        .operation = {.kind = kind, .layer = (uint32_t)(model->layer_count - 1)},
        .tensors = {YOKE_NONE, YOKE_NONE},
        .buffers = {YOKE_NONE, YOKE_NONE},
        .output = model->layer_count,
        .recomputed = model->recomputing,
    };
    char own[32]; /* a layer without parameters is named by a word and its position: "relu.7" */
    if (!named) {
        snprintf(own, sizeof own, "%s.%d", name != NULL ? name : what, model->layer_count - 1);
        name = own;
    }
    (*layer)->operation.name = yoke_strdup(name);
    if ((*layer)->operation.name == NULL) return FAIL_MEMORY(strlen(name) + 1, "a layer's name");
    return YOKE_OK;
}

yoke_shape yoke_value_shape(const yoke_model *model, int value) {
    return value == 0 ? model->input : model->layers[value - 1].shape;
}

size_t yoke_value_elements(const yoke_model *model, int value) {
    yoke_shape shape = yoke_value_shape(model, value);
    return (size_t)shape.channels * (size_t)shape.height * (size_t)shape.width;
}

yoke_shape yoke_shape_of(const yoke_model *model, yoke_value value) {
    bool exists =
        !yoke_builder_stopped(model) && value.index >= 0 && value.index <= model->layer_count;
    return exists ? yoke_value_shape(model, value.index) : (yoke_shape){0};
}

yoke_status yoke_builder_shape(yoke_node *layer, yoke_shape shape) {
    if ((int64_t)shape.channels * shape.height > INT32_MAX / shape.width)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: an output row of %d x %d x %d is more than %d values",
                    layer->operation.name, shape.channels, shape.height, shape.width, INT32_MAX);
    layer->shape = shape;
    layer->operation.output = yoke_dims_of(shape);
    return YOKE_OK;
}

yoke_status yoke_builder_elementwise(yoke_model *model, yoke_operation_kind kind, const char *name,
                                     yoke_value input, yoke_node **layer) {
    TRY(yoke_builder_layer(model, kind, name, layer));
    TRY(yoke_builder_read(model, *layer, input));
    return yoke_builder_shape(*layer, yoke_value_shape(model, input.index));
}

const char *yoke_shape_kind(yoke_shape shape) {
    return shape.flat ? " (flat)" : shape.sequence ? " (a sequence)" : "";
}

yoke_dims yoke_dims_of(yoke_shape shape) {
    return (yoke_dims){shape.channels, shape.height, shape.width, shape.sequence};
}

yoke_status yoke_builder_read(yoke_model *model, yoke_node *layer, yoke_value value) {
    if (value.index < 0 || value.index >= layer->output)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: reads value %d, the model has 0 to %d",
                    layer->operation.name, value.index, layer->output - 1);
    yoke_dims dims = yoke_dims_of(yoke_value_shape(model, value.index));
    if (layer->input_count == 0)
        layer->operation.input = dims;
    else
        layer->operation.others[layer->input_count - 1] = dims;
    layer->inputs[layer->input_count++] = value.index;
    return YOKE_OK;
}
