/* From the layers a user writes to the operations a device runs: a ReLU behind a batch norm or an
 * add joins it when nobody else reads the value between, and OUTPUT is appended. */
#include <stdlib.h>

#include "model/graph.h"

/* The only layer reading `value`, NULL when there are several or the value is the output. */
static const yoke_node *only_reader(const yoke_model *model, int value) {
    const yoke_node *reader = NULL;
    if (value == model->output) return NULL;
    for (int i = value; i < model->layer_count; i++) {
        const yoke_node *layer = &model->layers[i];
        for (int k = 0; k < layer->input_count; k++) {
            if (layer->inputs[k] != value) continue;
            if (reader != NULL) return NULL;
            reader = layer;
        }
    }
    return reader;
}

static const yoke_node *fusable_relu(const yoke_model *model, const yoke_node *layer) {
    yoke_operation_kind kind = layer->operation.kind;
    if (kind != YOKE_OP_BATCH_NORM && kind != YOKE_OP_ADD) return NULL;
    const yoke_node *reader = only_reader(model, layer->output);
    return reader != NULL && reader->operation.kind == YOKE_OP_RELU ? reader : NULL;
}

/* A layer's node stands where the layer stood, so the list stays in topological order. */
static void fuse_layers(yoke_model *model, bool *absorbed) {
    for (int i = 0; i < model->layer_count; i++) {
        if (absorbed[i]) continue;
        yoke_node *node = &model->nodes[model->node_count++];
        *node = model->layers[i];
        const yoke_node *relu = fusable_relu(model, node);
        if (relu == NULL) continue;
        node->operation.relu = true;
        node->output = relu->output;
        absorbed[relu - model->layers] = true;
    }
}

static void append_output(yoke_model *model) {
    yoke_shape shape = yoke_value_shape(model, model->output);
    model->nodes[model->node_count++] = (yoke_node){
        .operation = {.kind = YOKE_OP_OUTPUT,
                      .name = "output",
                      .input = yoke_dims_of(shape),
                      .output = yoke_dims_of(shape)},
        .shape = shape,
        .inputs = {model->output, YOKE_NONE},
        .input_count = 1,
        .output = model->value_count - 1,
        .tensors = {YOKE_NONE, YOKE_NONE},
        .buffers = {YOKE_NONE, YOKE_NONE},
    };
}

bool yoke_node_wants_gradient(const yoke_model *model, const yoke_node *node) {
    bool wanted = false;
    for (int k = 0; k < node->input_count; k++)
        wanted = wanted || model->wants_gradient[node->inputs[k]];
    return wanted;
}

/* A gradient flows wherever a parameter lies before. */
static void mark_gradients(yoke_model *model) {
    for (int i = 0; i < model->node_count; i++) {
        yoke_node *node = &model->nodes[i];
        node->backward = node->tensor_count > 0 || yoke_node_wants_gradient(model, node);
        model->wants_gradient[node->output] = node->backward;
    }
}

yoke_status yoke_fuse(yoke_model *model) {
    size_t layers = (size_t)model->layer_count;
    model->value_count = model->layer_count + 2;
    model->nodes = calloc(layers + 1, sizeof *model->nodes);
    model->wants_gradient = calloc(layers + 2, sizeof *model->wants_gradient);
    bool *absorbed = calloc(layers, sizeof *absorbed);
    if (model->nodes == NULL || model->wants_gradient == NULL || absorbed == NULL) {
        free(absorbed);
        return FAIL_MEMORY((layers + 1) * sizeof *model->nodes, "a model's operations");
    }
    fuse_layers(model, absorbed);
    free(absorbed);
    append_output(model);
    mark_gradients(model);
    return YOKE_OK;
}
