/* SPDX-License-Identifier: Apache-2.0 */
/* --new-head, --ema, --patience and their neighbours: fine-tuning on the command line. */
#ifndef CLI_TUNING_FLAGS_H
#define CLI_TUNING_FLAGS_H

#include <math.h>
#include <stddef.h>

#include "cli/arguments.h"
#include "yoke/trainer.h"

typedef struct tuning_flags {
    int lr_patience, patience;
    int lr_find; /* steps; 0: no range test */
    double lr_gamma, min_delta, ema;
    bool new_head;
} tuning_flags;

/* `at`: the offset of a tuning_flags. */
#define CLI_OPTIONS_TUNING(at)                                                                     \
    {"new-head",                                                                                   \
     NULL,                                                                                         \
     "start the last linear layer anew, whatever --init has: for other classes",                   \
     CLI_FLAG,                                                                                     \
     (at) + offsetof(tuning_flags, new_head),                                                      \
     0,                                                                                            \
     0},                                                                                           \
        {"lr-gamma",                                                                               \
         "X",                                                                                      \
         "exponential: factor of each epoch (0.95); plateau: of each reduction (0.1)",             \
         CLI_REAL,                                                                                 \
         (at) + offsetof(tuning_flags, lr_gamma),                                                  \
         1e-12,                                                                                    \
         1},                                                                                       \
        {"lr-patience",                                                                            \
         "N",                                                                                      \
         "plateau: evaluations without a better test loss before a reduction (10)",                \
         CLI_INTEGER,                                                                              \
         (at) + offsetof(tuning_flags, lr_patience),                                               \
         0,                                                                                        \
         1 << 20},                                                                                 \
        {"lr-find",                                                                                \
         "[STEPS=100]",                                                                            \
         "do not train: try rates from 1e-7 to 10 in so many steps, and suggest one for --lr",     \
         CLI_INTEGER,                                                                              \
         (at) + offsetof(tuning_flags, lr_find),                                                   \
         20,                                                                                       \
         1000000},                                                                                 \
        {"ema",                                                                                    \
         "DECAY",                                                                                  \
         "average the weights over the steps, as in 0.999; evaluations and --save use it",         \
         CLI_REAL,                                                                                 \
         (at) + offsetof(tuning_flags, ema),                                                       \
         0,                                                                                        \
         0.9999999},                                                                               \
        {"patience",                                                                               \
         "N",                                                                                      \
         "stop after N evaluations without a better test loss, with the best weights (never)",     \
         CLI_INTEGER,                                                                              \
         (at) + offsetof(tuning_flags, patience),                                                  \
         1,                                                                                        \
         1 << 20},                                                                                 \
    {                                                                                              \
        "min-delta", "X", "for --patience: how much lower a better test loss is (0)", CLI_REAL,    \
            (at) + offsetof(tuning_flags, min_delta), 0, INFINITY                                  \
    }

/* -1, or the exit code of a usage error. */
int tuning_flags_check(const tuning_flags *flags);
/* Whether the run reads the test loss while it goes on. */
bool tuning_flags_watch(const tuning_flags *flags, int lr_schedule);
void tuning_flags_fill(yoke_trainer_options *run, const tuning_flags *flags);

#endif
