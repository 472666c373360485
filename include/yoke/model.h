/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * A model: a list of layers in topological order, each naming the values it reads. A layer call
 * does not return an error: the model keeps the first one, and yoke_model_finish reports it.
 */
#ifndef YOKE_MODEL_H
#define YOKE_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "yoke/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A model: its layers and the names and shapes of its tensors. It holds no weights; an engine
 * does. */
typedef struct yoke_model yoke_model;

/** A value that a layer writes and others read. It belongs to the model that returned it. */
typedef struct yoke_value {
    int index; /**< -1: the layer call failed. */
} yoke_value;

/** The shape of one row (sample) of a value. */
typedef struct yoke_shape {
    int channels;  /**< An image's channels, a flat value's length, or a position's features. */
    int height;    /**< An image's height, or a sequence's positions; 1 for a flat value. */
    int width;     /**< An image's width; otherwise 1. */
    bool flat;     /**< A vector, as yoke_flatten and yoke_linear write it. */
    bool sequence; /**< A sequence, PyTorch's [N, L, C]: a row is [height, channels] in memory. */
} yoke_shape;

/** The shape of an image, with every field set: an initializer that leaves fields out warns under
 * -Wextra. */
static inline yoke_shape yoke_shape_image(int channels, int height, int width) {
    yoke_shape shape = {channels, height, width, false, false};
    return shape;
}

/** The shape of a vector: flat. */
static inline yoke_shape yoke_shape_vector(int features) {
    yoke_shape shape = {features, 1, 1, true, false};
    return shape;
}

/** The shape of a sequence, PyTorch's [positions, features]. */
static inline yoke_shape yoke_shape_sequence(int positions, int features) {
    yoke_shape shape = {features, positions, 1, false, true};
    return shape;
}

#define YOKE_INPUTS_LIMIT 8  /**< Inputs of a model, at most. */
#define YOKE_OUTPUTS_LIMIT 8 /**< Outputs of a model, at most. */

/** torch.nn.Conv2d. Layer calls copy their options and the names in them. */
typedef struct yoke_conv2d_options {
    size_t struct_size;      /**< sizeof(yoke_conv2d_options). */
    const char *name;        /**< Prefix of the parameters' names, "layer1.0.conv1"; required. */
    int out_channels;        /**< Required. */
    int kernel;              /**< Side of the kernel, or its height; required. */
    int stride;              /**< 0: 1. */
    int padding;             /**< Zeros added on each side, or above and below. */
    int groups;              /**< 0: 1. */
    bool no_bias;            /**< Leave the bias out: before a batch norm, say. */
    const char *shared_with; /**< An earlier layer whose parameters this one uses; NULL: its own. */
    bool kaiming_fan_out;    /**< Initialize by torchvision's rule: normal weights, bias 0; false:
                                nn.Conv2d's. */
    int dilation;            /**< Pixels from one tap to the next; 0: 1. */
    int kernel_width;        /**< 0: kernel. */
    int stride_width;        /**< 0: stride. */
    int padding_width;  /**< Zeros added on the left and on the right. 0: none if kernel_width is
                             given, otherwise padding: kernel 7, kernel_width 1, padding 3 is
                             PyTorch's (7, 1) padded by (3, 0). */
    int dilation_width; /**< 0: dilation. */
} yoke_conv2d_options;

/** The defaults; set name, out_channels and kernel. */
#define YOKE_CONV2D_OPTIONS_INIT                                                                   \
    { sizeof(yoke_conv2d_options), NULL, 0, 0, 0, 0, 0, false, NULL, false, 0, 0, 0, 0, 0 }

/** torch.nn.Linear. */
typedef struct yoke_linear_options {
    size_t struct_size;      /**< sizeof(yoke_linear_options). */
    const char *name;        /**< Prefix of the parameters' names; required. */
    int out_features;        /**< Required. */
    bool no_bias;            /**< Leave the bias out. */
    const char *shared_with; /**< An earlier layer whose parameters this one uses; NULL: its own.
                                  Without a bias also an embedding of out_features tokens. */
    bool transposed;         /**< The weight is [in, out], as that of GPT-2's Conv1D. */
    double std;              /**< Initialize the weight with N(0, std^2) and the bias with 0; 0:
                                        nn.Linear's rule. */
} yoke_linear_options;

/** The defaults; set name and out_features. */
#define YOKE_LINEAR_OPTIONS_INIT                                                                   \
    { sizeof(yoke_linear_options), NULL, 0, false, NULL, false, 0 }

