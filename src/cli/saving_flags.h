/* SPDX-License-Identifier: Apache-2.0 */
/* --checkpoint-dir, --resume and their neighbours: checkpoints on the command line. */
#ifndef CLI_SAVING_FLAGS_H
#define CLI_SAVING_FLAGS_H

#include <stdbool.h>

#include "yoke/trainer.h"

/* What the user typed; NULL or 0: not given. */
typedef struct saving_flags {
    const char *dir, *every, *resume, *resume_anyway;
    int keep;
    bool keep_best, force;
} saving_flags;

/* What the other options must not contradict. */
typedef struct saving_context {
    const char *init;
    int evaluate_every;
} saving_context;

/* The files of a run beside its checkpoints; NULL: not given. */
typedef struct saving_files {
    const char *save, *metrics, *trace, *report;   /* written */
    const char *init, *choices, *config, *dataset; /* read */
} saving_files;

/* Before anything is trained: refuses to replace weights that exist, and says which measurements of
 * an earlier run give way; not where the run may do so, or goes on from a checkpoint and the files
 * may be its own. Every rank checks, so that none waits for another that has left; the one that
 * `speaks` prints. -1, or the exit code. */
int saving_flags_check_replaced(const saving_flags *flags, const saving_files *files, bool speaks,
                                bool quiet);
/* Before a byte is written: no file is written twice, or written and read, save that --save may
 * replace the weights of --init. As above every rank checks, and one speaks. */
int saving_flags_check_apart(const saving_flags *flags, const saving_files *files, bool speaks);
/* -1, or the exit code of a usage error. */
int saving_flags_check(const saving_flags *flags, const saving_context *context);
/* Whether they say --resume auto. */
bool saving_flags_are_auto(const saving_flags *flags);
/* Checked flags. A restarted process resumes by itself. */
void saving_flags_fill(yoke_trainer_options *run, const saving_flags *flags);

#endif
