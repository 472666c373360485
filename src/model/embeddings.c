/* SPDX-License-Identifier: Apache-2.0 */
/* Layers that begin a sequence: of an image's pixels, of tokens, of positions. */
#include "model/graph.h"
#include "yoke/transformer.h"

static yoke_status add_sequence(yoke_model *model, yoke_value input) {
    yoke_node *layer = NULL;
    TRY(yoke_builder_layer(model, YOKE_OP_SEQUENCE, NULL, &layer));
    TRY(yoke_builder_read(model, layer, input));
    TRY(yoke_builder_image(model, layer));
    yoke_dims read = layer->operation.input;
    return yoke_builder_shape(layer, (yoke_shape){.channels = read.channels,
                                                  .height = read.height * read.width,
                                                  .width = 1,
                                                  .sequence = true});
}

yoke_value yoke_sequence(yoke_model *model, yoke_value input) {
    if (yoke_builder_stopped(model)) return (yoke_value){YOKE_NONE};
    return yoke_builder_result(model, add_sequence(model, input));
}

/* Embeddings. */

static yoke_status load_options(yoke_embedding_options *options,
                                const yoke_embedding_options *given) {
    *options = (yoke_embedding_options){.struct_size = sizeof *options};
    return yoke_options_load(options, sizeof *options, given, "yoke_embedding_options");
}

static yoke_status add_weight(yoke_model *model, yoke_node *layer,
                              const yoke_embedding_options *options) {
    const char *name = layer->operation.name;
    int features = layer->shape.channels;
    if (options->count < 1 || options->count > INT32_MAX / features)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: a weight of %d x %d, must have 1 to %d values", name,
                    options->count, features, INT32_MAX);
    if (!(options->std >= 0))
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: a std of %g, must be at least 0", name, options->std);
    yoke_tensor weight = {.ndim = 2,
                          .shape = {options->count, features},
                          .trainable = true,
                          .groups = 1,
                          .fill = {YOKE_FILL_NORMAL, options->std > 0 ? options->std : 1}};
    layer->operation.table = options->count;
    layer->tensor_count = 1;
    return yoke_tensor_add(model, name, "weight", &weight, &layer->tensors[0]);
}

/* float32 holds whole numbers up to 2^24 exactly. */
#define TOKENS_LIMIT (1 << 24)

static yoke_status add_embedding(yoke_model *model, yoke_value input,
                                 const yoke_embedding_options *given) {
    yoke_embedding_options options;
    TRY(load_options(&options, given));
    yoke_node *layer = NULL;
    TRY(yoke_builder_layer(model, YOKE_OP_EMBEDDING, options.name, &layer));
    TRY(yoke_builder_read(model, layer, input));
    yoke_shape ids = yoke_value_shape(model, input.index);
    if (!ids.flat || yoke_input_name(model, input.index) == NULL)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: it reads token ids, a flat input of the model",
                    options.name);
    if (options.features < 1)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: %d features, must be at least 1", options.name,
                    options.features);
    if (options.count > TOKENS_LIMIT)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: %d tokens, must be at most %d", options.name,
                    options.count, TOKENS_LIMIT);
    TRY(yoke_builder_shape(layer, (yoke_shape){.channels = options.features,
                                               .height = ids.channels,
                                               .width = 1,
                                               .sequence = true}));
    return add_weight(model, layer, &options);
}

yoke_value yoke_embedding(yoke_model *model, yoke_value input,
                          const yoke_embedding_options *options) {
    if (yoke_builder_stopped(model)) return (yoke_value){YOKE_NONE};
    return yoke_builder_result(model, add_embedding(model, input, options));
}

static yoke_status add_positions(yoke_model *model, yoke_value input,
                                 const yoke_embedding_options *given) {
    yoke_embedding_options options;
    TRY(load_options(&options, given));
    yoke_node *layer = NULL;
    TRY(yoke_builder_layer(model, YOKE_OP_POSITIONS, options.name, &layer));
    TRY(yoke_builder_read(model, layer, input));
    yoke_shape shape = yoke_value_shape(model, input.index);
    if (!shape.sequence)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: reads a value of %d x %d x %d, needs a sequence",
                    options.name, shape.channels, shape.height, shape.width);
    if (options.features != 0 && options.features != shape.channels)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: %d features, the sequence it reads has %d",
                    options.name, options.features, shape.channels);
    if (shape.height > options.count)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%s: a sequence of %d positions, there are embeddings of %d: cut shorter rows, "
                    "as text:FILE,context=%d does, or embed more positions",
                    options.name, shape.height, options.count, options.count);
    TRY(yoke_builder_shape(layer, shape));
    return add_weight(model, layer, &options);
}

yoke_value yoke_positional_embedding(yoke_model *model, yoke_value input,
                                     const yoke_embedding_options *options) {
    if (yoke_builder_stopped(model)) return (yoke_value){YOKE_NONE};
    return yoke_builder_result(model, add_positions(model, input, options));
}

int yoke_model_tokens(const yoke_model *model, int input) {
    int least = 0, value = model->inputs[input].value;
    for (int i = 0; i < model->layer_count; i++) {
        const yoke_operation *operation = &model->layers[i].operation;
        bool reads = operation->kind == YOKE_OP_EMBEDDING && model->layers[i].inputs[0] == value;
        if (reads && (least == 0 || operation->table < least)) least = operation->table;
    }
    return least;
}
