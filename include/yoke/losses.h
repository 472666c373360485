/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Losses that a model computes, as compositions of elementary operations: output 0 of a model with
 * YOKE_LOSS_OUTPUT. Each gives a number for a row; the loss of a batch is the mean of its rows.
 * What they compare with is another input of the model.
 */
#ifndef YOKE_LOSSES_H
#define YOKE_LOSSES_H

#include "yoke/elementary.h"

#ifdef __cplusplus
extern "C" {
#endif

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

/** Adds torch.nn.NLLLoss of each row, for YOKE_LOSS_OUTPUT: minus the logarithms of the
 * probabilities of its classes, their mean. An id that is no class, as YOKE_NO_LABEL, counts
 * nowhere; where none counts, the loss is 0.
 *
 * @param model              The model.
 * @param log_probabilities  A vector [classes], or a sequence [positions, classes].
 * @param ids                The classes, as float32: a vector of one number, or of one for each
 *                           position.
 * @return A flat value of one number.
 */
YOKE_API yoke_value yoke_nll_loss(yoke_model *model, yoke_value log_probabilities, yoke_value ids);

/** Adds torchvision.ops.sigmoid_focal_loss of each row, its mean (Lin et al. 2017): BCE with logits
 * times (1 - p_t)^gamma, where p_t is the probability of the target, and times alpha for a target
 * of 1, 1 - alpha for 0.
 *
 * @param model   The model.
 * @param logits  What the model says.
 * @param target  0 and 1, of the same shape.
 * @param alpha   0 to 1, or negative: no factor.
 * @param gamma   At least 1.
 * @return A flat value of one number.
 */
YOKE_API yoke_value yoke_focal_loss(yoke_model *model, yoke_value logits, yoke_value target,
                                    double alpha, double gamma);

/** Adds torch.nn.TripletMarginLoss of each row with p = 2: max(|anchor - positive| - |anchor -
 * negative| + margin, 0), where 1e-6 is added to each difference.
 *
 * @param model     The model.
 * @param anchor    A vector.
 * @param positive  One that should be near.
 * @param negative  One that should be far.
 * @param margin    By how much farther.
 * @return A flat value of one number.
 */
YOKE_API yoke_value yoke_triplet_loss(yoke_model *model, yoke_value anchor, yoke_value positive,
                                      yoke_value negative, double margin);

/** What yoke_ctc_loss reads of rows of different length. */
typedef struct yoke_ctc_options {
    size_t struct_size;             /**< sizeof(yoke_ctc_options). */
    const yoke_value *input_length; /**< A vector of one number: positions of the row; NULL: all. */
    const yoke_value *target_length; /**< Likewise: ids of the row, at least 1; NULL: all. */
    int blank;                       /**< The class that says: nothing here. */
} yoke_ctc_options;

/** PyTorch's defaults: rows of one length, and blank 0. */
#define YOKE_CTC_OPTIONS_INIT                                                                      \
    { sizeof(yoke_ctc_options), NULL, NULL, 0 }

/** Adds torch.nn.CTCLoss of each row (Graves et al. 2006), divided by the target's length, as
 * reduction="mean" does: minus the logarithm of the probability of all ways to align the target
 * with the positions. It takes some elementary operations for each position.
 *
 * @param model              The model.
 * @param log_probabilities  A sequence [positions, classes].
 * @param ids                A vector: the classes of the target, none of them `blank`.
 * @param options            NULL: YOKE_CTC_OPTIONS_INIT.
 * @return A flat value of one number; where the target cannot fit into the row it is above 1e27.
 */
YOKE_API yoke_value yoke_ctc_loss(yoke_model *model, yoke_value log_probabilities, yoke_value ids,
                                  const yoke_ctc_options *options);

#ifdef __cplusplus
}
#endif

#endif
