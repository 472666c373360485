/* A process that outlives the launcher and clears up behind it, also when the launcher is killed:
 * what its workers started, and the folder they met in. */
#ifndef CLI_LAUNCH_GUARD_H
#define CLI_LAUNCH_GUARD_H

#include <sys/types.h>

typedef struct launch_guard {
    pid_t pid;
    int pipe; /* its end is the launcher's end */
    const char *folder;
} launch_guard;

/* folder: removed at the end with all that is in it; empty: none; must outlive the guard. -1;
 * otherwise the exit code. */
int launch_guard_start(launch_guard *guard, const char *folder);
/* Process groups to kill. */
void launch_guard_add(const launch_guard *guard, pid_t group);
void launch_guard_remove(const launch_guard *guard, pid_t group);
void launch_guard_end(const launch_guard *guard);

#endif
