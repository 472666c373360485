/* SPDX-License-Identifier: Apache-2.0 */
/* How far a run is, for any thread and any signal handler while it goes on. */
#ifndef TRAIN_RUN_PROGRESS_H
#define TRAIN_RUN_PROGRESS_H

#include <stdatomic.h>

#include "yoke/trainer.h"

#define YOKE_PROGRESS_WORDS (sizeof(yoke_progress) / sizeof(uint64_t))
_Static_assert(sizeof(yoke_progress) % sizeof(uint64_t) == 0, "a whole number of words");

typedef struct yoke_run_progress {
    _Atomic uint32_t newest; /* modulo 2, the copy to read */
    _Atomic uint64_t copies[2][YOKE_PROGRESS_WORDS];
} yoke_run_progress;

void yoke_run_progress_set(yoke_run_progress *own, const yoke_progress *now);
void yoke_run_progress_read(const yoke_run_progress *own, yoke_progress *now);

#endif
