/* SPDX-License-Identifier: Apache-2.0 */
/* The child has a process group, which is killed when the child ends. What has left the group
 * becomes a child of this process, a subreaper, and is killed, too. */
#include "cli/lesson/confined.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "cli/cli.h"

#define MEMORY_MOST ((rlim_t)4 << 30)
#define FILE_MOST ((rlim_t)256 << 20)
#define TASKS_MORE 256 /* beside those of the machine */
#define LOOK_NS 2000000
#define ROUNDS 1000 /* of killing what children of children start meanwhile */

static void limit(int resource, rlim_t most) {
    struct rlimit now;
    if (getrlimit(resource, &now) != 0) return;
    if (now.rlim_max > most) now.rlim_max = most;
    now.rlim_cur = now.rlim_max < most ? now.rlim_max : most;
    setrlimit(resource, &now);
}

/* The kernel counts all processes and threads of the user, which are not more than the machine's.
 * "0.20 0.18 0.12 1/80 11206": 80 there are. */
static void limit_tasks(void) {
    unsigned long tasks;
    FILE *load = fopen("/proc/loadavg", "re");
    if (load == NULL) return;
    if (fscanf(load, "%*s %*s %*s %*d/%lu", &tasks) == 1) limit(RLIMIT_NPROC, tasks + TASKS_MORE);
    fclose(load);
}

static void limit_child(void) {
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_FSIZE, FILE_MOST);
    limit_tasks();
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* whose shadows are larger */
    limit(RLIMIT_DATA, MEMORY_MOST);
#endif
}

static void become_child(const confined *place, pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
    setpgid(0, 0);
    limit_child();
    setenv("TMPDIR", place->folder, 1);
    signal(SIGTTOU, SIG_IGN); /* it is in the terminal's background */
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (nothing >= 0) dup2(nothing, STDIN_FILENO);
    dup2(STDERR_FILENO, STDOUT_FILENO);
}

/* false: the time is over. The child stays, so that nobody else gets its number. */
static bool await(pid_t pid, unsigned limit_s) {
    const struct timespec look = {.tv_nsec = LOOK_NS};
    uint64_t end_ns = yoke_now_ns() + limit_s * 1000000000ull;
    for (siginfo_t ended = {0}; ended.si_pid == 0; nanosleep(&look, NULL)) {
        if (waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOHANG | WNOWAIT) != 0 && errno != EINTR)
            return true;
        if (ended.si_pid == 0 && yoke_now_ns() > end_ns) return false;
    }
    return true;
}

/* Kills this process's children but the guard; false: there is none. */
static bool kill_orphans(pid_t guard) {
    int pid;
    bool found = false;
    FILE *children = fopen("/proc/thread-self/children", "re");
    while (children != NULL && fscanf(children, "%d", &pid) == 1) {
        if (pid == guard) continue;
        found = true;
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    if (children != NULL) fclose(children);
    return found;
}

int confined_begin(confined *place) {
    int code = launch_folder_make(place->folder, "exchange");
    if (code < 0) code = launch_guard_start(&place->guard, place->folder);
    if (code < 0) prctl(PR_SET_CHILD_SUBREAPER, 1);
    return code;
}

int confined_run(const confined *place, unsigned limit_s, void (*work)(void *context),
                 void *context, int *state, bool *late) {
    fflush(NULL);
    pid_t parent = getpid(), pid = fork();
    if (pid < 0) return cli_system_error("cannot start a process");
    if (pid == 0) {
        become_child(place, parent);
        work(context);
        _exit(0);
    }
    setpgid(pid, pid); /* before it is in the guard's list */
    launch_guard_add(&place->guard, pid);
    *late = !await(pid, limit_s);
    kill(-pid, SIGKILL);
    while (waitpid(pid, state, 0) < 0 && errno == EINTR)
        continue;
    launch_guard_remove(&place->guard, pid);
    for (int round = 0; round < ROUNDS && kill_orphans(place->guard.pid); round++)
        continue;
    return -1;
}

void confined_end(const confined *place) {
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    launch_guard_end(&place->guard);
}