/** torch.nn.BatchNorm2d. Begin with YOKE_BATCH_NORM_OPTIONS_INIT: here 0 means 0. */
typedef struct yoke_batch_norm_options {
    size_t struct_size; /**< sizeof(yoke_batch_norm_options). */
    const char *name;   /**< Prefix of the tensors' names; required. */
    double epsilon;     /**< Added to the variance; above 0 and below 1. */
    double momentum;    /**< running = (1 - momentum) * running + momentum * batch; 0 to 1. */
} yoke_batch_norm_options;

/** torch.nn.BatchNorm2d's defaults; set name. */
#define YOKE_BATCH_NORM_OPTIONS_INIT                                                               \
    { sizeof(yoke_batch_norm_options), NULL, 1e-5 /* epsilon */, 0.1 /* momentum */ }

/** torch.nn.LayerNorm over the channels. Begin with YOKE_LAYER_NORM_OPTIONS_INIT: here 0 means 0.
 */
typedef struct yoke_layer_norm_options {
    size_t struct_size; /**< sizeof(yoke_layer_norm_options). */
    const char *name;   /**< Prefix of the parameters' names; required. */
    double epsilon;     /**< Added to the variance; above 0 and below 1. */
} yoke_layer_norm_options;

/** torch.nn.LayerNorm's default; set name. */
#define YOKE_LAYER_NORM_OPTIONS_INIT                                                               \
    { sizeof(yoke_layer_norm_options), NULL, 1e-5 /* epsilon */ }

/** torch.nn.MaxPool2d and torch.nn.AvgPool2d. */
typedef struct yoke_pool_options {
    size_t struct_size; /**< sizeof(yoke_pool_options). */
    int kernel;         /**< Side of the window, or its height; required. */
    int stride;         /**< 0: kernel. */
    int padding;        /**< Pixels added on each side, or above and below. */
    int kernel_width;   /**< 0: kernel. */
    int stride_width;   /**< 0: stride if that is given, otherwise kernel_width. */
    int padding_width;  /**< 0: none if kernel_width is given, otherwise padding. */
} yoke_pool_options;

/** The defaults; set kernel. */
#define YOKE_POOL_OPTIONS_INIT                                                                     \
    { sizeof(yoke_pool_options), 0, 0, 0, 0, 0, 0 }

/** What training minimizes: the mean over the rows of the batch, of all devices and ranks; with
 * class_weights or ignore_index over the weights of its labels. */
typedef enum yoke_loss_kind {
    YOKE_LOSS_CROSS_ENTROPY, /**< torch.nn.CrossEntropyLoss of outputs and labels. */
    YOKE_LOSS_MSE,           /**< torch.nn.MSELoss of outputs and targets. */
    YOKE_LOSS_BCE,           /**< torch.nn.BCEWithLogitsLoss of outputs and targets, 0 to 1. */
    YOKE_LOSS_HUBER,         /**< torch.nn.HuberLoss of outputs and targets; with huber_delta 1 also
                                  torch.nn.SmoothL1Loss. */
    YOKE_LOSS_OUTPUT         /**< The output itself, the mean over a row's values: a loss that the
                                  model computes, of its inputs, as with yoke/elementary.h. The batch
                                  needs neither labels nor targets. */
} yoke_loss_kind;

/** The loss. */
typedef struct yoke_loss_options {
    size_t struct_size;     /**< sizeof(yoke_loss_options). */
    yoke_loss_kind kind;    /**< Which loss. */
    double label_smoothing; /**< Cross-entropy: 0 <= label_smoothing < 1, as in PyTorch. */
    /** Cross-entropy: [weight_count] weights of the classes, PyTorch's `weight`; at least 0. The
     * sum of the weights of a batch's labels divides its loss. Copied. NULL: 1 each. */
    const float *class_weights;
    const float *positive_weights; /**< BCE: [weight_count], PyTorch's `pos_weight`; likewise. */
    int weight_count;              /**< The length of the model's output; 0 without weights. */
    bool set_ignore_index;         /**< Cross-entropy: rows with the label ignore_index have no loss
                                        and no gradient, count nowhere, and are never correct. */
    int ignore_index;   /**< Any number, a class or not; PyTorch's default is -100. Where a whole
                             batch has this label, PyTorch's loss is NaN; here loss and gradient are
                             0. */
    double huber_delta; /**< Huber: the error up to which the loss is a square; 0: 1. */
} yoke_loss_options;

