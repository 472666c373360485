/* SPDX-License-Identifier: Apache-2.0 */
/* --augment and its neighbours. */
#ifndef CLI_AUGMENT_FLAGS_H
#define CLI_AUGMENT_FLAGS_H

#include "yoke/trainer.h"

typedef struct augment_flags {
    int augment;
    const char *color_jitter; /* NULL: not given */
    double random_erasing, mixup;
} augment_flags;

/* -1, or the exit code of a usage error. */
int augment_flags_check(const augment_flags *flags);
/* Checked flags. */
void augment_flags_fill(yoke_trainer_options *run, const augment_flags *flags);

#endif
