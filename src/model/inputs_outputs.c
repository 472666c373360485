/* SPDX-License-Identifier: Apache-2.0 */
/* The inputs and outputs of a model: what it reads and writes for every row of a batch. */
#include <stdlib.h>
#include <string.h>

#include "model/graph.h"

/* Their lists. */

yoke_status yoke_shape_check(yoke_shape shape, const char *what) {
    if (shape.channels < 1 || shape.height < 1 || shape.width < 1)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%s of %d x %d x %d: channels, height and width must be at least 1", what,
                    shape.channels, shape.height, shape.width);
    if (shape.flat && (shape.height != 1 || shape.width != 1))
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: a flat value has height and width 1, not %d x %d",
                    what, shape.height, shape.width);
    if (shape.sequence && (shape.flat || shape.width != 1))
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: a sequence has width 1, not %d%s", what, shape.width,
                    shape.flat ? ", and is not flat" : "");
    if ((int64_t)shape.channels * shape.height > INT32_MAX / shape.width)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s of %d x %d x %d: a row has more than %d values", what,
                    shape.channels, shape.height, shape.width, INT32_MAX);
    return YOKE_OK;
}

typedef struct value_list {
    const char *what; /* "input" */
    yoke_named_value *values;
    int *count, limit;
} value_list;

static value_list inputs_of(yoke_model *model) {
    return (value_list){"input", model->inputs, &model->input_count, YOKE_INPUTS_LIMIT};
}

static value_list outputs_of(yoke_model *model) {
    return (value_list){"output", model->outputs, &model->output_count, YOKE_OUTPUTS_LIMIT};
}

static yoke_status append_value(const value_list *list, const char *name, int value) {
    if (name == NULL || name[0] == '\0')
        return FAIL(YOKE_ERROR_ARGUMENT, "%s %d has no name", list->what, *list->count);
    if (*list->count == list->limit)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s '%s': the model has %d already, the most there can be",
                    list->what, name, list->limit);
    for (int i = 0; i < *list->count; i++)
        if (strcmp(list->values[i].name, name) == 0)
            return FAIL(YOKE_ERROR_ARGUMENT, "%s '%s': %s %d has this name", list->what, name,
                        list->what, i);
    yoke_named_value *added = &list->values[*list->count];
    added->value = value;
    added->name = yoke_strdup(name);
    if (added->name == NULL) return FAIL_MEMORY(strlen(name) + 1, "a name");
    ++*list->count;
    return YOKE_OK;
}

yoke_status yoke_inputs_outputs_begin(yoke_model *model, yoke_shape input) {
    value_list inputs = inputs_of(model), outputs = outputs_of(model);
    TRY(yoke_shape_check(input, "input"));
    model->input = input;
    TRY(append_value(&inputs, "input", 0));
    return append_value(&outputs, "output", YOKE_NONE);
}

void yoke_inputs_outputs_release(yoke_model *model) {
    for (int i = 0; i < model->output_count; i++)
        yoke_free(model->outputs[i].name);
    for (int i = 0; i < model->input_count; i++)
        yoke_free(model->inputs[i].name);
}

bool yoke_is_output(const yoke_model *model, int value) {
    for (int i = 0; i < model->output_count; i++)
        if (model->outputs[i].value == value) return true;
    return false;
}

const char *yoke_input_name(const yoke_model *model, int value) {
    for (int i = 0; i < model->input_count; i++)
        if (model->inputs[i].value == value) return model->inputs[i].name;
    return NULL;
}

/* Adding. */

yoke_value yoke_model_input(yoke_model *model) {
    return (yoke_value){yoke_builder_stopped(model) ? YOKE_NONE : 0};
}

static yoke_status add_input(yoke_model *model, const char *name, yoke_shape shape) {
    value_list inputs = inputs_of(model);
    yoke_node *layer = NULL;
    TRY(yoke_shape_check(shape, "input"));
    TRY(yoke_builder_layer(model, YOKE_OP_INPUT, NULL, &layer));
    layer->shape = shape;
    layer->operation.output = yoke_dims_of(shape);
    return append_value(&inputs, name, layer->output);
}

