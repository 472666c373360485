/* SPDX-License-Identifier: Apache-2.0 */
/* The layers that a model can have. Each checks its arguments and sets its output shape and its
 * tensors. Shapes and names are PyTorch's. */
#include "model/graph.h"
#include "yoke/elementary.h"

/* Shared by several layers. */

yoke_status yoke_builder_image(const yoke_model *model, const yoke_node *layer) {
    yoke_shape shape = yoke_value_shape(model, layer->inputs[0]);
    if (shape.sequence)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: reads a sequence of %d x %d, needs an image",
                    layer->operation.name, shape.height, shape.channels);
    if (shape.flat)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: reads a flat value of %d features, needs an image",
                    layer->operation.name, shape.channels);
    return YOKE_OK;
}

/* Linear. */

static yoke_status add_linear(yoke_model *model, yoke_value input,
                              const yoke_linear_options *given) {
    yoke_linear_options options = {.struct_size = sizeof options};
    TRY(yoke_options_load(&options, sizeof options, given, "yoke_linear_options"));
    yoke_node *layer = NULL;
    TRY(yoke_builder_layer(model, YOKE_OP_LINEAR, options.name, &layer));
    TRY(yoke_builder_read(model, layer, input));
    yoke_shape read = yoke_value_shape(model, input.index);
    if (!read.flat && !read.sequence)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%s: reads an image of %d x %d x %d; put yoke_flatten before it", options.name,
                    read.channels, read.height, read.width);
    if (options.out_features < 1)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: %d output features, must be at least 1", options.name,
                    options.out_features);
    if (!(options.std >= 0))
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: a std of %g, must be at least 0", options.name,
                    options.std);
    layer->operation.bias = !options.no_bias;
    layer->operation.transposed = options.transposed;
    yoke_shape shape = read;
    shape.channels = options.out_features;
    TRY(yoke_builder_shape(layer, shape));
    int in = read.channels, out = options.out_features;
    yoke_tensor weight = {.ndim = 2,
                          .shape = {options.transposed ? in : out, options.transposed ? out : in},
                          .trainable = true,
                          .groups = 1};
    if (options.std > 0) weight.fill = (yoke_fill){YOKE_FILL_NORMAL, options.std};
    return yoke_layer_tensors(model, layer, &weight, (size_t)read.channels, options.shared_with);
}

yoke_value yoke_linear(yoke_model *model, yoke_value input, const yoke_linear_options *options) {
    if (yoke_builder_stopped(model)) return (yoke_value){YOKE_NONE};
    return yoke_builder_result(model, add_linear(model, input, options));
}

/* Batch norm. */

static yoke_status add_batch_norm(yoke_model *model, yoke_value input,
                                  const yoke_batch_norm_options *given) {
    yoke_batch_norm_options options = {.struct_size = sizeof options};
    TRY(yoke_options_load(&options, sizeof options, given, "yoke_batch_norm_options"));
    yoke_node *layer = NULL;
    TRY(yoke_builder_layer(model, YOKE_OP_BATCH_NORM, options.name, &layer));
    TRY(yoke_builder_read(model, layer, input));
    yoke_operation *norm = &layer->operation;
    norm->epsilon = options.epsilon;
    norm->momentum = options.momentum;
    if (!(norm->epsilon > 0 && norm->epsilon < 1))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%s: epsilon is %g, it must be above 0 and below 1; "
                    "YOKE_BATCH_NORM_OPTIONS_INIT sets the default",
                    options.name, norm->epsilon);
    if (!(norm->momentum >= 0 && norm->momentum <= 1))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%s: momentum is %g, it must be between 0 and 1; "
                    "YOKE_BATCH_NORM_OPTIONS_INIT sets the default",
                    options.name, norm->momentum);
    TRY(yoke_builder_shape(layer, yoke_value_shape(model, input.index)));
    yoke_tensor one = {.ndim = 1,
                       .shape = {layer->shape.channels},
                       .trainable = true,
                       .groups = 1,
                       .fill = {YOKE_FILL_CONSTANT, 1}};
    yoke_tensor zero = one, mean = one, variance = one;
    zero.fill.value = mean.fill.value = 0;
    mean.trainable = variance.trainable = false;
    yoke_tensor batches = {.ndim = 0, .integer = true, .groups = 1};
    int batches_index;
    const char *name = layer->operation.name;
    TRY(yoke_tensor_add(model, name, "weight", &one, &layer->tensors[0]));
    TRY(yoke_tensor_add(model, name, "bias", &zero, &layer->tensors[1]));
    TRY(yoke_tensor_add(model, name, "running_mean", &mean, &layer->buffers[0]));
    TRY(yoke_tensor_add(model, name, "running_var", &variance, &layer->buffers[1]));
    TRY(yoke_tensor_add(model, name, "num_batches_tracked", &batches, &batches_index));
    layer->tensor_count = 2;
    return YOKE_OK;
}

