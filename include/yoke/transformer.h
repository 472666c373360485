/** @file
 * Layers of transformers: attention, a learned token before a sequence, one position of it. Like
 * all layers they join a yoke_model.
 */
#ifndef YOKE_TRANSFORMER_H
#define YOKE_TRANSFORMER_H

#include "yoke/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The attention inside torch.nn.MultiheadAttention and GPT-2. */
typedef struct yoke_attention_options {
    size_t struct_size; /**< sizeof(yoke_attention_options). */
    int heads;          /**< Divides the channels of the output; required. */
    bool causal;        /**< A position reads itself and those before it. */
} yoke_attention_options;

/** The defaults; set heads. */
#define YOKE_ATTENTION_OPTIONS_INIT                                                                \
    { sizeof(yoke_attention_options), 0, false }

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
