/* SPDX-License-Identifier: Apache-2.0 */
/* A process that outlives the launcher, even a killed one, and cleans up: it kills the workers'
 * process groups and removes the folder of their store. */
#ifndef CLI_LAUNCH_GUARD_H
#define CLI_LAUNCH_GUARD_H

#include <sys/types.h>

#define LAUNCH_FOLDER_BYTES 200

/* mkdtemp's template for a folder of the ranks of one machine: "/tmp/yoke-VERB-XXXXXX", or in
 * TMPDIR, if that is an absolute path that fits; without it, in XDG_RUNTIME_DIR if other users
 * could move folders of /tmp, or nobody can write there. folder: LAUNCH_FOLDER_BYTES. */
void launch_folder_template(char *folder, const char *verb);
/* Makes it, and removes those whose launcher and guard were killed. -1, or the exit code behind a
 * printed error. */
int launch_folder_make(char *folder, const char *verb);

typedef struct launch_guard {
    pid_t pid;
    int pipe; /* closes when the launcher ends */
    int lock; /* shows that the folder is in use; -1: none */
    const char *folder;
} launch_guard;

/* folder: removed with its content at the end; empty: none; must outlive the guard. -1, or the exit
 * code behind a printed error. */
int launch_guard_start(launch_guard *guard, const char *folder);
/* Process groups to kill at the end. */
void launch_guard_add(const launch_guard *guard, pid_t group);
void launch_guard_remove(const launch_guard *guard, pid_t group);
void launch_guard_end(const launch_guard *guard);

#endif
