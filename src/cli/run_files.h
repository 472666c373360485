/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a run of yoke train: what may be replaced, and what a run goes on from. */
#ifndef CLI_RUN_FILES_H
#define CLI_RUN_FILES_H

#include "cli/train_options.h"

/* Before anything is trained or a byte is written: no file is written twice, or written and read,
 * save that --save may replace the weights of --init. Refuses to replace weights that exist, and
 * says which measurements of an earlier run give way; not where the run may do so, or goes on from
 * a checkpoint and the files may be its own. Every rank checks, so that none waits for another that
 * has left; the one that `speaks` prints. -1, or the exit code of a usage error. */
int run_files_check(const train_setup *setup, bool speaks);
/* A process that its launcher starts again resumes by itself. */
void run_files_resume(yoke_trainer_options *run);

#endif
