/* SPDX-License-Identifier: Apache-2.0 */
/* What follows from an evaluation: a lower learning rate, the weights to keep, the end of the run.
 */
#ifndef TRAIN_WATCH_H
#define TRAIN_WATCH_H

#include "train/checkpoint.h"
#include "train/run.h"

/* The same on all ranks. */
typedef struct yoke_watch {
    yoke_lr_plateau plateau;
    bool has_best; /* the state has the best weights */
    double best_loss, best_rows, best_labels, best_correct;
    uint64_t best_epoch; /* from 0 */
    int bad;             /* evaluations since the best one */
    uint64_t step;       /* of the last evaluation that counted */
} yoke_watch;

yoke_status yoke_watch_check(const yoke_trainer_options *options);
/* Before the first step: also fills in what the run's schedule needs. */
void yoke_watch_begin(yoke_watch *watch, yoke_run *run);
/* After each evaluation. better: keep the present weights as the best. */
void yoke_watch_add(yoke_watch *watch, yoke_run *run, const yoke_step_result *evaluation,
                    bool *better);
/* Whether patience ends the run. */
bool yoke_watch_is_over(const yoke_watch *watch, const yoke_run *run);
/* Gives the engine the best weights that `state` keeps, and returns their evaluation. */
yoke_status yoke_watch_end(const yoke_watch *watch, const yoke_run *run, yoke_state *state,
                           yoke_step_result *evaluation);

/* In checkpoints; and from rank 0 to the others. */
void yoke_watch_describe(const yoke_watch *watch, yoke_facts *facts);
yoke_status yoke_watch_read(yoke_watch *watch, const yoke_run *run,
                            const yoke_checkpoint *checkpoint);
yoke_status yoke_watch_share(yoke_watch *watch, yoke_run *run);

#endif
