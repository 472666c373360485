/* SPDX-License-Identifier: Apache-2.0 */
/* The loop of a run, and what a range test takes of it. */
#ifndef TRAIN_EPOCHS_H
#define TRAIN_EPOCHS_H

#include "parallel/parallel.h"
#include "yoke/trainer.h"

/* A step of the loop, as its stages fill it in. */
typedef struct yoke_loop_step {
    yoke_batch batch;
    bool is_end; /* of the epoch: there is no batch */
    double rate;
    uint64_t waited_ns, computed_ns; /* waited: for the loader */
    yoke_step_result result;
} yoke_loop_step;

/* Makes plans, prepares the save of a run that saves, and reports that the run is ready. */
yoke_status yoke_trainer_begin(yoke_trainer *trainer, bool saves);
/* Loads a batch. DATA: the epoch has none. */
yoke_status yoke_trainer_load(yoke_trainer *trainer, yoke_loop_step *step);
/* Trains on it, at step->rate. */
yoke_status yoke_trainer_update(yoke_trainer *trainer, yoke_loop_step *step);
/* The event STEP of it. */
yoke_event yoke_loop_step_event(const yoke_loop_step *step);
/* After a run or a range test. */
void yoke_trainer_end(yoke_trainer *trainer);

#endif
