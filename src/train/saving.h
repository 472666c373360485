/* SPDX-License-Identifier: Apache-2.0 */
/* The checkpoints of a run: when they are written, and what they state. resume.h reads them. */
#ifndef TRAIN_SAVING_H
#define TRAIN_SAVING_H

#include "train/checkpoint_writer.h"
#include "train/run.h"
#include "train/watch.h"

/* The best evaluation: accuracy, or minus the loss where there is no accuracy. */
typedef struct yoke_best {
    bool exists;
    double value;
} yoke_best;

typedef struct yoke_saving {
    yoke_state *state;              /* NULL: the run neither writes nor reads any */
    yoke_folder folder;             /* of rank 0, as is all of the best */
    yoke_checkpoint_writer *writer; /* of rank 0 */
    const yoke_watch *watch;        /* whose facts a checkpoint states */
    uint64_t step, epoch, time_ns;  /* of the last one, or of the start */
    bool resumed;
    yoke_best best, on_disk; /* on_disk: the last that was written whole */
} yoke_saving;

/* Without a folder these do nothing. All ranks call them together, but is_due and collect. */

/* On rank 0: whether a checkpoint is due and can begin. */
bool yoke_saving_is_due(const yoke_saving *saving, const yoke_run *run);
/* Copies the state and lets it be written. */
yoke_status yoke_saving_begin(yoke_saving *saving, yoke_run *run);
/* The same after an evaluation, if it is the best so far and the options want it. */
yoke_status yoke_saving_add(yoke_saving *saving, yoke_run *run, const yoke_step_result *evaluation);
/* Keeps the present weights in the state as the best, once the writer does not read it. */
yoke_status yoke_saving_keep_best(yoke_saving *saving, yoke_run *run);
/* Reports the file that was written. */
void yoke_saving_collect(yoke_saving *saving, yoke_run *run);
/* Writes the last one, if wanted, and waits for what is being written. */
yoke_status yoke_saving_end(yoke_saving *saving, yoke_run *run, bool with_last);
void yoke_saving_close(yoke_saving *saving);

#endif