/** Cross-entropy without label smoothing, of classes that weigh the same. */
#define YOKE_LOSS_OPTIONS_INIT                                                                     \
    {                                                                                              \
        sizeof(yoke_loss_options), YOKE_LOSS_CROSS_ENTROPY, 0, NULL, NULL, 0, false,               \
            -100 /* ignore_index */, 0                                                             \
    }

/** Begins a model.
 *
 * @param[out] model  The model; destroy it with yoke_model_destroy. NULL on failure.
 * @param name        Appears in reports; copied. NULL: "model".
 * @param input       The shape of the rows that the model reads: its first input, named "input".
 * @return ARGUMENT: `model` is NULL, or the shape is invalid.
 */
YOKE_API yoke_status yoke_model_create(yoke_model **model, const char *name, yoke_shape input);

/** Destroys a model. Engines that use it must be destroyed first.
 *
 * @param model  May be NULL.
 */
YOKE_API void yoke_model_destroy(yoke_model *model);

/** The value that holds a batch's rows.
 *
 * @param model  The model.
 * @return The value; index -1 when the model holds an error, as from every layer call.
 */
YOKE_API yoke_value yoke_model_input(yoke_model *model);

/** Adds one more input, as forward(self, left, right) has two. Inputs are counted from 0 in the
 * order in which they are added; a batch brings all of them for every row.
 *
 * @param model  The model.
 * @param name   Of the input, for messages; copied. No other input has it.
 * @param shape  Of one row.
 * @return The value that holds the rows of this input.
 */
YOKE_API yoke_value yoke_model_add_input(yoke_model *model, const char *name, yoke_shape shape);

/** Names one more output, beside the one that yoke_model_finish names. Outputs are counted from 0
 * in this order: the one that the loss reads, then the added ones. The model's loss does not read
 * them; a program with a loss of its own does, with yoke_data_parallel_forward_outputs and
 * yoke_data_parallel_backward_outputs. Weight decay leaves what no loss reaches alone
 * (yoke_data_parallel_unreached).
 *
 * @param model  The model; yoke_model_finish reports an error of this call.
 * @param name   Of the output, for messages; copied. No other output has it.
 * @param value  A value of any shape; layers may read it, too.
 */
YOKE_API void yoke_model_add_output(yoke_model *model, const char *name, yoke_value value);

/** Begins a range of layers whose values backward computes again instead of keeping them, as
 * torch.utils.checkpoint does: less memory for one more forward of the range, and the same bits.
 * Right before its backward the range's forward runs again from the values that it reads. Running
 * statistics and dropout are those of the first time. A callback of the host program is called
 * twice. In evaluation it changes nothing.
 *
 * @param model  The model; yoke_model_finish reports an error of this call. Ranges do not nest.
 */
YOKE_API void yoke_activation_checkpoint_begin(yoke_model *model);

/** Ends the range. @param model  The model. */
YOKE_API void yoke_activation_checkpoint_end(yoke_model *model);

/** Adds a convolution; groups = channels makes it depthwise. Parameters: NAME.weight [out, in /
 * groups, kernel, kernel_width], NAME.bias [out].
 *
 * @param model    The model.
 * @param input    What it reads.
 * @param options  Not NULL.
 * @return [out_channels, height, width] by PyTorch's rule.
 */
YOKE_API yoke_value yoke_conv2d(yoke_model *model, yoke_value input,
                                const yoke_conv2d_options *options);

/** Adds a matrix product. Parameters: NAME.weight [out, in] or, transposed, [in, out]; NAME.bias
 * [out].
 *
 * @param model    The model.
 * @param input    What it reads: a flat value, or a sequence, each position of which it multiplies.
 * @param options  Not NULL.
 * @return A flat value of out_features, or a sequence with out_features at each position.
 */
YOKE_API yoke_value yoke_linear(yoke_model *model, yoke_value input,
                                const yoke_linear_options *options);

/** Adds a batch norm, of a flat value or a sequence torch.nn.BatchNorm1d: the features of all rows
 * and positions are one channel's. Each replica normalizes its own rows; the root's running
 * statistics count, as in nn.DataParallel. Parameters: NAME.weight and NAME.bias [channels];
 * buffers: NAME.running_mean and NAME.running_var [channels], NAME.num_batches_tracked.
 *
 * @param model    The model.
 * @param input    What it reads.
 * @param options  Not NULL.
 * @return The shape of the input.
 */
YOKE_API yoke_value yoke_batch_norm(yoke_model *model, yoke_value input,
                                    const yoke_batch_norm_options *options);

