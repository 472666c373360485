/* SPDX-License-Identifier: Apache-2.0 */
/* A model that reads a text part by part. */
#ifndef MODEL_CONTINUE_MODEL_H
#define MODEL_CONTINUE_MODEL_H

#include "yoke/model.h"

/* A model of the same tensors that reads `positions` tokens at a time, those before
 * them from keys and values that its replica keeps. It has a second input, "begin": the place of a
 * row's first token in its text of at most `context` tokens, the whole model's input; tokens at
 * places below 0 are padding. Its output is that of the last token alone, [1, classes]. ARGUMENT: a
 * layer of the model reads later positions, or more of earlier ones than attention does; the text
 * names it. */
yoke_status yoke_model_continue(yoke_model **continued, const yoke_model *model, int positions);
/* Bytes of a row's keys and values. */
size_t yoke_model_kept_bytes(const yoke_model *continued);

#endif