yoke_value yoke_batch_norm(yoke_model *model, yoke_value input,
                           const yoke_batch_norm_options *options) {
    if (yoke_builder_stopped(model)) return (yoke_value){YOKE_NONE};
    yoke_shape shape = yoke_shape_of(model, input);
    if (!shape.sequence) return yoke_builder_result(model, add_batch_norm(model, input, options));
    /* PyTorch's [rows, channels, positions]: the features of all positions are one channel's. */
    yoke_value image = yoke_transpose(model, input, YOKE_AXIS_CHANNELS, YOKE_AXIS_HEIGHT);
    image = yoke_reshape(model, image, yoke_shape_image(shape.channels, shape.height, 1));
    if (yoke_builder_stopped(model)) return image;
    image = yoke_builder_result(model, add_batch_norm(model, image, options));
    image = yoke_reshape(model, image, yoke_shape_sequence(shape.channels, shape.height));
    return yoke_transpose(model, image, YOKE_AXIS_CHANNELS, YOKE_AXIS_HEIGHT);
}

/* Layers without parameters. */

static bool exists(const yoke_model *model, yoke_value value) {
    return value.index >= 0 && value.index <= model->layer_count;
}

static bool are_alike(yoke_shape a, yoke_shape b) {
    return a.channels == b.channels && a.height == b.height && a.width == b.width &&
           a.flat == b.flat && a.sequence == b.sequence;
}

/* Two values of one shape have plans of their own. */
static yoke_value add_two(yoke_model *model, yoke_operation_kind kind, yoke_value left,
                          yoke_value right) {
    yoke_node *layer = NULL;
    bool joined =
        exists(model, left) && exists(model, right) &&
        are_alike(yoke_value_shape(model, left.index), yoke_value_shape(model, right.index));
    if (!joined)
        return yoke_combine(model, kind == YOKE_OP_ADD ? YOKE_FN_ADD : YOKE_FN_MULTIPLY, left,
                            right);
    yoke_status status = yoke_builder_elementwise(model, kind, NULL, left, &layer);
    if (status == YOKE_OK) status = yoke_builder_read(model, layer, right);
    return yoke_builder_result(model, status);
}

yoke_value yoke_add(yoke_model *model, yoke_value left, yoke_value right) {
    if (yoke_builder_stopped(model)) return (yoke_value){YOKE_NONE};
    return add_two(model, YOKE_OP_ADD, left, right);
}

/* Whether `factors` has one value for each channel of `image`. */
static bool scales(yoke_shape factors, yoke_shape image) {
    bool images = !factors.flat && !factors.sequence && !image.flat && !image.sequence;
    return images && factors.channels == image.channels && factors.height * factors.width == 1 &&
           image.height * image.width > 1;
}

static yoke_status add_channel_scale(yoke_model *model, yoke_value image, yoke_value factors) {
    yoke_node *layer = NULL;
    TRY(yoke_builder_elementwise(model, YOKE_OP_MULTIPLY, NULL, image, &layer));
    layer->operation.by_channel = true;
    return yoke_builder_read(model, layer, factors);
}

yoke_value yoke_multiply(yoke_model *model, yoke_value left, yoke_value right) {
    if (yoke_builder_stopped(model)) return (yoke_value){YOKE_NONE};
    if (!exists(model, left) || !exists(model, right))
        return add_two(model, YOKE_OP_MULTIPLY, left, right); /* says so */
    yoke_shape a = yoke_value_shape(model, left.index), b = yoke_value_shape(model, right.index);
    if (scales(b, a)) return yoke_builder_result(model, add_channel_scale(model, left, right));
    if (scales(a, b)) return yoke_builder_result(model, add_channel_scale(model, right, left));
    return add_two(model, YOKE_OP_MULTIPLY, left, right);
}

static yoke_status add_dropout(yoke_model *model, yoke_value input, double probability) {
    yoke_node *layer = NULL;
    TRY(yoke_builder_elementwise(model, YOKE_OP_DROPOUT, NULL, input, &layer));
    if (!(probability >= 0 && probability < 1))
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: probability of %g, must be at least 0 and below 1",
                    layer->operation.name, probability);
    layer->operation.probability = probability;
    return YOKE_OK;
}

yoke_value yoke_dropout(yoke_model *model, yoke_value input, double probability) {
    if (yoke_builder_stopped(model)) return (yoke_value){YOKE_NONE};
    return yoke_builder_result(model, add_dropout(model, input, probability));
}

static yoke_status add_flatten(yoke_model *model, yoke_value input) {
    yoke_node *layer = NULL;
    TRY(yoke_builder_layer(model, YOKE_OP_FLATTEN, NULL, &layer));
    TRY(yoke_builder_read(model, layer, input));
    yoke_dims read = layer->operation.input;
    return yoke_builder_shape(layer,
                              (yoke_shape){read.channels * read.height * read.width, 1, 1, true});
}

yoke_value yoke_flatten(yoke_model *model, yoke_value input) {
    if (yoke_builder_stopped(model)) return (yoke_value){YOKE_NONE};
    return yoke_builder_result(model, add_flatten(model, input));
}
