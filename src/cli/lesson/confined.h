/* SPDX-License-Identifier: Apache-2.0 */
/* A student's program runs as the user, in a process of its own with limits: of time, of memory, of
 * the size of a file and of the number of processes. What it starts ends with it. */
#ifndef CLI_CONFINED_H
#define CLI_CONFINED_H

#include <stdbool.h>

#include "cli/launch/launch_guard.h"

typedef struct confined {
    char folder[LAUNCH_FOLDER_BYTES]; /* the process has it as TMPDIR */
    launch_guard guard;
} confined;

/* Makes the folder. -1, or the exit code behind a printed error. */
int confined_begin(confined *place);
/* Runs `work` in a child: without input, its output goes to stderr. Kills the child after so many
 * seconds, and then all that it has started. *state is waitpid's; *late: the time was over. -1, or
 * the exit code behind a printed error. */
int confined_run(const confined *place, unsigned limit_s, void (*work)(void *context),
                 void *context, int *state, bool *late);
/* Removes the folder; also happens where this process is killed, with the child. */
void confined_end(const confined *place);

#endif
