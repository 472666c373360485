/* SPDX-License-Identifier: Apache-2.0 */
/* yoke train --lr-find: what the command may say, and what it prints. */
#ifndef CLI_RANGE_TEST_H
#define CLI_RANGE_TEST_H

#include <stdio.h>

#include "yoke/lr_find.h"

/* Whether the other options of the command go with --lr-find. -1, or the exit code of a usage
 * error.
 */
int range_test_check(int argc, char **argv);
/* Leaves out what a recipe or a file says of a whole run: its files, schedule and evaluations. */
void range_test_fill(yoke_trainer_options *run, yoke_data_parallel_options *engine);

yoke_status range_test_run(yoke_trainer *trainer, int steps, yoke_lr_find_result *found);
/* On stdout: some points, the curve and the suggestion; quiet: the suggestion alone. json: all
 * points as JSON, and those on stderr unless quiet. */
yoke_status range_test_report(yoke_trainer *trainer, const yoke_lr_find_result *found, bool json,
                              bool quiet);
/* The command that trains at the suggested rate. launched: a launcher started it. */
void range_test_print_next(FILE *out, const yoke_lr_find_result *found, char *const *command,
                           bool launched);

#endif
