/* Files of weights in two parts: the engine's, and the disk's, which may be slow. */
#ifndef TRAIN_WEIGHTS_H
#define TRAIN_WEIGHTS_H

#include "parallel/parallel.h"
#include "train/safetensors.h"
#include "yoke/trainer.h"
#include "yoke/verify.h"

/* Copies what yoke_weights_save writes; yoke_tensor_file_save then needs no engine. The caller
 * closes *file, also after a failure. */
yoke_status yoke_weights_collect(yoke_data_parallel *parallel, const yoke_model *model,
                                 yoke_tensor_file **file);
/* Likewise those that the state keeps as the best. */
yoke_status yoke_weights_collect_best(const yoke_state *state, yoke_data_parallel *parallel,
                                      const yoke_model *model, yoke_tensor_file **file);
/* yoke_weights_load_partial from a file that is in memory. */
yoke_status yoke_weights_take(yoke_data_parallel *parallel, const yoke_model *model,
                              const yoke_safetensors *file,
                              const yoke_weights_load_options *options);

#endif
