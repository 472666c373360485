/* It sleeps on a pipe whose other end only the launcher has: the kernel closes that on every path.
 */
#include "launch_guard.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli.h"
#include "launch.h"

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *where) {
    (void)status, (void)kind, (void)where;
    remove(path);
    return 0;
}

static void remove_folder(const char *folder) {
    if (folder[0] != '\0') nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void note(pid_t groups[LAUNCH_PROCESSES], pid_t told) {
    pid_t from = told > 0 ? 0 : -told, to = told > 0 ? told : 0;
    for (int i = 0; i < LAUNCH_PROCESSES; i++) {
        if (groups[i] != from) continue;
        groups[i] = to;
        return;
    }
}

/* Nothing of the launcher's stays open, so nobody waits for this process. */
static void let_go(int pipe) {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    setsid();
    prctl(PR_SET_NAME, "yoke-guard");
    int nothing = open("/dev/null", O_RDWR);
    for (int i = 0; i < 3; i++)
        dup2(nothing, i);
    dup2(pipe, 3);
    close_range(4, ~0U, 0);
}

static void watch(int pipe, const char *folder) {
    static pid_t groups[LAUNCH_PROCESSES];
    let_go(pipe);
    for (pid_t told;;) {
        ssize_t got = read(3, &told, sizeof told);
        if (got < 0 && errno == EINTR) continue;
        if (got != (ssize_t)sizeof told) break;
        note(groups, told);
    }
    for (int i = 0; i < LAUNCH_PROCESSES; i++)
        if (groups[i] > 0) kill(-groups[i], SIGKILL);
    remove_folder(folder);
    _exit(0);
}

int launch_guard_start(launch_guard *guard, const char *folder) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return cli_system_error("cannot make a pipe");
    guard->folder = folder;
    guard->pid = fork();
    if (guard->pid == 0) {
        close(ends[1]);
        watch(ends[0], folder);
    }
    close(ends[0]);
    guard->pipe = ends[1];
    return guard->pid < 0 ? cli_system_error("cannot start a process") : -1;
}

static void tell(const launch_guard *guard, pid_t group) {
    if (write(guard->pipe, &group, sizeof group) < 0) return; /* it is gone: PDEATHSIG remains */
}

void launch_guard_add(const launch_guard *guard, pid_t group) {
    tell(guard, group);
}

void launch_guard_remove(const launch_guard *guard, pid_t group) {
    tell(guard, -group);
}

void launch_guard_end(const launch_guard *guard) {
    if (guard->pid <= 0) return;
    close(guard->pipe);
    waitpid(guard->pid, NULL, 0);
    remove_folder(guard->folder); /* it may have been killed */
}
