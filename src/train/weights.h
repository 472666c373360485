/* Files of weights in two parts: the engine's, and the disk's, which may be slow. */
#ifndef TRAIN_WEIGHTS_H
#define TRAIN_WEIGHTS_H

#include "parallel/parallel.h"
#include "train/weights_match.h"
#include "yoke/trainer.h"
#include "yoke/verify.h"

/* Copies what yoke_weights_save writes; yoke_tensor_file_save then needs no engine. The caller
 * closes *file, also after a failure. */
yoke_status yoke_weights_collect(yoke_data_parallel *parallel, const yoke_model *model,
                                 yoke_tensor_file **file);
/* Likewise those that the state keeps as the best. */
yoke_status yoke_weights_collect_best(const yoke_state *state, yoke_data_parallel *parallel,
                                      const yoke_model *model, yoke_tensor_file **file);
/* yoke_weights_load_partial in two parts. open reads every value once, finds all that is wrong, and
 * leaves the engine alone; give writes the values, which it reads again, to the engine. Close the
 * source also after a failure, or a zeroed one. */
typedef struct yoke_weights_source {
    yoke_safetensors file;
    yoke_weights_match match;
} yoke_weights_source;
yoke_status yoke_weights_open(yoke_weights_source *source, const yoke_data_parallel *parallel,
                              const yoke_model *model, const char *path,
                              const yoke_weights_load_options *options);
yoke_status yoke_weights_give(const yoke_weights_source *source, yoke_data_parallel *parallel);
void yoke_weights_close(yoke_weights_source *source);

#endif
