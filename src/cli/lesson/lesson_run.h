/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the commands of a lesson by this tool itself. */
#ifndef CLI_LESSON_RUN_H
#define CLI_LESSON_RUN_H

#include "cli/lesson/lesson.h"

/* Runs all commands in a new folder, which goes afterwards; their JSON goes to results, which the
 * caller frees with json_decref, also after a failure. On a terminal their progress is shown. -1,
 * or the exit code behind a printed error. */
int lesson_run(const lesson_row *lesson, json_t *results[LESSON_COMMANDS]);
/* Runs the command to look at, on the terminal. The same. */
int lesson_look(const lesson_row *lesson);

#endif
