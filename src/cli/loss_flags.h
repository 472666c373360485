/* SPDX-License-Identifier: Apache-2.0 */
/* --loss and its neighbours. */
#ifndef CLI_LOSS_FLAGS_H
#define CLI_LOSS_FLAGS_H

#include "yoke/trainer.h"

#define LOSS_FLAGS_WEIGHTS 4096 /* at most, in a command line */

typedef struct loss_flags {
    int loss; /* 0: by the dataset; otherwise 1 + a yoke_loss_kind */
    double label_smoothing, huber_delta;
    const char *class_weights, *ignore_index; /* NULL: not given */
} loss_flags;

/* What the trainer's options point to until the trainer is made. */
typedef struct loss_choice {
    yoke_loss_options options;
    float weights[LOSS_FLAGS_WEIGHTS];
} loss_choice;

/* -1, or the exit code of a usage error. */
int loss_flags_check(const loss_flags *flags);
/* Checked flags. */
void loss_flags_fill(yoke_trainer_options *run, const loss_flags *flags, loss_choice *choice);

#endif