/** Adds a layer norm: normalizes the channels of each position by their own mean and variance.
 * Parameters: NAME.weight and NAME.bias [channels].
 *
 * @param model    The model.
 * @param input    What it reads: a flat value or a sequence.
 * @param options  Not NULL.
 * @return The shape of the input.
 */
YOKE_API yoke_value yoke_layer_norm(yoke_model *model, yoke_value input,
                                    const yoke_layer_norm_options *options);

/** Adds max(0, x).
 *
 * @param model  The model.
 * @param input  What it reads.
 * @return The shape of the input.
 */
YOKE_API yoke_value yoke_relu(yoke_model *model, yoke_value input);

/** Adds min(max(x, 0), 6).
 *
 * @param model  The model.
 * @param input  What it reads.
 * @return The shape of the input.
 */
YOKE_API yoke_value yoke_relu6(yoke_model *model, yoke_value input);

/** Adds torch.nn.GELU(): x / 2 * (1 + erf(x / sqrt 2)).
 *
 * @param model  The model.
 * @param input  What it reads.
 * @return The shape of the input.
 */
YOKE_API yoke_value yoke_gelu(yoke_model *model, yoke_value input);

/** Adds torch.nn.GELU(approximate="tanh"), GPT-2's: x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715
 * x^3))).
 *
 * @param model  The model.
 * @param input  What it reads.
 * @return The shape of the input.
 */
YOKE_API yoke_value yoke_gelu_tanh(yoke_model *model, yoke_value input);

/** Adds x * sigmoid(x), also called swish.
 *
 * @param model  The model.
 * @param input  What it reads.
 * @return The shape of the input.
 */
YOKE_API yoke_value yoke_silu(yoke_model *model, yoke_value input);

/** Adds 1 / (1 + exp(-x)).
 *
 * @param model  The model.
 * @param input  What it reads.
 * @return The shape of the input.
 */
YOKE_API yoke_value yoke_sigmoid(yoke_model *model, yoke_value input);

/** Adds the hyperbolic tangent.
 *
 * @param model  The model.
 * @param input  What it reads.
 * @return The shape of the input.
 */
YOKE_API yoke_value yoke_tanh(yoke_model *model, yoke_value input);

/** Adds the sum of two values. Axes of length 1 are repeated, as in yoke_elementary.
 *
 * @param model  The model.
 * @param left   One value.
 * @param right  The other.
 * @return Their shape.
 */
YOKE_API yoke_value yoke_add(yoke_model *model, yoke_value left, yoke_value right);

/** Adds the product, element by element, of two values. Axes of length 1 are repeated, as in
 * yoke_elementary: [channels, 1, 1] beside an image is a factor for each channel of a row, as in
 * squeeze-and-excitation.
 *
 * @param model  The model.
 * @param left   One value.
 * @param right  The other.
 * @return Their shape, that of the image.
 */
YOKE_API yoke_value yoke_multiply(yoke_model *model, yoke_value left, yoke_value right);

/** Joins the channels of two values: torch.cat of images over dimension 1, of sequences over
 * dimension 2.
 *
 * @param model  The model.
 * @param left   Its channels come first.
 * @param right  A value of the same kind, height and width.
 * @return The shape of both, with the sum of their channels.
 */
YOKE_API yoke_value yoke_concat(yoke_model *model, yoke_value left, yoke_value right);

/** Adds a softmax over the channels of each position. The loss cross-entropy has its own.
 *
 * @param model  The model.
 * @param input  What it reads: a flat value or a sequence.
 * @return The shape of the input.
 */
YOKE_API yoke_value yoke_softmax(yoke_model *model, yoke_value input);

/** Adds max pooling.
 *
 * @param model    The model.
 * @param input    What it reads.
 * @param options  Not NULL.
 * @return [channels, height, width] by PyTorch's rule.
 */
YOKE_API yoke_value yoke_max_pool(yoke_model *model, yoke_value input,
                                  const yoke_pool_options *options);

/** Adds average pooling. Padding counts in the average, as PyTorch's count_include_pad=True.
 *
 * @param model    The model.
 * @param input    What it reads.
 * @param options  Not NULL; kernel 0: the whole image.
 * @return [channels, height, width] by PyTorch's rule.
 */
YOKE_API yoke_value yoke_average_pool(yoke_model *model, yoke_value input,
                                      const yoke_pool_options *options);

