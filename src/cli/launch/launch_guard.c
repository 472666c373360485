/* The guard sleeps on a pipe; the kernel closes the launcher's end however the launcher ends. */
#include "cli/launch/launch_guard.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/launch/launch.h"

void launch_folder_template(char *folder, const char *verb) {
    const char *place = getenv("TMPDIR");
    if (place == NULL || place[0] != '/') place = "/tmp";
    int length = snprintf(folder, LAUNCH_FOLDER_BYTES, "%s/yoke-%s-XXXXXX", place, verb);
    if (length >= LAUNCH_FOLDER_BYTES)
        snprintf(folder, LAUNCH_FOLDER_BYTES, "/tmp/yoke-%s-XXXXXX", verb);
}

int launch_folder_make(char *folder, const char *verb) {
    launch_folder_template(folder, verb);
    if (mkdtemp(folder) != NULL) return -1;
    fprintf(stderr, "yoke: %s: cannot create the folder: %s\n", folder, strerror(errno));
    return yoke_status_exit_code(YOKE_ERROR_IO);
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *where) {
    (void)status, (void)kind, (void)where;
    remove(path);
    return 0;
}

static void remove_folder(const char *folder) {
    if (folder[0] != '\0') nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* A positive group enters the list, a negative one leaves it. */
static void note(pid_t groups[LAUNCH_PROCESSES], pid_t group) {
    pid_t from = group > 0 ? 0 : -group, to = group > 0 ? group : 0;
    for (int i = 0; i < LAUNCH_PROCESSES; i++) {
        if (groups[i] != from) continue;
        groups[i] = to;
        return;
    }
}

/* Closes all that belongs to the launcher: nobody waits for a stream that this process holds. */
static void detach(int pipe) {
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
    detach(pipe);
    for (pid_t group;;) {
        ssize_t got = read(3, &group, sizeof group);
        if (got < 0 && errno == EINTR) continue;
        if (got != (ssize_t)sizeof group) break;
        note(groups, group);
    }
    for (int i = 0; i < LAUNCH_PROCESSES; i++)
        if (groups[i] > 0) kill(-groups[i], SIGKILL);
    remove_folder(folder);
    _exit(0);
}

int launch_guard_start(launch_guard *guard, const char *folder) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return cli_system_error("cannot create a pipe");
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

static void send_group(const launch_guard *guard, pid_t group) {
    if (write(guard->pipe, &group, sizeof group) < 0)
        return; /* the guard is gone; PDEATHSIG still kills the workers */
}

void launch_guard_add(const launch_guard *guard, pid_t group) {
    send_group(guard, group);
}

void launch_guard_remove(const launch_guard *guard, pid_t group) {
    send_group(guard, -group);
}

void launch_guard_end(const launch_guard *guard) {
    if (guard->pid <= 0) return;
    close(guard->pipe);
    waitpid(guard->pid, NULL, 0);
    remove_folder(guard->folder); /* in case the guard was killed */
}
