/* SPDX-License-Identifier: Apache-2.0 */
/* What files of Hugging Face's transformers have beside a model's tensors, as its GPT-2 has: a
 * prefix of the names, buffers that no network learns, and a second copy of a tied weight. */
#ifndef TRAIN_FOREIGN_NAMES_H
#define TRAIN_FOREIGN_NAMES_H

#include "train/weights_match.h"

#define YOKE_FOREIGN_PREFIX "transformer." /* GPT2LMHeadModel's before GPT2Model's names */

/* The name that a model without such a prefix has. */
const char *yoke_foreign_plain_name(const yoke_model *model, const char *name);
/* The mask of an attention, which is a constant. */
bool yoke_foreign_is_mask(const yoke_file_tensor *tensor);
/* The tensor of which this one, "lm_head.weight", must be a copy, since the model has one weight
 * for both; NULL: it is no such copy. */
const yoke_file_tensor *yoke_foreign_tied(const yoke_weights_match *match,
                                          const yoke_file_tensor *tensor);
/* DATA: such a copy is none. */
yoke_status yoke_foreign_check_tied(const yoke_weights_match *match);

#endif
