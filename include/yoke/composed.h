/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Layers and losses that are compositions of elementary operations (yoke/elementary.h): they run
 * wherever those do, on every device, in every schedule.
 */
#ifndef YOKE_COMPOSED_H
#define YOKE_COMPOSED_H

#include "yoke/elementary.h"

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

/** Adds torch.nn.L1Loss of each row, for YOKE_LOSS_OUTPUT: the mean of |prediction - target|.
 *
 * @param model       The model.
 * @param prediction  What the model says.
 * @param target      What it should say: an input of the model, for example.
 * @return A flat value of one number.
 */
YOKE_API yoke_value yoke_l1_loss(yoke_model *model, yoke_value prediction, yoke_value target);

/** Adds torch.nn.KLDivLoss of each row, for YOKE_LOSS_OUTPUT: the sum of target * (log target -
 * log_prediction).
 *
 * @param model           The model.
 * @param log_prediction  Logarithms of probabilities, as yoke_log_softmax_along gives them.
 * @param target          Probabilities above 0.
 * @return A flat value of one number.
 */
YOKE_API yoke_value yoke_kl_loss(yoke_model *model, yoke_value log_prediction, yoke_value target);

/** Adds the Dice loss of each row, for YOKE_LOSS_OUTPUT: 1 - (2 sum(p t) + 1) / (sum(p) + sum(t) +
 * 1), of probabilities and masks (Milletari et al. 2016, smoothed by 1).
 *
 * @param model       The model.
 * @param prediction  Probabilities.
 * @param target      0 and 1.
 * @return A flat value of one number.
 */
YOKE_API yoke_value yoke_dice_loss(yoke_model *model, yoke_value prediction, yoke_value target);

#ifdef __cplusplus
}
#endif

#endif
