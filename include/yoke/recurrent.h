/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Recurrent layers: torch.nn.LSTM and torch.nn.GRU, with PyTorch's names, shapes and order of
 * gates.
 */
#ifndef YOKE_RECURRENT_H
#define YOKE_RECURRENT_H

#include "yoke/elementary.h"

#ifdef __cplusplus
extern "C" {
#endif

/** torch.nn.LSTM and torch.nn.GRU with batch_first=True; the first states are 0. */
typedef struct yoke_recurrent_options {
    size_t struct_size; /**< sizeof(yoke_recurrent_options). */
    const char *name;   /**< Prefix of the parameters' names; required. */
    int hidden;         /**< Features of a state, PyTorch's hidden_size; required. */
    int layers;         /**< Layers, one behind the other; 0: 1. */
    bool bidirectional; /**< Each layer also reads the sequence from its end; its output has twice
                             the features. */
    bool no_bias;       /**< Leave the biases out. */
    double dropout;     /**< Behind each layer but the last. */
    /** A vector of one number: how many positions of a row are its own, as in PyTorch's
     * pack_padded_sequence. Outputs behind them are 0, the reverse direction begins at the last of
     * them, and nothing of the padding counts. 0 gives zeros; more than there are: all. NULL: rows
     * have all positions. */
    const yoke_value *lengths;
} yoke_recurrent_options;

/** The defaults; set name and hidden. */
#define YOKE_RECURRENT_OPTIONS_INIT                                                                \
    { sizeof(yoke_recurrent_options), NULL, 0, 0, false, false, 0, NULL }

/** Adds an LSTM (Hochreiter and Schmidhuber 1997). Parameters of layer K: NAME.weight_ih_lK [4 *
 * hidden, features], NAME.weight_hh_lK [4 * hidden, hidden], NAME.bias_ih_lK and NAME.bias_hh_lK [4
 * * hidden], and the same with _reverse.
 *
 * @param model    The model.
 * @param input    A sequence.
 * @param options  Not NULL.
 * @return A sequence of the states at each position: PyTorch's first result.
 */
YOKE_API yoke_value yoke_lstm(yoke_model *model, yoke_value input,
                              const yoke_recurrent_options *options);

/** Adds a GRU (Cho et al. 2014), in PyTorch's form. Parameters as those of an LSTM, with 3 * hidden
 * rows.
 *
 * @param model    The model.
 * @param input    A sequence.
 * @param options  Not NULL.
 * @return A sequence of the states at each position: PyTorch's first result.
 */
YOKE_API yoke_value yoke_gru(yoke_model *model, yoke_value input,
                             const yoke_recurrent_options *options);

#ifdef __cplusplus
}
#endif

#endif
