/* SPDX-License-Identifier: Apache-2.0 */
/* The file that options.save names: prepared before the first step, so that the save after the last
 * one needs nothing new, and written elsewhere rather than lost. */
#ifndef TRAIN_LAST_WEIGHTS_H
#define TRAIN_LAST_WEIGHTS_H

#include "train/run.h"
#include "train/weights_writer.h"

/* Both do nothing without options.save. The writer is rank 0's. */

/* All ranks together; a failure ends the other ranks. */
yoke_status yoke_last_weights_prepare(yoke_weights_writer **writer, yoke_run *run);

typedef struct yoke_last_weights {
    const char *path;       /* options.save, or beside it */
    const yoke_state *best; /* has the best weights so far; NULL: the present weights */
    bool together;          /* the other ranks wait; otherwise they have failed, or rank 0 has */
} yoke_last_weights;
/* Writes elsewhere where it must, with an IO error that says where. */
yoke_status yoke_last_weights_save(yoke_weights_writer *writer, yoke_run *run,
                                   const yoke_last_weights *what);

#endif
