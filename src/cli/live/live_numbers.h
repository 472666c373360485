/* SPDX-License-Identifier: Apache-2.0 */
/* What the live view shows of a run, as numbers. NaN: not known. */
#ifndef CLI_LIVE_NUMBERS_H
#define CLI_LIVE_NUMBERS_H

#include <stdint.h>

#include "yoke/trace.h"

#define LIVE_DEVICES_MAX 64
#define LIVE_STAGES_MAX (YOKE_STAGE_COUNT + 1) /* and idle */

/* A device in the last steps, as shares of their time; the sum is 1. */
typedef struct live_device {
    char name[32];
    double work, wait, idle; /* wait: for another device or rank, its link or the loader */
} live_device;

/* Milliseconds of a step, the mean of the last steps and of the devices. */
typedef struct live_stage {
    const char *name;
    double ms;
} live_stage;

/* After how many steps an evaluation was, and its loss. */
typedef struct live_evaluation {
    uint64_t step;
    double loss;
} live_evaluation;

typedef struct live_numbers {
    const char *title;                /* model, data, devices, mode */
    int epoch, epochs;                /* epoch from 1; epochs 0: the run has no epochs */
    uint64_t epoch_done, epoch_steps; /* steps */
    uint64_t done, steps;
    double elapsed_s, left_s;
    double images_now, images_mean; /* a second */
    const char *unit;               /* "img/s" */
    live_device devices[LIVE_DEVICES_MAX];
    int device_count;
    const char *devices_note; /* which devices are missing; "": none */
    live_stage stages[LIVE_STAGES_MAX];
    int stage_count;
    double step_ms;                        /* the sum of the stages */
    int measured_steps;                    /* behind devices and stages; 0: none yet */
    double loss, test_loss, test_accuracy; /* accuracy 0 to 1 */
    const double *losses;                  /* [loss_count] of the last steps, up to `done` */
    int loss_count;
    const live_evaluation *evaluations; /* [evaluation_count] */
    int evaluation_count;
} live_numbers;

#endif
