/* SPDX-License-Identifier: Apache-2.0 */
/* What a run adds to the engine's options: for checkpoints, for a resume, and for its ranks. */
#ifndef TRAIN_RUN_OPTIONS_H
#define TRAIN_RUN_OPTIONS_H

#include "train/checkpoint.h"
#include "train/run.h"

#define YOKE_FACT_THREADS "run.threads"
/* Compute threads of rank 0's first device; 0: a GPU. */
yoke_status yoke_run_threads(const yoke_run *run, uint64_t *threads);

#endif
