/* SPDX-License-Identifier: Apache-2.0 */
/* How a run takes its steps: all devices together, each for itself, or each alone for a while. */
#ifndef TRAIN_STEP_KINDS_H
#define TRAIN_STEP_KINDS_H

#include "train/run.h"

typedef struct yoke_loop_step yoke_loop_step; /* epochs.h */

typedef struct yoke_step_kind {
    /* After the engine is made; and at the end, of half-open ones, too. NULL: nothing to do. */
    yoke_status (*open)(yoke_trainer *trainer);
    void (*close)(yoke_trainer *trainer);
    /* Behind the last step of each run, however it ends: waits for devices that still compute, and
     * drops their results. NULL: none does. */
    void (*rest)(yoke_trainer *trainer);
    /* Loads the rows of the step, or says that the epoch has no more; and takes it. */
    yoke_status (*load)(yoke_trainer *trainer, yoke_loop_step *step);
    yoke_status (*update)(yoke_trainer *trainer, yoke_loop_step *step);
    /* At the end of an epoch, before its evaluation: the run's engine has the weights that count,
     * and files have their lines. NULL: they always have. */
    yoke_status (*settle)(yoke_trainer *trainer);
    const char *name; /* of the mode */
    bool is_apart;    /* devices have weights of their own: see check_apart */
} yoke_step_kind;

const yoke_step_kind *yoke_step_kind_of(yoke_mode mode); /* NULL: unknown */
extern const yoke_step_kind yoke_steps_apart_async, yoke_steps_apart_local;

/* ARGUMENT: the options do not go together with devices that train apart. */
yoke_status yoke_step_kind_check(const yoke_run *run);

#endif
