/* SPDX-License-Identifier: Apache-2.0 */
/* The layers that a model can have. Each checks its arguments and sets its output shape and its
 * tensors. Shapes and names are PyTorch's. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/graph.h"
#include "yoke/elementary.h"

/* Larger windows would overflow the arithmetic of shapes. */
#define WINDOW_LIMIT 32768

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

/* Checks a square window; *height and *width get the output size. */
static yoke_status place_window(const yoke_node *layer, int *height, int *width) {
    const yoke_operation *window = &layer->operation;
    if (window->kernel < 1 || window->kernel > WINDOW_LIMIT)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: kernel of %d, must be 1 to %d", window->name,
                    window->kernel, WINDOW_LIMIT);
    if (window->stride < 1 || window->stride > WINDOW_LIMIT)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: stride of %d, must be 1 to %d", window->name,
                    window->stride, WINDOW_LIMIT);
    if (window->padding < 0 || window->padding > WINDOW_LIMIT)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: padding of %d, must be 0 to %d", window->name,
                    window->padding, WINDOW_LIMIT);
    if (window->dilation < 1 || window->dilation > WINDOW_LIMIT)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: dilation of %d, must be 1 to %d", window->name,
                    window->dilation, WINDOW_LIMIT);
    int padded_height = window->input.height + 2 * window->padding;
    int padded_width = window->input.width + 2 * window->padding;
    int side = (window->kernel - 1) * window->dilation + 1; /* of the image that it covers */
    if (padded_height < side || padded_width < side)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%s: kernel of %d%s does not fit an image of %d x %d padded by %d",
                    window->name, window->kernel, window->dilation > 1 ? ", dilated," : "",
                    window->input.height, window->input.width, window->padding);
    *height = (padded_height - side) / window->stride + 1;
    *width = (padded_width - side) / window->stride + 1;
    return YOKE_OK;
}

static bool can_share(const yoke_operation *own, const yoke_operation *owner) {
    bool is_tied = own->kind == YOKE_OP_LINEAR && owner->kind == YOKE_OP_EMBEDDING;
    return (is_tied || own->kind == owner->kind) && own->bias == owner->bias &&
           own->transposed == owner->transposed;
}

/* Uses the weight and bias of an earlier layer of the same kind, or of an embedding, and shape. */
static yoke_status share_tensors(yoke_model *model, yoke_node *layer, const char *owner_name,
                                 const yoke_tensor *weight) {
    const yoke_node *owner = yoke_builder_find(model, owner_name);
    const char *name = layer->operation.name;
    if (owner == NULL || owner == layer)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: shared_with '%s' is not an earlier layer", name,
                    owner_name);
    if (!can_share(&layer->operation, &owner->operation))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%s: shared_with '%s' is another kind of layer or differs in bias or in "
                    "transposed",
                    name, owner_name);
    const yoke_tensor *theirs = &model->tensors[owner->tensors[0]];
    if (memcmp(theirs->shape, weight->shape, sizeof weight->shape) != 0 ||
        theirs->groups != weight->groups)
        return FAIL(
            YOKE_ERROR_ARGUMENT,
            "%s: its weight is %lld x %lld x ..., that of '%s' is %lld x %lld x ... or differs "
            "in kernel or groups",
            name, (long long)weight->shape[0], (long long)weight->shape[1], owner_name,
            (long long)theirs->shape[0], (long long)theirs->shape[1]);
    memcpy(layer->tensors, owner->tensors, sizeof layer->tensors);
    layer->tensor_count = owner->tensor_count;
    return YOKE_OK;
}

/* nn.Linear and nn.Conv2d initialise both by kaiming_uniform(a = sqrt 5), which is
 * U(+-1/sqrt(fan_in)). */
static yoke_status own_tensors(yoke_model *model, yoke_node *layer, const yoke_tensor *weight,
                               size_t fan_in) {
    yoke_fill fill = {YOKE_FILL_UNIFORM, 1 / sqrt((double)fan_in)};
    yoke_tensor own = *weight;
    if (own.fill.kind == YOKE_FILL_CONSTANT) own.fill = fill;
    const char *name = layer->operation.name;
    TRY(yoke_tensor_add(model, name, "weight", &own, &layer->tensors[0]));
    layer->tensor_count = 1;
    if (!layer->operation.bias) return YOKE_OK;
    yoke_tensor bias = {
        .ndim = 1, .shape = {layer->shape.channels}, .trainable = true, .groups = 1, .fill = fill};
    if (weight->fill.kind == YOKE_FILL_NORMAL) bias.fill = (yoke_fill){YOKE_FILL_CONSTANT, 0};
    TRY(yoke_tensor_add(model, name, "bias", &bias, &layer->tensors[1]));
    layer->tensor_count = 2;
    return YOKE_OK;
}

/* Convolution. */

