/* SPDX-License-Identifier: Apache-2.0 */
/* Commands to go on with after a run; each works as printed, from the same folder. */
#ifndef CLI_TRAIN_ADVICE_H
#define CLI_TRAIN_ADVICE_H

#include "cli/train_options.h"

typedef struct train_advice {
    const train_setup *setup;
    char *const *command; /* the words that started the run, the tool first; NULL ends them */
    bool repeatable;      /* the command alone starts the same run, without a launcher */
} train_advice;
void print_train_advice(FILE *out, const train_advice *run);

#endif
