/* SPDX-License-Identifier: Apache-2.0 */
/* Which tensor of a file belongs to which of a model, and what may be left out. */
#ifndef TRAIN_WEIGHTS_MATCH_H
#define TRAIN_WEIGHTS_MATCH_H

#include "model/model.h"
#include "train/train.h"

typedef struct yoke_weights_match {
    const yoke_safetensors *file;
    const yoke_model *model;
    yoke_weights_load_options options;
    const yoke_file_tensor **sources; /* [tensors of the model]; NULL: it keeps its values */
    yoke_skip_reason *reasons;        /* [tensors of the model] why it does; 0: no skip */
    int *missing, *unknown; /* [tensors of the model], [of the file]: those that may be are
                               not negative; NULL: none may */
    float *values;          /* room for the largest of the sources */
} yoke_weights_match;

/* The name without the prefix "module." of nn.DataParallel. */
const char *yoke_weights_plain_name(const char *name);
/* A model's tensor in a file, which may name it with a prefix; NULL: it is not there. */
const yoke_file_tensor *yoke_weights_find(const yoke_safetensors *file, const char *name);

/* "[64,3,3,3]" */
void yoke_weights_shape_text(char *text, size_t size, const int64_t *shape, int ndim);
bool yoke_weights_shape_fits(const yoke_file_tensor *tensor, const yoke_tensor_info *info);
/* The entry in a file of a model's tensor. */
yoke_file_tensor yoke_weights_file_tensor(const yoke_tensor_info *info);
/* How many values come before the first that is not finite. */
size_t yoke_count_finite(const float *values, size_t count);

/* Finds the sources; the caller has set file, model and options. DATA: a tensor is missing,
 * unknown, or of another shape or type, and the options do not allow it. ARGUMENT: allow_missing
 * has a pattern that matches no tensor. Close it after a failure,
 * too. */
yoke_status yoke_weights_match_open(yoke_weights_match *match);
void yoke_weights_match_close(yoke_weights_match *match);
/* DATA when a source is not finite; if it may be missing, it is skipped instead. */
yoke_status yoke_weights_match_values(yoke_weights_match *match);
/* Calls on_skip for every tensor that is left out. */
void yoke_weights_match_report(const yoke_weights_match *match);

#endif
