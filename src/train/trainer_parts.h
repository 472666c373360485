/* SPDX-License-Identifier: Apache-2.0 */
/* A trainer: a run, and the parts that it takes. Only the files that go through a whole run see it:
 * trainer.c opens and closes the parts, epochs.c trains, async.c and local_sgd.c take steps of
 * other kinds, survival.c and rank_survival.c go back, resize.c
 * changes the devices, finish.c ends. */
#ifndef TRAIN_TRAINER_PARTS_H
#define TRAIN_TRAINER_PARTS_H

#include <sys/types.h>

#include "train/apart.h"
#include "train/custom_parts.h"
#include "train/lr_curve.h"
#include "train/metrics.h"
#include "train/resize.h"
#include "train/run.h"
#include "train/save_place.h"
#include "train/saving.h"
#include "train/step_kinds.h"
#include "train/step_sums.h"
#include "train/survival.h"
#include "train/test_split.h"
#include "train/turns.h"
#include "train/watch.h"
#include "train/weights_writer.h"

struct yoke_trainer {
    pid_t process; /* that made it */
    yoke_turns turns;
    char *texts[17];                  /* run.options and run.engine point to these, */
    yoke_optimizer_options optimizer; /* run.options to this */
    yoke_run run;
    yoke_custom_parts parts; /* model, loss and metrics */
    yoke_test_split test;
    yoke_step_sums sums;
    yoke_loss_trend trend;
    yoke_watch watch;
    yoke_saving saving;
    yoke_survival survival;
    yoke_resize resize;
    const yoke_step_kind *steps;
    yoke_apart apart;
    yoke_weights_writer *last_weights; /* of rank 0, from the begin of a run that saves */
    yoke_metrics metrics;
    yoke_lr_curve lr_curve;                         /* of the last range test */
    bool running;                                   /* a run, or a range test, takes steps */
    YOKE_PUBLISHED(sizeof(yoke_progress)) progress; /* for any thread, while it runs */
};

#endif
