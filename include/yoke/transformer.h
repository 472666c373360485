/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Layers of transformers: sequences of pixels and of tokens, their positions, attention, a learned
 * token before a sequence, one position of it. Like all layers they join a yoke_model.
 */
#ifndef YOKE_TRANSFORMER_H
#define YOKE_TRANSFORMER_H

#include "yoke/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/** torch.nn.Embedding, and an embedding of positions. */
typedef struct yoke_embedding_options {
    size_t struct_size; /**< sizeof(yoke_embedding_options). */
    const char *name;   /**< Prefix of the parameter's name; required. */
    int count;          /**< Rows of the weight: tokens, or positions; required. */
    int features;       /**< Tokens: of each; required. Positions: 0, or those of the input. */
    double std;         /**< Initialize the weight with N(0, std^2); 0: 1, nn.Embedding's. */
} yoke_embedding_options;

/** The defaults; set name, count and features. */
#define YOKE_EMBEDDING_OPTIONS_INIT                                                                \
    { sizeof(yoke_embedding_options), NULL, 0, 0, 0 }

/** The attention inside torch.nn.MultiheadAttention and GPT-2. */
typedef struct yoke_attention_options {
    size_t struct_size; /**< sizeof(yoke_attention_options). */
    int heads;          /**< Divides the channels of the output; required. */
    bool causal;        /**< A position reads itself and those before it. */
} yoke_attention_options;

/** The defaults; set heads. */
#define YOKE_ATTENTION_OPTIONS_INIT                                                                \
    { sizeof(yoke_attention_options), 0, false }

/** Makes an image a sequence, a position for each pixel: x.flatten(2).transpose(1, 2).
 *
 * @param model  The model.
 * @param input  An image [channels, height, width].
 * @return A sequence [height * width, channels].
 */
YOKE_API yoke_value yoke_sequence(yoke_model *model, yoke_value input);

/** Adds torch.nn.Embedding: each token id becomes a row of the weight. Parameter: NAME.weight
 * [count, features]. Ids are whole numbers from 0 to count - 1 as float32. The engine refuses a
 * batch in host memory with another one (DATA; the text names row and position); one in a GPU's
 * memory, or in `pixels`, gives NaN, and so a loss that is not finite.
 *
 * @param model    The model.
 * @param input    An input of the model, flat: the ids of a row's positions.
 * @param options  Not NULL.
 * @return A sequence with `features` at each position.
 */
YOKE_API yoke_value yoke_embedding(yoke_model *model, yoke_value input,
                                   const yoke_embedding_options *options);

/** Adds to each position its row of the weight. Parameter: NAME.weight [count, features].
 *
 * @param model    The model.
 * @param input    A sequence of at most `count` positions.
 * @param options  Not NULL.
 * @return The shape of the input.
 */
YOKE_API yoke_value yoke_positional_embedding(yoke_model *model, yoke_value input,
                                              const yoke_embedding_options *options);

/** Puts a learned token before the positions of a sequence, as the class token of a vision
 * transformer. Parameter: NAME [1, 1, channels], which begins at 0.
 *
 * @param model  The model.
 * @param input  A sequence.
 * @param name   Of the parameter; copied.
 * @return A sequence with one position more; the token is position 0.
 */
YOKE_API yoke_value yoke_class_token(yoke_model *model, yoke_value input, const char *name);

/** Takes one position out of a sequence: torch.select(x, 1, index).
 *
 * @param model  The model.
 * @param input  A sequence.
 * @param index  Counted from 0.
 * @return A flat value of its channels.
 */
YOKE_API yoke_value yoke_select(yoke_model *model, yoke_value input, int index);

/** Adds multi-head attention, torch.nn.functional.scaled_dot_product_attention of each head:
 * softmax(q k^T / sqrt(channels / heads)) v. It has no parameters: a linear layer before it writes
 * q, k and v, as in_proj of torch.nn.MultiheadAttention and c_attn of GPT-2 do, and one behind it
 * joins the heads. The matrix of all pairs of positions is never in memory.
 *
 * @param model    The model.
 * @param input    A sequence [positions, 3 * channels]: q, k and v of each position, each the heads
 *                 side by side. On GPUs channels / heads is at most 256.
 * @param options  Not NULL.
 * @return A sequence [positions, channels].
 */
YOKE_API yoke_value yoke_attention(yoke_model *model, yoke_value input,
                                   const yoke_attention_options *options);

#ifdef __cplusplus
}
#endif

#endif
