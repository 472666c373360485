/* SPDX-License-Identifier: Apache-2.0 */
/* Where the weights go at the end of a run: to the file that the options name, or beside it, where
 * an earlier run's file is worth more than what this run ended with. */
#ifndef TRAIN_SAVE_PLACE_H
#define TRAIN_SAVE_PLACE_H

#include <limits.h>

#include "train/run.h"

/* The first and the last losses of a run's steps. */
#define YOKE_LAST_LOSSES 16
typedef struct yoke_loss_trend {
    uint64_t steps;
    double first, last[YOKE_LAST_LOSSES]; /* last: a ring */
} yoke_loss_trend;

void yoke_loss_trend_add(yoke_loss_trend *trend, double loss);

typedef struct yoke_ending {
    const yoke_run *run;
    const yoke_loss_trend *trend;
    bool keeps_best; /* the weights are those of the best evaluation */
} yoke_ending;

/* options.save, or `beside` it, where a file of an earlier run stays because this one diverged or
 * ended with NUMERIC. */
const char *yoke_save_place(const yoke_ending *ending, yoke_status ended, char beside[PATH_MAX]);
/* Says so in the error that ended the run, or returns one. */
yoke_status yoke_save_place_report(const yoke_ending *ending, const char *place, yoke_error *ended);

#endif
