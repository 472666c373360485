/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Layers that are compositions of elementary operations (yoke/elementary.h): they run wherever
 * those do, on every device, in every schedule.
 */
#ifndef YOKE_COMPOSED_H
#define YOKE_COMPOSED_H

#include "yoke/elementary.h"
#include "yoke/transformer.h"

#ifdef __cplusplus
extern "C" {
#endif

/** torch.nn.GroupNorm of images; with as many groups as channels torch.nn.InstanceNorm2d. Begin
 * with YOKE_GROUP_NORM_OPTIONS_INIT: here epsilon 0 means 0. */
typedef struct yoke_group_norm_options {
    size_t struct_size; /**< sizeof(yoke_group_norm_options). */
    const char *name;   /**< Prefix of the parameters' names; required unless not_affine. */
    int groups;         /**< Required; divides the channels. */
    double epsilon;     /**< Added to the variance; above 0. */
    bool not_affine;    /**< No parameters: affine=False. */
} yoke_group_norm_options;

/** PyTorch's defaults; set name and groups. */
#define YOKE_GROUP_NORM_OPTIONS_INIT                                                               \
    { sizeof(yoke_group_norm_options), NULL, 0, 1e-5, false }

/** Adds a group norm: each row's groups of channels are normalized by their own mean and variance.
 * Parameters: NAME.weight and NAME.bias [channels].
 *
 * @param model    The model.
 * @param input    An image.
 * @param options  Not NULL.
 * @return The shape of the input.
 */
YOKE_API yoke_value yoke_group_norm(yoke_model *model, yoke_value input,
                                    const yoke_group_norm_options *options);

/** Adds torch.nn.LayerNorm over the last axes of a row, whatever it is: of an image its width;
 * height and width; or all; of a sequence its features, or all. yoke_layer_norm is the faster one
 * over channels. Parameters: NAME.weight and NAME.bias, of the shape of these axes.
 *
 * @param model    The model.
 * @param input    What it reads.
 * @param axes     YOKE_AXIS_..., added up.
 * @param name     Prefix of the parameters' names.
 * @param epsilon  Above 0; PyTorch's default is 1e-5.
 * @return The shape of the input.
 */
YOKE_API yoke_value yoke_layer_norm_along(yoke_model *model, yoke_value input, unsigned axes,
                                          const char *name, double epsilon);

/** Adds torch.nn.RMSNorm over the channels: x / sqrt(mean(x^2) + epsilon) * weight. Parameter:
 * NAME.weight [channels].
 *
 * @param model    The model.
 * @param input    A flat value or a sequence.
 * @param name     Prefix of the parameter's name.
 * @param epsilon  Above 0.
 * @return The shape of the input.
 */
YOKE_API yoke_value yoke_rms_norm(yoke_model *model, yoke_value input, const char *name,
                                  double epsilon);

/** Adds torch.nn.PReLU: x where x > 0, otherwise weight * x. Parameter: NAME.weight [1] or
 * [channels], at first 0.25.
 *
 * @param model        The model.
 * @param input        What it reads.
 * @param name         Prefix of the parameter's name.
 * @param per_channel  Whether each channel has a weight of its own.
 * @return The shape of the input.
 */
YOKE_API yoke_value yoke_prelu(yoke_model *model, yoke_value input, const char *name,
                               bool per_channel);

/** Adds torch.nn.Hardswish: x * min(max(x + 3, 0), 6) / 6.
 *
 * @param model  The model.
 * @param input  What it reads.
 * @return The shape of the input.
 */
YOKE_API yoke_value yoke_hard_swish(yoke_model *model, yoke_value input);

/** Adds torch.nn.Mish: x * tanh(softplus(x)).
 *
 * @param model  The model.
 * @param input  What it reads.
 * @return The shape of the input.
 */
YOKE_API yoke_value yoke_mish(yoke_model *model, yoke_value input);

/** Adds torch.nn.GLU over the channels: the first half times the sigmoid of the second.
 *
 * @param model  The model.
 * @param input  What it reads; an even number of channels.
 * @return The shape of the input, with half the channels.
 */
YOKE_API yoke_value yoke_glu(yoke_model *model, yoke_value input);

/** Adds torchvision.ops.StochasticDepth of mode "row": a row becomes 0 as a whole, or is divided by
 * 1 - probability. (seed, step, layer, row of the whole batch) decide, as in yoke_dropout.
 *
 * @param model        The model.
 * @param input        What it reads: the branch that is then added to a shortcut.
 * @param probability  Of a row to become 0; 0 <= probability < 1. 0 adds nothing.
 * @return The shape of the input.
 */
YOKE_API yoke_value yoke_stochastic_depth(yoke_model *model, yoke_value input, double probability);

/** Adds torch.nn.Dropout2d: each channel of each row becomes 0 as a whole, or is divided by 1 -
 * probability.
 *
 * @param model        The model.
 * @param input        An image.
 * @param probability  Of a channel to become 0; 0 <= probability < 1.
 * @return The shape of the input.
 */
YOKE_API yoke_value yoke_dropout2d(yoke_model *model, yoke_value input, double probability);

/** Adds a softmax along any axis. yoke_softmax is the faster one over channels.
 *
 * @param model  The model.
 * @param input  What it reads.
 * @param axis   Along which.
 * @return The shape of the input.
 */
YOKE_API yoke_value yoke_softmax_along(yoke_model *model, yoke_value input, yoke_axis axis);

/** Adds a log-softmax along any axis.
 *
 * @param model  The model.
 * @param input  What it reads.
 * @param axis   Along which.
 * @return The shape of the input.
 */
YOKE_API yoke_value yoke_log_softmax_along(yoke_model *model, yoke_value input, yoke_axis axis);

/** How yoke_upsample finds the pixels between. */
typedef enum yoke_upsample_mode {
    YOKE_UPSAMPLE_NEAREST,         /**< mode="nearest". */
    YOKE_UPSAMPLE_BILINEAR,        /**< mode="bilinear". */
    YOKE_UPSAMPLE_BILINEAR_CORNERS /**< mode="bilinear", align_corners=True. */
} yoke_upsample_mode;

/** Adds torch.nn.Upsample: an image in another size, as a product with a matrix for each direction.
 *
 * @param model   The model.
 * @param input   An image.
 * @param height  Of the output.
 * @param width   Likewise.
 * @param mode    How to interpolate.
 * @return [channels, height, width].
 */
YOKE_API yoke_value yoke_upsample(yoke_model *model, yoke_value input, int height, int width,
                                  yoke_upsample_mode mode);

/** Adds torch.nn.functional.one_hot: 1 at the class of each id, 0 elsewhere; an id that is no class
 * has 0 everywhere. No gradient goes to ids.
 *
 * @param model    The model.
 * @param ids      A vector of whole numbers, as float32.
 * @param classes  At least 1.
 * @return A sequence [ids, classes].
 */
YOKE_API yoke_value yoke_one_hot(yoke_model *model, yoke_value ids, int classes);

/** Adds torch.index_select of rows by ids that the model may have computed: table[ids], an
 * embedding of them where the table is a yoke_parameter_value. It multiplies with yoke_one_hot, so
 * that it costs ids
 * * rows * features; yoke_embedding is the faster one for ids of an input.
 *
 * @param model  The model.
 * @param table  A sequence [rows, features].
 * @param ids    A vector; an id that is no row gives zeros, and ids get no gradient.
 * @return A sequence [ids, features].
 */
YOKE_API yoke_value yoke_index_select(yoke_model *model, yoke_value table, yoke_value ids);

/** Adds torch.nn.EmbeddingBag: the sum, mean or maximum of the embeddings of a row's tokens. For
 * rows of different length take yoke_embedding and yoke_mean_of_length.
 *
 * @param model      The model.
 * @param input      Token ids, as yoke_embedding reads them.
 * @param options    As yoke_embedding's.
 * @param reduction  What becomes of the tokens' features.
 * @return A vector of the features.
 */
YOKE_API yoke_value yoke_embedding_bag(yoke_model *model, yoke_value input,
                                       const yoke_embedding_options *options,
                                       yoke_reduce_kind reduction);

#ifdef __cplusplus
}
#endif

#endif
