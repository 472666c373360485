/* SPDX-License-Identifier: Apache-2.0 */
/* What a checkpoint states of a run beside the engine's facts. */
#ifndef TRAIN_RUN_FACTS_H
#define TRAIN_RUN_FACTS_H

#include "train/checkpoint.h"
#include "train/watch.h"

void yoke_run_add_facts(const yoke_run *run, const yoke_watch *watch, yoke_facts *facts);

#define YOKE_FACT_THREADS "run.threads"
/* Compute threads of rank 0's first device; 0: a GPU. */
yoke_status yoke_run_threads(const yoke_run *run, uint64_t *threads);

/* What the run does to training images, in words. Returns text. */
#define YOKE_AUGMENTATION_BYTES 160
const char *yoke_augmentation_text(const yoke_trainer_options *options,
                                   char text[YOKE_AUGMENTATION_BYTES]);

#endif
