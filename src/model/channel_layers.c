/* SPDX-License-Identifier: Apache-2.0 */
/* Layers over the channels of each position: layer norm, softmax, concatenation. */
#include "model/graph.h"

static yoke_status need_channels(const yoke_model *model, const yoke_node *layer) {
    yoke_shape shape = yoke_value_shape(model, layer->inputs[0]);
    if (!shape.flat && !shape.sequence)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%s: reads an image of %d x %d x %d, needs a flat value or a sequence; put "
                    "yoke_flatten or yoke_sequence before it",
                    layer->operation.name, shape.channels, shape.height, shape.width);
    return YOKE_OK;
}

static yoke_status add_layer_norm(yoke_model *model, yoke_value input,
                                  const yoke_layer_norm_options *given) {
    yoke_layer_norm_options options = {.struct_size = sizeof options};
    TRY(yoke_options_load(&options, sizeof options, given, "yoke_layer_norm_options"));
    yoke_node *layer = NULL;
    TRY(yoke_builder_elementwise(model, YOKE_OP_LAYER_NORM, options.name, input, &layer));
    TRY(need_channels(model, layer));
    if (!(options.epsilon > 0 && options.epsilon < 1))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%s: epsilon is %g, it must be above 0 and below 1; "
                    "YOKE_LAYER_NORM_OPTIONS_INIT sets the default",
                    options.name, options.epsilon);
    layer->operation.epsilon = options.epsilon;
    yoke_tensor one = {.ndim = 1,
                       .shape = {layer->shape.channels},
                       .trainable = true,
                       .groups = 1,
                       .fill = {YOKE_FILL_CONSTANT, 1}};
    yoke_tensor zero = one;
    zero.fill.value = 0;
    TRY(yoke_tensor_add(model, options.name, "weight", &one, &layer->tensors[0]));
    TRY(yoke_tensor_add(model, options.name, "bias", &zero, &layer->tensors[1]));
    layer->tensor_count = 2;
    return YOKE_OK;
}

yoke_value yoke_layer_norm(yoke_model *model, yoke_value input,
                           const yoke_layer_norm_options *options) {
    if (yoke_builder_stopped(model)) return (yoke_value){YOKE_NONE};
    return yoke_builder_result(model, add_layer_norm(model, input, options));
}

static yoke_status add_softmax(yoke_model *model, yoke_value input) {
    yoke_node *layer = NULL;
    TRY(yoke_builder_elementwise(model, YOKE_OP_SOFTMAX, NULL, input, &layer));
    return need_channels(model, layer);
}

yoke_value yoke_softmax(yoke_model *model, yoke_value input) {
    if (yoke_builder_stopped(model)) return (yoke_value){YOKE_NONE};
    return yoke_builder_result(model, add_softmax(model, input));
}

static yoke_status add_concat(yoke_model *model, yoke_value left, yoke_value right) {
    yoke_node *layer = NULL;
    TRY(yoke_builder_layer(model, YOKE_OP_CONCAT, NULL, &layer));
    TRY(yoke_builder_read(model, layer, left));
    TRY(yoke_builder_read(model, layer, right));
    yoke_shape a = yoke_value_shape(model, left.index), b = yoke_value_shape(model, right.index);
    if (a.height != b.height || a.width != b.width || a.flat != b.flat || a.sequence != b.sequence)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%s: left is %d x %d x %d%s, right is %d x %d x %d%s; only the channels may "
                    "differ",
                    layer->operation.name, a.channels, a.height, a.width, yoke_shape_kind(a),
                    b.channels, b.height, b.width, yoke_shape_kind(b));
    if (b.channels > INT32_MAX - a.channels)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: %d and %d channels are more than %d",
                    layer->operation.name, a.channels, b.channels, INT32_MAX);
    a.channels += b.channels;
    return yoke_builder_shape(layer, a);
}

yoke_value yoke_concat(yoke_model *model, yoke_value left, yoke_value right) {
    if (yoke_builder_stopped(model)) return (yoke_value){YOKE_NONE};
    return yoke_builder_result(model, add_concat(model, left, right));
}