/** Adds average pooling to a given size: torch.nn.AdaptiveAvgPool2d((height, width)). Its windows
 * cover the image; they differ in size and overlap where the sizes do not divide.
 *
 * @param model   The model.
 * @param input   What it reads.
 * @param height  Of the output, at least 1; it may be larger than the input's.
 * @param width   Likewise.
 * @return [channels, height, width].
 */
YOKE_API yoke_value yoke_adaptive_average_pool(yoke_model *model, yoke_value input, int height,
                                               int width);

/** Adds the average over the whole image: torch.nn.AdaptiveAvgPool2d(1).
 *
 * @param model  The model.
 * @param input  What it reads.
 * @return [channels, 1, 1].
 */
YOKE_API yoke_value yoke_global_average_pool(yoke_model *model, yoke_value input);

/** Makes a value flat: torch.flatten(x, 1).
 *
 * @param model  The model.
 * @param input  What it reads.
 * @return A flat value of channels * height * width.
 */
YOKE_API yoke_value yoke_flatten(yoke_model *model, yoke_value input);

/** Adds dropout. (seed, step, layer, row of the whole batch) decide a mask, so that it does not
 * depend on the number of devices.
 *
 * @param model        The model.
 * @param input        What it reads.
 * @param probability  Of an element to become 0; 0 <= probability < 1.
 * @return The shape of the input.
 */
YOKE_API yoke_value yoke_dropout(yoke_model *model, yoke_value input, double probability);

/** Names the first output and the loss, checks the whole and freezes the model.
 *
 * @param model   The model.
 * @param output  What the loss reads: a flat value or a sequence, named "output".
 * @param loss    NULL: YOKE_LOSS_OPTIONS_INIT.
 * @return The first error of any earlier call on this model; ARGUMENT: the model is not valid.
 */
YOKE_API yoke_status yoke_model_finish(yoke_model *model, yoke_value output,
                                       const yoke_loss_options *loss);

/** The name of a model.
 *
 * @param model  The model. NULL: "".
 * @return Borrowed from the model.
 */
YOKE_API const char *yoke_model_name(const yoke_model *model);

/** The shape of the rows that a model reads: of its first input.
 *
 * @param model  The model. NULL: all 0.
 * @return The shape given to yoke_model_create.
 */
YOKE_API yoke_shape yoke_model_input_shape(const yoke_model *model);

/** The shape of one row of the first output.
 *
 * @param model  A finished model. NULL: all 0.
 * @return The shape of the value given to yoke_model_finish.
 */
YOKE_API yoke_shape yoke_model_output_shape(const yoke_model *model);

/** An input or an output of a model. */
typedef struct yoke_value_info {
    size_t struct_size; /**< sizeof(yoke_value_info). */
    const char *name;   /**< "input", "output", or as it was added; borrowed from the model. */
    yoke_shape shape;   /**< The shape of one row. */
    size_t row_count;   /**< Elements of one row: channels * height * width. */
} yoke_value_info;

/** All zero but the size. */
#define YOKE_VALUE_INFO_INIT                                                                       \
    { sizeof(yoke_value_info), NULL, {0, 0, 0, false, false}, 0 }

/** The number of inputs.
 *
 * @param model  The model. NULL: 0.
 * @return 1 to YOKE_INPUTS_LIMIT.
 */
YOKE_API int yoke_model_input_count(const yoke_model *model);

/** The number of outputs.
 *
 * @param model  A finished model. NULL: 0.
 * @return 1 to YOKE_OUTPUTS_LIMIT.
 */
YOKE_API int yoke_model_output_count(const yoke_model *model);

/** Describes an input.
 *
 * @param model      The model.
 * @param index      Counted from 0.
 * @param[out] info  Set struct_size first.
 * @return ARGUMENT: there is no such input, or a pointer or struct_size is wrong.
 */
YOKE_API yoke_status yoke_model_describe_input(const yoke_model *model, int index,
                                               yoke_value_info *info);

/** Describes an output.
 *
 * @param model      A finished model.
 * @param index      Counted from 0; the loss reads output 0.
 * @param[out] info  Set struct_size first.
 * @return ARGUMENT: there is no such output, the model is not finished, or a pointer or struct_size
 *         is wrong.
 */
YOKE_API yoke_status yoke_model_describe_output(const yoke_model *model, int index,
                                                yoke_value_info *info);

/** The number of trainable scalars.
 *
 * @param model  The model. NULL: 0.
 * @return The count; a shared parameter counts once.
 */
YOKE_API size_t yoke_model_parameter_count(const yoke_model *model);

#ifdef __cplusplus
}
#endif

#include "yoke/model_info.h"

#endif