static yoke_status add_conv2d(yoke_model *model, yoke_value input,
                              const yoke_conv2d_options *given) {
    yoke_conv2d_options options = {.struct_size = sizeof options};
    TRY(yoke_options_load(&options, sizeof options, given, "yoke_conv2d_options"));
    yoke_node *layer = NULL;
    TRY(yoke_builder_layer(model, YOKE_OP_CONV2D, options.name, &layer));
    TRY(yoke_builder_read(model, layer, input));
    TRY(yoke_builder_image(model, layer));
    yoke_operation *conv = &layer->operation;
    conv->kernel = options.kernel;
    conv->stride = options.stride != 0 ? options.stride : 1;
    conv->padding = options.padding;
    conv->groups = options.groups != 0 ? options.groups : 1;
    conv->dilation = options.dilation != 0 ? options.dilation : 1;
    conv->bias = !options.no_bias;
    yoke_shape shape = {.channels = options.out_channels};
    TRY(place_window(layer, &shape.height, &shape.width));
    if (options.out_channels < 1)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: %d output channels, must be at least 1", conv->name,
                    options.out_channels);
    if (conv->groups < 1 || conv->input.channels % conv->groups != 0 ||
        options.out_channels % conv->groups != 0)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%s: %d groups, must divide %d input and %d output channels", conv->name,
                    conv->groups, conv->input.channels, options.out_channels);
    TRY(yoke_builder_shape(layer, shape));

    int64_t kernel = options.kernel, in_channels = conv->input.channels / conv->groups;
    size_t window = (size_t)(kernel * kernel);
    yoke_tensor weight = {.ndim = 4,
                          .shape = {options.out_channels, in_channels, kernel, kernel},
                          .trainable = true,
                          .groups = conv->groups};
    /* kaiming_normal(fan_out, relu): torchvision/models/resnet.py */
    if (options.kaiming_fan_out)
        weight.fill = (yoke_fill){YOKE_FILL_NORMAL,
                                  sqrt(2 / ((double)options.out_channels * (double)window))};
    if (options.shared_with != NULL)
        return share_tensors(model, layer, options.shared_with, &weight);
    return own_tensors(model, layer, &weight, (size_t)in_channels * window);
}

yoke_value yoke_conv2d(yoke_model *model, yoke_value input, const yoke_conv2d_options *options) {
    if (yoke_builder_stopped(model)) return (yoke_value){YOKE_NONE};
    return yoke_builder_result(model, add_conv2d(model, input, options));
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
    if (options.shared_with != NULL)
        return share_tensors(model, layer, options.shared_with, &weight);
    return own_tensors(model, layer, &weight, (size_t)read.channels);
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

/* Pooling. */

static yoke_status add_adaptive_pool(yoke_model *model, yoke_value input, int height, int width) {
    yoke_node *layer = NULL;
    TRY(yoke_builder_layer(model, YOKE_OP_AVERAGE_POOL, NULL, &layer));
    TRY(yoke_builder_read(model, layer, input));
    TRY(yoke_builder_image(model, layer));
    if (height < 1 || height > WINDOW_LIMIT || width < 1 || width > WINDOW_LIMIT)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: pools to %d x %d, must be 1 x 1 to %d x %d",
                    layer->operation.name, height, width, WINDOW_LIMIT, WINDOW_LIMIT);
    layer->operation.stride = 1;
    return yoke_builder_shape(layer, (yoke_shape){.channels = layer->operation.input.channels,
                                                  .height = height,
                                                  .width = width});
}

yoke_value yoke_adaptive_average_pool(yoke_model *model, yoke_value input, int height, int width) {
    if (yoke_builder_stopped(model)) return (yoke_value){YOKE_NONE};
    return yoke_builder_result(model, add_adaptive_pool(model, input, height, width));
}

yoke_value yoke_global_average_pool(yoke_model *model, yoke_value input) {
    return yoke_adaptive_average_pool(model, input, 1, 1);
}

static yoke_status add_pool(yoke_model *model, yoke_operation_kind kind, yoke_value input,
                            const yoke_pool_options *given) {
    yoke_pool_options options = {.struct_size = sizeof options};
    TRY(yoke_options_load(&options, sizeof options, given, "yoke_pool_options"));
    yoke_node *layer = NULL;
    TRY(yoke_builder_layer(model, kind, NULL, &layer));
    TRY(yoke_builder_read(model, layer, input));
    TRY(yoke_builder_image(model, layer));
    yoke_operation *pool = &layer->operation;
    pool->kernel = options.kernel;
    pool->stride = options.stride != 0 ? options.stride : pool->kernel;
    pool->padding = options.padding;
    pool->dilation = 1;
    yoke_shape shape = {.channels = pool->input.channels};
    TRY(place_window(layer, &shape.height, &shape.width));
    if (pool->padding > pool->kernel / 2)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: padding of %d, must be at most half the kernel of %d",
                    pool->name, pool->padding, pool->kernel);
    return yoke_builder_shape(layer, shape);
}

yoke_value yoke_max_pool(yoke_model *model, yoke_value input, const yoke_pool_options *options) {
    if (yoke_builder_stopped(model)) return (yoke_value){YOKE_NONE};
    return yoke_builder_result(model, add_pool(model, YOKE_OP_MAX_POOL, input, options));
}

yoke_value yoke_average_pool(yoke_model *model, yoke_value input,
                             const yoke_pool_options *options) {
    if (yoke_builder_stopped(model)) return (yoke_value){YOKE_NONE};
    bool global = options != NULL && options->kernel == 0;
    if (global) return yoke_global_average_pool(model, input);
    return yoke_builder_result(model, add_pool(model, YOKE_OP_AVERAGE_POOL, input, options));
}
