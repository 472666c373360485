/* SPDX-License-Identifier: Apache-2.0 */
/* The losses of a range test, their smoothed curve, and the rate that it suggests. Knows no
 * trainer.
 */
#ifndef TRAIN_LR_CURVE_H
#define TRAIN_LR_CURVE_H

#include "yoke/lr_find.h"

#define YOKE_LR_SKIPPED 10 /* first points, whose means are of few losses */

typedef struct yoke_lr_curve {
    yoke_lr_find_options options;      /* checked, with defaults filled in */
    double *rates, *losses, *smoothed; /* [options.steps]; `rates` owns the memory */
    int count;
    double mean; /* with the weight that the losses do not have yet at 0 */
    double lowest;
    bool diverged;
    int suggested;   /* -1: none */
    double cautious; /* 0: none */
    char text[256];
} yoke_lr_curve;

/* ARGUMENT: an option is wrong. MEMORY. */
yoke_status yoke_lr_curve_create(yoke_lr_curve *curve, const yoke_lr_find_options *options);
void yoke_lr_curve_clear(yoke_lr_curve *curve); /* takes a zeroed struct */
/* The rate of the next step. */
double yoke_lr_curve_rate(const yoke_lr_curve *curve);
/* Adds the loss of a step; sets `diverged`. A loss that is not finite is no point. */
void yoke_lr_curve_add(yoke_lr_curve *curve, double loss);
/* Sets `suggested`, `cautious` and `text`. */
void yoke_lr_curve_suggest(yoke_lr_curve *curve);

#endif
