/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Rows of different length: a sequence has one number of positions, of which a row uses the first
 * few. How many is an input of the row (yoke_row_input), a vector of one number; the positions
 * behind are padding. Labels of padding are YOKE_NO_LABEL.
 */
#ifndef YOKE_LENGTHS_H
#define YOKE_LENGTHS_H

#include "yoke/elementary.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Which positions of a row are its own: 1 for the first `length`, 0 for padding.
 *
 * @param model      The model.
 * @param lengths    A vector of one number; above `positions` it counts as `positions`.
 * @param positions  Of the sequence.
 * @return A sequence [positions, 1]; multiplied with another sequence it makes padding 0.
 */
YOKE_API yoke_value yoke_valid_positions(yoke_model *model, yoke_value lengths, int positions);

/** A mask for yoke_attend: no query looks at padding, PyTorch's key_padding_mask. In a row of
 * length 0 every key counts alike.
 *
 * @param model      The model.
 * @param lengths    Of the keys, as above.
 * @param positions  Keys of a row.
 * @return An image [1, 1, positions].
 */
YOKE_API yoke_value yoke_padding_mask(yoke_model *model, yoke_value lengths, int positions);

/** The mean over the positions of a row that are no padding; 0 for a row of length 0.
 *
 * @param model    The model.
 * @param input    A sequence.
 * @param lengths  As above.
 * @return A sequence of one position, [1, features].
 */
YOKE_API yoke_value yoke_mean_of_length(yoke_model *model, yoke_value input, yoke_value lengths);

#ifdef __cplusplus
}
#endif

#endif