yoke_value yoke_model_add_input(yoke_model *model, const char *name, yoke_shape shape) {
    if (yoke_builder_stopped(model)) return (yoke_value){YOKE_NONE};
    return yoke_builder_result(model, add_input(model, name, shape));
}

static yoke_status add_output(yoke_model *model, const char *name, yoke_value value) {
    value_list outputs = outputs_of(model);
    if (model->finished)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "output '%s': model '%s' is finished; add outputs before finishing it", name,
                    model->name);
    if (value.index < 0 || value.index > model->layer_count)
        return FAIL(YOKE_ERROR_ARGUMENT, "output '%s': is value %d, the model has 0 to %d", name,
                    value.index, model->layer_count);
    return append_value(&outputs, name, value.index);
}

void yoke_model_add_output(yoke_model *model, const char *name, yoke_value value) {
    if (yoke_builder_stopped(model)) return;
    yoke_builder_result(model, add_output(model, name != NULL ? name : "", value));
}

/* Asking. */

yoke_shape yoke_model_input_shape(const yoke_model *model) {
    return model != NULL ? model->input : (yoke_shape){0};
}

yoke_shape yoke_model_output_shape(const yoke_model *model) {
    if (model == NULL || !model->finished) return (yoke_shape){0};
    return yoke_value_shape(model, model->outputs[0].value);
}

int yoke_model_input_count(const yoke_model *model) {
    return model != NULL ? model->input_count : 0;
}

int yoke_model_output_count(const yoke_model *model) {
    return model != NULL ? model->output_count : 0;
}

size_t yoke_model_input_elements(const yoke_model *model, int input) {
    return yoke_value_elements(model, model->inputs[input].value);
}

size_t yoke_model_output_elements(const yoke_model *model, int output) {
    return yoke_value_elements(model, model->outputs[output].value);
}

size_t yoke_model_positions(const yoke_model *model) {
    yoke_shape output = yoke_model_output_shape(model);
    return output.sequence && yoke_model_reads_labels(model) ? (size_t)output.height : 1;
}

static yoke_status describe_value(const yoke_model *model, const yoke_named_value *value,
                                  yoke_value_info *info) {
    yoke_value_info own = {.struct_size = sizeof own,
                           .name = value->name,
                           .shape = yoke_value_shape(model, value->value),
                           .row_count = yoke_value_elements(model, value->value)};
    return yoke_options_store(info, &own, sizeof own, "yoke_value_info");
}

yoke_status yoke_model_describe_input(const yoke_model *model, int index, yoke_value_info *info) {
    TRY(yoke_pointer_check(model, "model"));
    if (index < 0 || index >= model->input_count)
        return FAIL(YOKE_ERROR_ARGUMENT, "input %d: model '%s' has 0 to %d", index, model->name,
                    model->input_count - 1);
    return describe_value(model, &model->inputs[index], info);
}

yoke_status yoke_model_describe_output(const yoke_model *model, int index, yoke_value_info *info) {
    TRY(yoke_pointer_check(model, "model"));
    if (!model->finished)
        return FAIL(YOKE_ERROR_ARGUMENT, "model '%s' is not finished", model->name);
    if (index < 0 || index >= model->output_count)
        return FAIL(YOKE_ERROR_ARGUMENT, "output %d: model '%s' has 0 to %d", index, model->name,
                    model->output_count - 1);
    return describe_value(model, &model->outputs[index], info);
}

/* From the last layer to the first: who changes a layer's output changes what reads it. */
yoke_status yoke_model_reach(const yoke_model *model, unsigned *outputs) {
    size_t values = (size_t)model->layer_count + 1;
    unsigned *reached = yoke_calloc(values, sizeof *reached);
    if (reached == NULL) return FAIL_MEMORY(values * sizeof *reached, "what a loss reaches");
    for (int k = 0; k < model->output_count; k++)
        reached[model->outputs[k].value] |= 1u << k;
    for (int i = model->layer_count - 1; i >= 0; i--) {
        const yoke_node *layer = &model->layers[i];
        for (int k = 0; k < layer->input_count; k++)
            reached[layer->inputs[k]] |= reached[layer->output];
        for (int k = 0; k < layer->tensor_count; k++)
            outputs[layer->tensors[k]] |= reached[layer->output];
    }
    yoke_free(reached);
    return YOKE_OK;
}
