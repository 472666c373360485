/* SPDX-License-Identifier: Apache-2.0 */
/* Turns the layers that a user writes into the operations that a device runs: fuses a ReLU with the
 * batch norm or the add before it, these with the batch norm before such an add, and elementary
 * functions with each other (expressions.c), if no other layer reads the value between them.
 * Appends the OUTPUTs. */
#include <stdlib.h>

#include "model/graph.h"

static bool is_relu(const yoke_node *layer) {
    return layer->operation.kind == YOKE_OP_ACTIVATION && layer->operation.activation == YOKE_RELU;
}

static const yoke_node *fusable_relu(const yoke_model *model, const yoke_node *layer) {
    yoke_operation_kind kind = layer->operation.kind;
    if (kind != YOKE_OP_BATCH_NORM && kind != YOKE_OP_ADD) return NULL;
    const yoke_node *reader = yoke_only_reader(model, layer->output);
    return reader != NULL && is_relu(reader) ? reader : NULL;
}

/* The batch norm to fuse with this add and its ReLU; of two candidates the later one. */
static const yoke_node *fusable_norm(const yoke_model *model, const yoke_node *add) {
    const yoke_node *found = NULL;
    if (add->operation.kind != YOKE_OP_ADD || fusable_relu(model, add) == NULL) return NULL;
    for (int k = 0; k < add->input_count; k++) {
        if (add->inputs[k] == 0) continue;
        const yoke_node *writer = &model->layers[add->inputs[k] - 1];
        bool alone = yoke_only_reader(model, writer->output) == add;
        if (alone && writer->operation.kind == YOKE_OP_BATCH_NORM &&
            (found == NULL || writer > found))
            found = writer;
    }
    return found;
}

static bool waits_for_add(const yoke_model *model, const yoke_node *layer) {
    if (layer->operation.kind != YOKE_OP_BATCH_NORM) return false;
    const yoke_node *reader = yoke_only_reader(model, layer->output);
    return reader != NULL && fusable_norm(model, reader) == layer;
}

static void take_expression(const yoke_model *model, yoke_node *node, const yoke_joined *joined) {
    node->operation.kind = YOKE_OP_EXPRESSION;
    node->operation.expression = joined->expression;
    node->input_count = joined->expression.inputs;
    for (int k = 0; k < node->input_count; k++) {
        yoke_dims dims = yoke_dims_of(yoke_value_shape(model, joined->inputs[k]));
        node->inputs[k] = joined->inputs[k];
        *(k == 0 ? &node->operation.input : &node->operation.others[k - 1]) = dims;
    }
}

yoke_status yoke_fuse(yoke_model *model) {
    size_t layers = (size_t)model->layer_count, nodes = layers + (size_t)model->output_count;
    model->value_count = model->layer_count + 1 + model->output_count;
    model->nodes = yoke_calloc(nodes, sizeof *model->nodes);
    yoke_joined *joined = yoke_calloc(layers, sizeof *joined);
    if (model->nodes == NULL || joined == NULL) {
        yoke_free(joined);
        return FAIL_MEMORY(nodes * sizeof *model->nodes, "a model's operations");
    }
    yoke_join_expressions(model, joined);
    /* A fused node takes the place of the last layer whose inputs it needs, so the list stays in
     * topological order. */
    for (int i = 0; i < model->layer_count; i++) {
        const yoke_node *layer = &model->layers[i];
        bool computes = layer->operation.kind != YOKE_OP_INPUT;
        if (!computes || joined[i].absorbed || waits_for_add(model, layer)) continue;
        yoke_node *node = &model->nodes[model->node_count++];
        *node = *layer;
        if (joined[i].expression.count > 0) take_expression(model, node, &joined[i]);
        const yoke_node *relu = fusable_relu(model, layer), *norm = fusable_norm(model, layer);
        if (norm != NULL) {
            int other = node->inputs[0] == norm->output ? node->inputs[1] : node->inputs[0];
            *node = *norm;
            node->operation.add = true;
            node->inputs[1] = other;
            node->input_count = 2;
        }
        if (relu == NULL) continue;
        node->operation.relu = true;
        node->output = relu->output;
        joined[relu - model->layers].absorbed = true;
    }
    yoke_free(joined);
    for (int output = model->output_count - 1; output >= 0; output--) {
        yoke_shape shape = yoke_value_shape(model, model->outputs[output].value);
        model->nodes[model->node_count++] = (yoke_node){
            .operation = {.kind = YOKE_OP_OUTPUT,
                          .name = model->outputs[output].name,
                          .input = yoke_dims_of(shape),
                          .output = yoke_dims_of(shape)},
            .shape = shape,
            .inputs = {model->outputs[output].value, YOKE_NONE},
            .input_count = 1,
            .output = model->value_count - 1 - output,
            .tensors = {YOKE_NONE, YOKE_NONE},
            .buffers = {YOKE_NONE, YOKE_NONE},
        };
    }
    return YOKE_OK;
}

int yoke_fused_layers(const yoke_node *node) {
    const yoke_operation *operation = &node->operation;
    if (operation->kind == YOKE_OP_OUTPUT) return 0;
    if (operation->kind == YOKE_OP_EXPRESSION) return operation->expression.count;
    bool norm_and_add = operation->kind == YOKE_OP_BATCH_NORM && operation->add;
    return 1 + norm_and_add + operation->relu;
}

int yoke_model_layer_count(const yoke_model *model) {
    int count = 0;
    for (int i = 0; model != NULL && i < model->node_count; i++)
        count += yoke_fused_layers(&model->nodes[i]);
    return count;
}
