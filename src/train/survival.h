/* SPDX-License-Identifier: Apache-2.0 */
/* A run that goes on when a device fails. Now and then it keeps its state on the host; after a
 * failure an engine of the devices that are left takes it, and the steps since are done again from
 * the same rows. It is a resume from a checkpoint in memory, so that neither a step nor the engine
 * knows of it, and whatever the step was at is nobody's concern. */
#ifndef TRAIN_SURVIVAL_H
#define TRAIN_SURVIVAL_H

#include <pthread.h>

#include "parallel/parallel.h"
#include "train/run.h"
#include "train/save_place.h"
#include "train/step_sums.h"

/* Where a run was, and all that its next steps depend on. */
typedef struct yoke_kept {
    bool is_whole;
    yoke_state *state;
    yoke_position at;
    yoke_epoch_sums epoch;
    yoke_loss_trend trend;
} yoke_kept;

typedef struct yoke_survival {
    pthread_mutex_t engine;     /* held while the run's engine is replaced */
    yoke_kept kept[2];          /* take turns, so that one is always whole; state NULL: none kept */
    int newest;                 /* of kept; -1: neither is whole */
    uint64_t kept_ns, spent_ns; /* when it was kept, and how long that took */
    uint64_t all_ns;            /* that all of them took */
    uint64_t reported;          /* the latest step that on_event and metrics know of, */
    uint64_t epochs;            /* and how many epochs; 1 + the step of the latest evaluation */
    uint64_t evaluated;
    int lost;           /* devices, or ranks */
    int devices;        /* that the run began with, or was given since */
    bool writes;        /* this rank has the run's files */
    bool admits;        /* the ranks meet to take in another */
    int64_t met_step;   /* that they went on from when they last met */
    uint64_t failed_ns; /* when the latest failed; 0: the run is where it was then */
    uint64_t lost_ns;   /* on the way there, of all failures */
} yoke_survival;

/* Without options.survive and an audit all of these do nothing. */

yoke_status yoke_survival_open(yoke_survival *survival, const yoke_run *run);
void yoke_survival_close(yoke_survival *survival);
/* Whether enough steps have passed: keeping takes a 150th of the time at most. */
bool yoke_survival_is_due(const yoke_survival *survival);
/* Between two steps, and behind an evaluation, so that none is made again but one that failed. */
yoke_status yoke_survival_keep(yoke_trainer *trainer);
/* What is kept needs the engine's devices no more: others may be opened. */
yoke_status yoke_survival_let_go(yoke_survival *survival, yoke_data_parallel *parallel);
/* Whether this step, which is done, was done and reported before a failure, too. */
bool yoke_survival_repeats(yoke_survival *survival, uint64_t step);
bool yoke_survival_repeats_evaluation(yoke_survival *survival, uint64_t step);
bool yoke_survival_repeats_epoch(yoke_survival *survival, uint64_t epoch); /* counted from 0 */
/* After `status`: OK where a device failed and the run is back at the kept state, without that
 * device; otherwise `status`. */
yoke_status yoke_survive(yoke_trainer *trainer, yoke_status status);
/* As yoke_data_parallel_leave_thread, of the engine that the run has now. */
bool yoke_survival_leave_thread(yoke_survival *survival, const yoke_run *run);

#endif
