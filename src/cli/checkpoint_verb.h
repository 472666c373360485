/* SPDX-License-Identifier: Apache-2.0 */
/* yoke checkpoint, shared by its files. */
#ifndef CLI_CHECKPOINT_VERB_H
#define CLI_CHECKPOINT_VERB_H

#include "cli/cli.h"

/* NULL: the checkpoint does not state it. */
const char *checkpoint_fact(const yoke_checkpoint *checkpoint, const char *key);
/* Whether a fact says something about the run, and is no digest. */
bool checkpoint_is_told(const char *key);
/* "[64, 3, 3, 3]" */
const char *checkpoint_shape(const yoke_checkpoint_tensor_info *info, char text[128]);

/* Prints where two checkpoints differ. The exit code: 0 when all tensors are equal, otherwise 1. */
int checkpoint_diff(const char *left, const char *right, bool as_json);

#endif
