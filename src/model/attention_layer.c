/* SPDX-License-Identifier: Apache-2.0 */
/* Multi-head attention. */
#include "model/graph.h"
#include "yoke/transformer.h"

static yoke_status add_attention(yoke_model *model, yoke_value input,
                                 const yoke_attention_options *given) {
    yoke_attention_options options = {.struct_size = sizeof options};
    TRY(yoke_options_load(&options, sizeof options, given, "yoke_attention_options"));
    yoke_node *layer = NULL;
    TRY(yoke_builder_layer(model, YOKE_OP_ATTENTION, NULL, &layer));
    TRY(yoke_builder_read(model, layer, input));
    yoke_shape shape = yoke_value_shape(model, input.index);
    if (!shape.sequence)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: reads %s, needs a sequence of q, k and v",
                    layer->operation.name, shape.flat ? "a flat value" : "an image");
    if (shape.channels % 3 != 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: reads %d channels, needs q, k and v: a multiple of 3",
                    layer->operation.name, shape.channels);
    if (options.heads < 1 || shape.channels / 3 % options.heads != 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: %d heads, must divide %d channels",
                    layer->operation.name, options.heads, shape.channels / 3);
    layer->operation.heads = options.heads;
    layer->operation.causal = options.causal;
    shape.channels /= 3;
    return yoke_builder_shape(layer, shape);
}

yoke_value yoke_attention(yoke_model *model, yoke_value input,
                          const yoke_attention_options *options) {
    if (yoke_builder_stopped(model)) return (yoke_value){YOKE_NONE};
    return yoke_builder_result(model, add_attention(model, input, options));
}
