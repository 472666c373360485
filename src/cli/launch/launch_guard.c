/* SPDX-License-Identifier: Apache-2.0 */
/* The guard sleeps on a pipe; the kernel closes the launcher's end however the launcher ends. */
#include "cli/launch/launch_guard.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/launch/launch.h"

/* Folders. They lie in TMPDIR, else in the first of /tmp, XDG_RUNTIME_DIR, /dev/shm and /var/tmp
 * that one can write to: a logout empties XDG_RUNTIME_DIR, and a run may outlive it. Launcher and
 * guard share the lock of a file in the folder. If both were killed, the next launcher removes the
 * folder. */

#define LOCK_PREFIX "launcher-" /* and the host: locks of another host's processes do not show */
#define LOCK_BYTES 80
#define STALE_S 60 /* older than the moment between a lock's making and its taking */

static void name_lock(char name[LOCK_BYTES]) {
    char host[64] = "";
    gethostname(host, sizeof host - 1);
    snprintf(name, LOCK_BYTES, LOCK_PREFIX "%s", host);
}

static const char *path_in(const char *variable) {
    const char *path = getenv(variable);
    return path != NULL && path[0] == '/' ? path : NULL;
}

/* Where others may write, only the sticky bit keeps them from moving this user's folders. */
static bool is_safe(const char *place) {
    struct stat found;
    return stat(place, &found) == 0 && access(place, W_OK) == 0 &&
           ((found.st_mode & 022) == 0 || (found.st_mode & S_ISVTX) != 0);
}

static const char *choose_place(void) {
    const char *given = path_in("TMPDIR");
    const char *const places[] = {"/tmp", path_in("XDG_RUNTIME_DIR"), "/dev/shm", "/var/tmp"};
    if (given != NULL) return given;
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        if (places[i] != NULL && is_safe(places[i])) return places[i];
    return "/tmp";
}

void launch_folder_template(char *folder, const char *verb) {
    int length = snprintf(folder, LAUNCH_FOLDER_BYTES, "%s/yoke-%s-XXXXXX", choose_place(), verb);
    if (length >= LAUNCH_FOLDER_BYTES)
        snprintf(folder, LAUNCH_FOLDER_BYTES, "/tmp/yoke-%s-XXXXXX", verb);
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *where) {
    (void)status, (void)kind, (void)where;
    remove(path);
    return 0;
}

static void remove_folder(const char *folder) {
    if (folder[0] != '\0') nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static bool is_name(const char *name, const char *verb) {
    char start[32];
    int length = snprintf(start, sizeof start, "yoke-%s-", verb);
    return strncmp(name, start, (size_t)length) == 0 && strlen(name) == (size_t)length + 6;
}

/* Whether a launcher of this user and host made the folder, and it and its guard have ended. */
static bool is_stale(int place, const char *name) {
    char path[LOCK_BYTES + 256], lock_name[LOCK_BYTES];
    struct stat folder, lock;
    name_lock(lock_name);
    snprintf(path, sizeof path, "%.200s/%s", name, lock_name);
    if (fstatat(place, name, &folder, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(folder.st_mode) ||
        folder.st_uid != geteuid() || (folder.st_mode & 077) != 0)
        return false;
    int descriptor = openat(place, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (descriptor < 0) return false;
    bool stale = fstat(descriptor, &lock) == 0 && lock.st_mtime < time(NULL) - STALE_S &&
                 flock(descriptor, LOCK_EX | LOCK_NB) == 0;
    close(descriptor);
    return stale;
}

static void remove_stale(const char *verb) {
    const char *place = choose_place();
    char path[4096];
    DIR *list = opendir(place);
    if (list == NULL) return;
    for (struct dirent *each; (each = readdir(list)) != NULL;) {
        if (!is_name(each->d_name, verb) || !is_stale(dirfd(list), each->d_name)) continue;
        if (snprintf(path, sizeof path, "%s/%s", place, each->d_name) < (int)sizeof path)
            remove_folder(path);
    }
    closedir(list);
}

int launch_folder_make(char *folder, const char *verb) {
    launch_folder_template(folder, verb);
    if (mkdtemp(folder) != NULL) {
        remove_stale(verb);
        return -1;
    }
    fprintf(stderr, "yoke: %s: cannot create the folder: %s\n", folder, strerror(errno));
    return yoke_status_exit_code(YOKE_ERROR_IO);
}

/* The open lock file; -1: there is none, and nobody removes the folder later. */
static int lock_folder(const char *folder) {
    char path[LAUNCH_FOLDER_BYTES + LOCK_BYTES], name[LOCK_BYTES];
    if (folder[0] == '\0') return -1;
    name_lock(name);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int descriptor = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (descriptor >= 0) flock(descriptor, LOCK_SH | LOCK_NB);
    return descriptor;
}

/* Processes. */

/* A positive group enters the list, a negative one leaves it. */
static void note(pid_t groups[LAUNCH_PROCESSES], pid_t group) {
    pid_t from = group > 0 ? 0 : -group, to = group > 0 ? group : 0;
    for (int i = 0; i < LAUNCH_PROCESSES; i++) {
        if (groups[i] != from) continue;
        groups[i] = to;
        return;
    }
}

/* As closefrom, which came with glibc 2.34. */
static void close_from(int first) {
    DIR *list = opendir("/proc/self/fd");
    for (const struct dirent *entry; list != NULL && (entry = readdir(list)) != NULL;) {
        int descriptor = atoi(entry->d_name); /* "." and ".." are 0 */
        if (descriptor >= first && descriptor != dirfd(list)) close(descriptor);
    }
    if (list != NULL) closedir(list);
}

/* Closes all that belongs to the launcher: nobody waits for a stream that this process holds. */
static void detach(int pipe, int lock) {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    setsid();
    prctl(PR_SET_NAME, "yoke-guard");
    int nothing = open("/dev/null", O_RDWR);
    for (int i = 0; i < 3; i++)
        dup2(nothing, i);
    /* Neither may lie in the other's place. */
    int own_pipe = fcntl(pipe, F_DUPFD_CLOEXEC, 5), own_lock = fcntl(lock, F_DUPFD_CLOEXEC, 5);
    dup2(own_pipe, 3);
    if (dup2(own_lock, 4) < 0) close(4); /* there is no lock */
    close_from(5);
}

static void watch(int pipe, const launch_guard *guard) {
    static pid_t groups[LAUNCH_PROCESSES];
    detach(pipe, guard->lock);
    for (pid_t group;;) {
        ssize_t got = read(3, &group, sizeof group);
        if (got < 0 && errno == EINTR) continue;
        if (got != (ssize_t)sizeof group) break;
        note(groups, group);
    }
    for (int i = 0; i < LAUNCH_PROCESSES; i++)
        if (groups[i] > 0) kill(-groups[i], SIGKILL);
    remove_folder(guard->folder);
    _exit(0);
}

int launch_guard_start(launch_guard *guard, const char *folder) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return cli_system_error("cannot create a pipe");
    guard->folder = folder;
    guard->lock = lock_folder(folder);
    guard->pid = fork();
    if (guard->pid == 0) {
        close(ends[1]);
        watch(ends[0], guard);
    }
    close(ends[0]);
    guard->pipe = ends[1];
    if (guard->pid >= 0) return -1;
    int code = cli_system_error("cannot start a process");
    remove_folder(folder);
    return code;
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
    if (guard->lock >= 0) close(guard->lock);
}
