/* Layers over the channels of each position: layer norm. */
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
