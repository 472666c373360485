/* SPDX-License-Identifier: Apache-2.0 */
/* A learned token before a sequence, and one position of a sequence as a flat value. */
#include "model/graph.h"
#include "yoke/transformer.h"

static yoke_status need_sequence(const yoke_model *model, const yoke_node *layer) {
    yoke_shape read = yoke_value_shape(model, layer->inputs[0]);
    if (read.sequence) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT, "%s: reads a value of %d x %d x %d, needs a sequence",
                layer->operation.name, read.channels, read.height, read.width);
}

static yoke_status add_class_token(yoke_model *model, yoke_value input, const char *name) {
    yoke_node *layer = NULL;
    TRY(yoke_builder_layer(model, YOKE_OP_CLASS_TOKEN, name, &layer));
    TRY(yoke_builder_read(model, layer, input));
    TRY(need_sequence(model, layer));
    yoke_shape shape = yoke_value_shape(model, input.index);
    if (shape.height == INT32_MAX)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: a sequence of %d positions takes no other", name,
                    shape.height);
    shape.height++;
    TRY(yoke_builder_shape(layer, shape));
    const yoke_tensor token = {.ndim = 3,
                               .shape = {1, 1, shape.channels},
                               .trainable = true,
                               .groups = 1,
                               .fill = {YOKE_FILL_CONSTANT, 0}};
    layer->tensor_count = 1;
    return yoke_tensor_add(model, name, NULL, &token, &layer->tensors[0]);
}

yoke_value yoke_class_token(yoke_model *model, yoke_value input, const char *name) {
    if (yoke_builder_stopped(model)) return (yoke_value){YOKE_NONE};
    return yoke_builder_result(model, add_class_token(model, input, name));
}

static yoke_status add_select(yoke_model *model, yoke_value input, int index) {
    yoke_node *layer = NULL;
    TRY(yoke_builder_layer(model, YOKE_OP_SELECT, NULL, &layer));
    TRY(yoke_builder_read(model, layer, input));
    TRY(need_sequence(model, layer));
    yoke_shape read = yoke_value_shape(model, input.index);
    if (index < 0 || index >= read.height)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: position %d, must be 0 to %d", layer->operation.name,
                    index, read.height - 1);
    layer->operation.index = index;
    return yoke_builder_shape(layer, (yoke_shape){read.channels, 1, 1, true});
}

yoke_value yoke_select(yoke_model *model, yoke_value input, int index) {
    if (yoke_builder_stopped(model)) return (yoke_value){YOKE_NONE};
    return yoke_builder_result(model, add_select(model, input, index));
}
