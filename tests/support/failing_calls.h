/* SPDX-License-Identifier: Apache-2.0 */
/* File calls that fail, stop half way or kill the process: a program linked with --wrap for each
 * call of CALL_TABLE (tests/CMakeLists.txt) plans one of them. Only calls on files of `place`
 * count. */
#ifndef FAILING_CALLS_H
#define FAILING_CALLS_H

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define CALL_TABLE(X)                                                                              \
    X(OPEN, "open")                                                                                \
    X(OPENAT, "openat")                                                                            \
    X(WRITE, "write")                                                                              \
    X(FSYNC, "fsync")                                                                              \
    X(CLOSE, "close")                                                                              \
    X(LINKAT, "linkat")                                                                            \
    X(RENAMEAT, "renameat")                                                                        \
    X(UNLINK, "unlink")                                                                            \
    X(FALLOCATE, "fallocate")
#define CALL_ENUMERATOR(name, text) CALL_##name,
#define CALL_NAME(name, text) text,
typedef enum call_kind { CALL_TABLE(CALL_ENUMERATOR) CALLS } call_kind;
static const char *const call_names[] = {CALL_TABLE(CALL_NAME)};

typedef enum fault_kind {
    NONE,
    KILL_BEFORE,
    KILL_AFTER,
    KILL_HALFWAY,
    FAIL_CALL,
    SHORT
} fault_kind;
typedef struct fault {
    const char *name;
    fault_kind kind;
    int cause;    /* errno of FAIL_CALL */
    bool forever; /* all later calls of the place fail, too: a disk that is dead or full */
} fault;

/* The fault at call number `at` of a kind. */
static struct {
    bool armed, failed;
    const char *place;
    call_kind kind;
    fault fault;
    int at;
} plan;
static int *counts; /* [CALLS], shared with a parent */

static bool begins(const char *path) {
    return plan.place == NULL || strncmp(path, plan.place, strlen(plan.place)) == 0;
}

/* Whether `path`, seen from the folder `at`, is in the place; without a path: the file `at`. */
static bool is_in_place(int at, const char *path) {
    char link[64], place[PATH_MAX] = "";
    if (path != NULL && (at == AT_FDCWD || path[0] == '/')) return begins(path);
    snprintf(link, sizeof link, "/proc/self/fd/%d", at);
    return readlink(link, place, sizeof place - 1) > 0 && begins(place);
}

static fault_kind fault_of(call_kind kind, int at, const char *path) {
    if (!plan.armed || !is_in_place(at, path)) return NONE;
    int number = counts[kind]++;
    bool now = kind == plan.kind && number == plan.at;
    bool later = plan.failed && plan.fault.forever && kind != CALL_CLOSE;
    if (!now && !later) return NONE;
    plan.failed = true;
    return plan.fault.kind;
}

/* True when the call must fail. */
static bool fails(fault_kind now) {
    if (now == KILL_BEFORE) raise(SIGKILL);
    if (now == FAIL_CALL) errno = plan.fault.cause;
    return now == FAIL_CALL;
}

static int after(fault_kind now, int result) {
    if (now == KILL_AFTER || now == KILL_HALFWAY) raise(SIGKILL);
    return result;
}

#define WRAP(name) __wrap_##name
#define REAL(name) __real_##name
#define WRAPPED(result, name, ...)                                                                 \
    result REAL(name)(__VA_ARGS__);                                                                \
    result WRAP(name)(__VA_ARGS__);                                                                \
    result WRAP(name)(__VA_ARGS__)

static mode_t mode_of(int flags, va_list rest) {
    return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
}

WRAPPED(int, open, const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = mode_of(flags, rest);
    va_end(rest);
    fault_kind now = fault_of(CALL_OPEN, AT_FDCWD, path);
    return fails(now) ? -1 : after(now, REAL(open)(path, flags, mode));
}

WRAPPED(int, openat, int folder, const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = mode_of(flags, rest);
    va_end(rest);
    fault_kind now = fault_of(CALL_OPENAT, folder, path);
    return fails(now) ? -1 : after(now, REAL(openat)(folder, path, flags, mode));
}

WRAPPED(int, fsync, int descriptor) {
    fault_kind now = fault_of(CALL_FSYNC, descriptor, NULL);
    return fails(now) ? -1 : after(now, REAL(fsync)(descriptor));
}

WRAPPED(int, fallocate, int descriptor, int mode, off_t offset, off_t bytes) {
    fault_kind now = fault_of(CALL_FALLOCATE, descriptor, NULL);
    return fails(now) ? -1 : after(now, REAL(fallocate)(descriptor, mode, offset, bytes));
}

/* A close that fails has closed. */
WRAPPED(int, close, int descriptor) {
    fault_kind now = fault_of(CALL_CLOSE, descriptor, NULL);
    bool failed = fails(now);
    int cause = errno, closed = after(now, REAL(close)(descriptor));
    errno = cause;
    return failed ? -1 : closed;
}

WRAPPED(int, linkat, int from, const char *old, int to, const char *name, int flags) {
    fault_kind now = fault_of(CALL_LINKAT, to, name);
    return fails(now) ? -1 : after(now, REAL(linkat)(from, old, to, name, flags));
}

WRAPPED(int, renameat, int from, const char *old, int to, const char *name) {
    fault_kind now = fault_of(CALL_RENAMEAT, to, name);
    return fails(now) ? -1 : after(now, REAL(renameat)(from, old, to, name));
}

WRAPPED(int, unlink, const char *path) {
    fault_kind now = fault_of(CALL_UNLINK, AT_FDCWD, path);
    return fails(now) ? -1 : after(now, REAL(unlink)(path));
}

/* Part of a write may reach the file before the rest fails. */
WRAPPED(ssize_t, write, int descriptor, const void *data, size_t bytes) {
    fault_kind now = fault_of(CALL_WRITE, descriptor, NULL);
    bool part = now == SHORT || now == KILL_HALFWAY;
    if (fails(now)) {
        int cause = errno;
        (void)!REAL(write)(descriptor, data, bytes / 2);
        errno = cause;
        return -1;
    }
    ssize_t written = REAL(write)(descriptor, data, part && bytes > 1 ? bytes / 2 : bytes);
    (void)after(now, 0);
    return written;
}

#endif
