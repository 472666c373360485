/* SPDX-License-Identifier: Apache-2.0 */
/* Layers that nobody reads: a reader of files makes some before it knows who needs them. */
#include <stdlib.h>

#include "model/graph.h"

/* needed[value]: an output needs it, or its layer has tensors. */
static void mark_needed(const yoke_model *model, int output, bool *needed) {
    needed[output] = true;
    for (int i = 1; i < model->output_count; i++)
        needed[model->outputs[i].value] = true;
    for (int i = model->layer_count - 1; i >= 0; i--) {
        const yoke_node *layer = &model->layers[i];
        if (layer->tensor_count > 0 || layer->operation.kind == YOKE_OP_INPUT)
            needed[layer->output] = true;
        for (int k = 0; k < layer->input_count && needed[layer->output]; k++)
            needed[layer->inputs[k]] = true;
    }
}

void yoke_builder_drop_unread(yoke_model *model, yoke_value *output) {
    if (yoke_builder_stopped(model) || output->index < 0 || output->index > model->layer_count)
        return;
    size_t values = (size_t)model->layer_count + 1;
    bool *needed = yoke_calloc(values, sizeof *needed);
    int *places = yoke_calloc(values, sizeof *places);
    if (needed == NULL || places == NULL) {
        yoke_builder_result(model, FAIL_MEMORY(values * sizeof *places, "a list of layers"));
        yoke_free(needed);
        yoke_free(places);
        return;
    }
    mark_needed(model, output->index, needed);
    int count = 0;
    for (int i = 0; i < model->layer_count; i++) {
        yoke_node layer = model->layers[i];
        if (!needed[layer.output]) {
            yoke_free((char *)layer.operation.name);
            yoke_free((float *)layer.operation.weights);
            continue;
        }
        places[layer.output] = count + 1;
        for (int k = 0; k < layer.input_count; k++)
            layer.inputs[k] = places[layer.inputs[k]];
        layer.output = count + 1;
        layer.operation.layer = (uint32_t)count;
        model->layers[count++] = layer;
    }
    model->layer_count = count;
    for (int i = 1; i < model->input_count; i++)
        model->inputs[i].value = places[model->inputs[i].value];
    for (int i = 1; i < model->output_count; i++)
        model->outputs[i].value = places[model->outputs[i].value];
    output->index = places[output->index];
    yoke_free(needed);
    yoke_free(places);
}
