/* SPDX-License-Identifier: Apache-2.0 */
/* Weights in files, inside the library. */
#ifndef TRAIN_WEIGHTS_H
#define TRAIN_WEIGHTS_H

#include "parallel/parallel.h"
#include "train/description.h"
#include "train/weights_match.h"
#include "yoke/weights.h"

/* yoke_weights_load_partial in two parts. open reads every value once, finds all that is wrong, and
 * leaves the engine alone; give writes the values, which it reads again, to the engine. Close the
 * source also after a failure, or a zeroed one. */
typedef struct yoke_weights_source {
    yoke_safetensors file;
    yoke_weights_match match;
} yoke_weights_source;
yoke_status yoke_weights_open(yoke_weights_source *source, const yoke_data_parallel *parallel,
                              const yoke_model *model, const yoke_file_source *from,
                              const yoke_weights_load_options *options);
yoke_status yoke_weights_give(const yoke_weights_source *source, yoke_data_parallel *parallel);
void yoke_weights_close(yoke_weights_source *source);

#endif
