/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Attention over any values, put together of elementary operations: queries of one sequence over
 * keys and values of another, masks, rotary positions. yoke_attention (yoke/transformer.h) is the
 * faster self-attention without masks but the causal one.
 */
#ifndef YOKE_ATTENTION_H
#define YOKE_ATTENTION_H

#include "yoke/elementary.h"

#ifdef __cplusplus
extern "C" {
#endif

/** No value, where a mask may be left out. */
static inline yoke_value yoke_no_mask(void) {
    yoke_value none;
    none.index = -1;
    return none;
}

/** Cuts the features of a sequence into heads: [positions, heads * size] -> an image [heads,
 * positions, size].
 *
 * @param model  The model.
 * @param input  A sequence.
 * @param heads  Divides its features.
 * @return The heads as channels.
 */
YOKE_API yoke_value yoke_split_heads(yoke_model *model, yoke_value input, int heads);

/** The way back: an image [heads, positions, size] -> a sequence [positions, heads * size].
 *
 * @param model  The model.
 * @param input  An image, as yoke_split_heads gives it.
 * @return A sequence.
 */
YOKE_API yoke_value yoke_merge_heads(yoke_model *model, yoke_value input);

/** Adds torch.nn.functional.scaled_dot_product_attention: softmax(queries keys^T / sqrt(size) +
 * mask) values. With enable_gqa, keys and values have fewer heads, each for a group of queries'
 * heads side by side (Ainslie et al. 2023).
 *
 * @param model    The model.
 * @param queries  An image [heads, positions, size].
 * @param keys     An image [heads, or a part of them that divides them; others, size].
 * @param values   An image [heads of keys, others, size of a value].
 * @param mask     Added to the scores: an image [1 or heads, positions or 1, others], with a large
 *                 negative number where a query must not look; yoke_no_mask(): none.
 * @return An image [heads, positions, size of a value].
 */
YOKE_API yoke_value yoke_attend(yoke_model *model, yoke_value queries, yoke_value keys,
                                yoke_value values, yoke_value mask);

/** A mask for yoke_attend: a query looks at its own position and those before it.
 *
 * @param model      The model.
 * @param positions  Of queries and keys.
 * @return A constant [1, positions, positions].
 */
YOKE_API yoke_value yoke_causal_mask(yoke_model *model, int positions);

/** Rotates pairs of features by angles that grow with the position (Su et al. 2021), in the form of
 * LLaMA's rotate_half: feature i and i + size / 2 are a pair, by position / base^(2 i / size).
 *
 * @param model  The model.
 * @param input  An image [heads, positions, size], size even: queries or keys.
 * @param base   10000 in the paper.
 * @return The shape of the input.
 */
YOKE_API yoke_value yoke_rotary(yoke_model *model, yoke_value input, double base);

#ifdef __cplusplus
}
#endif

#endif
