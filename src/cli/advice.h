/* What to do after a run: commands that work as printed, from the same folder. */
#ifndef CLI_ADVICE_H
#define CLI_ADVICE_H

#include <stdbool.h>
#include <stdio.h>

typedef struct train_advice {
    char *const *command; /* the words the run was started with, the tool first; NULL ends them */
    const char *model, *dataset;
    const char *save, *trace; /* files the run wrote; NULL: none */
    bool repeatable;          /* the command alone starts the same run, without a launcher */
} train_advice;

void print_train_advice(FILE *out, const train_advice *run);

#endif
