/* SPDX-License-Identifier: Apache-2.0 */
/* --new-head, --ema, --patience and their neighbours: fine-tuning on the command line. */
#ifndef CLI_TUNING_FLAGS_H
#define CLI_TUNING_FLAGS_H

#include <stdbool.h>

#include "yoke/trainer.h"

typedef struct tuning_flags {
    int lr_patience, patience;
    int lr_find; /* steps; 0: no range test */
    double lr_gamma, min_delta, ema;
    bool new_head;
} tuning_flags;

/* -1, or the exit code of a usage error. */
int tuning_flags_check(const tuning_flags *flags);
/* Whether the run reads the test loss while it goes on. */
bool tuning_flags_watch(const tuning_flags *flags, int lr_schedule);
void tuning_flags_fill(yoke_trainer_options *run, const tuning_flags *flags);

#endif
