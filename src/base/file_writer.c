/* SPDX-License-Identifier: Apache-2.0 */
/* A reader of the target sees the old file or the whole new one, never a part. The new file has no
 * name while it is written, so that nothing stays behind a kill; commit syncs it, gives it a random
 * name beside the target, renames it over the target and syncs the folder, so that file and name
 * survive a power cut. */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/sink.h"

#define LINKS_MAX 40  /* as the kernel's */
#define TAIL_BYTES 21 /* ".tmp." and 16 digits */
#define NAME_TRIES 8
#define RESERVE_TRIES 10

yoke_file_target yoke_target_path(const char *path) {
    return (yoke_file_target){.path = path};
}

void yoke_file_abort(yoke_file_writer *writer) {
    if (writer->kind != NULL) writer->kind->abort(writer);
    *writer = (yoke_file_writer){.descriptor = -1, .folder = -1};
}

static void abort_file(yoke_file_writer *writer) {
    if (writer->descriptor >= 0) close(writer->descriptor);
    if (writer->named) unlinkat(writer->folder, writer->temporary, 0);
    if (writer->folder >= 0) close(writer->folder);
    yoke_free(writer->path);
}

/* Closes the file; `status` is that of the failure, whose text is written. */
static yoke_status close_failed(yoke_file_writer *writer, yoke_status status) {
    yoke_file_abort(writer);
    return status;
}

static yoke_status fail_writer(yoke_file_writer *writer, const char *action, int cause) {
    yoke_status status =
        FAIL(YOKE_ERROR_IO, "%s: cannot %s: %s%s", writer->path, action, strerror(cause),
             cause == ENOSPC || cause == EDQUOT ? "; free some space and save again" : "");
    return close_failed(writer, status);
}

/* Opening. */

/* The folder that `path` lies in, and its last part. -1 and errno. One may write to a folder that
 * one may not read; it cannot be synced. */
static int open_folder(int from, const char *path, char name[NAME_MAX + 1]) {
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/'), *last = slash != NULL ? slash + 1 : path;
    size_t length = slash != NULL ? (size_t)(last - path) : 1;
    errno = *last == '\0' ? EISDIR : ENAMETOOLONG;
    if (*last == '\0' || strlen(last) > NAME_MAX || length >= sizeof folder) return -1;
    memcpy(folder, slash != NULL ? path : ".", length);
    folder[length] = '\0';
    memmove(name, last, strlen(last) + 1);
    int opened = openat(from, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (opened >= 0 || errno != EACCES) return opened;
    return openat(from, folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* The kernel's rule (fs.protected_symlinks): in a folder that everybody may write to, as /tmp, a
 * link of a stranger leads nowhere. */
static bool may_follow(int folder, const char *name) {
    struct stat around, link;
    if (fstat(folder, &around) != 0 || fstatat(folder, name, &link, AT_SYMLINK_NOFOLLOW) != 0)
        return false;
    bool shared = (around.st_mode & S_ISVTX) != 0 && (around.st_mode & S_IWOTH) != 0;
    return !shared || link.st_uid == geteuid() || link.st_uid == around.st_uid;
}

/* Follows links to the file that they lead to, which need not exist, and opens its folder. 0, or
 * errno. */
static int find_target(yoke_file_writer *writer) {
    char path[PATH_MAX];
    if (strlen(writer->path) >= sizeof path) return ENAMETOOLONG;
    memcpy(path, writer->path, strlen(writer->path) + 1);
    for (int links = 0; links < LINKS_MAX; links++) {
        int from = writer->folder;
        writer->folder = open_folder(from >= 0 ? from : AT_FDCWD, path, writer->name);
        int cause = writer->folder >= 0 ? 0 : errno;
        if (from >= 0) close(from);
        if (cause != 0) return cause;
        ssize_t length = readlinkat(writer->folder, writer->name, path, sizeof path - 1);
        if (length < 0) return 0; /* no link */
        if (!may_follow(writer->folder, writer->name)) return EACCES;
        path[length] = '\0';
    }
    return ELOOP;
}

/* Whether the name that was found is that of the file at the path. /proc/self/fd/N may lead to a
 * file that has lost its name, or never had one. Another process may replace the file between the
 * two looks, but not each time. */
static bool has_name(const yoke_file_writer *writer) {
    struct stat file, named;
    for (int tries = 0; tries < NAME_TRIES; tries++) {
        if (stat(writer->path, &file) != 0) return true; /* a new file */
        if (fstatat(writer->folder, writer->name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
            file.st_dev == named.st_dev && file.st_ino == named.st_ino)
            return true;
    }
    return false;
}

int yoke_file_append(const char *path) {
    struct stat file;
    yoke_file_writer at = {.path = (char *)path, .descriptor = -1, .folder = -1};
    int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    /* The name of an open pipe under /proc leads to no file. */
    if (stat(path, &file) == 0 && !S_ISREG(file.st_mode)) return open(path, flags, 0666);
    int cause = find_target(&at), descriptor = -1;
    if (cause == 0 && !has_name(&at)) { /* it is open already: its bytes go where they are read */
        descriptor = open(path, flags & ~O_CREAT);
        cause = errno;
    } else if (cause == 0) {
        descriptor = openat(at.folder, at.name, flags | O_NOFOLLOW, 0666);
        cause = errno;
    }
    if (at.folder >= 0) close(at.folder);
    errno = cause;
    return descriptor;
}

int yoke_file_check_links(const char *path) {
    yoke_file_writer at = {.path = (char *)path, .descriptor = -1, .folder = -1};
    int cause = find_target(&at);
    if (at.folder >= 0) close(at.folder);
    return cause;
}

/* A name that nobody can guess: who made it first could have the file's content, or stop us. */
static int draw_name(yoke_file_writer *writer) {
    uint64_t number;
    if (getentropy(&number, sizeof number) != 0) return errno;
    snprintf(writer->temporary, sizeof writer->temporary, "%.*s.tmp.%016jx", NAME_MAX - TAIL_BYTES,
             writer->name, (uintmax_t)number);
    return 0;
}

static int open_named(yoke_file_writer *writer) {
    int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, cause = EEXIST;
    for (int tries = 0; cause == EEXIST && tries < NAME_TRIES; tries++) {
        cause = draw_name(writer);
        if (cause != 0) return cause;
        writer->descriptor = openat(writer->folder, writer->temporary, flags, 0666);
        cause = writer->descriptor < 0 ? errno : 0;
    }
    writer->named = cause == 0;
    return cause;
}

static void self_path(const yoke_file_writer *writer, char path[40]) {
    snprintf(path, 40, "/proc/self/fd/%d", writer->descriptor);
}

/* Makes the file without a name; where that is not possible, with a random one. 0, or errno. */
static int open_temporary(yoke_file_writer *writer) {
    char self[40];
    /* O_RDWR: commit may have to copy it. */
    writer->descriptor = openat(writer->folder, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, 0666);
    if (writer->descriptor < 0) return open_named(writer);
    self_path(writer, self);
    if (access(self, F_OK) == 0) return draw_name(writer);
    close(writer->descriptor); /* no /proc, through which it would get its name */
    writer->descriptor = -1;
    return open_named(writer);
}

static yoke_status open_file(yoke_file_writer *writer) {
    struct stat old;
    int cause = find_target(writer);
    if (cause == 0 && !has_name(writer))
        return close_failed(
            writer, FAIL(YOKE_ERROR_ARGUMENT,
                         "%s leads to a file without a name (of memfd_create, or deleted), which a "
                         "whole new file cannot replace: save to a path in a folder, as in "
                         "/dev/shm, and read it from there",
                         writer->path));
    if (cause == 0) cause = open_temporary(writer);
    if (cause != 0) return fail_writer(writer, "create a file in its directory", cause);
    if (fstatat(writer->folder, writer->name, &old, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISREG(old.st_mode) && fchmod(writer->descriptor, old.st_mode & 0777) != 0)
        return fail_writer(writer, "take over the old file's permissions", errno);
    return YOKE_OK;
}

/* Renaming a file over a terminal, a pipe or /dev/null would replace it. */
static yoke_status open_in_place(yoke_file_writer *writer) {
    int flags = O_WRONLY | O_CLOEXEC | O_NOCTTY;
    writer->descriptor = open(writer->path, flags | O_NONBLOCK);
    if (writer->descriptor < 0 && errno == ENXIO)
        return close_failed(writer,
                            FAIL(YOKE_ERROR_IO, "%s: nobody reads from this pipe", writer->path));
    if (writer->descriptor < 0 || fcntl(writer->descriptor, F_SETFL, flags) != 0)
        return fail_writer(writer, "open", errno);
    return YOKE_OK;
}

/* Whether the path leads to something that is neither a file nor a folder. */
static bool is_in_place(const char *path, mode_t *mode) {
    struct stat file;
    if (stat(path, &file) != 0 || S_ISREG(file.st_mode) || S_ISDIR(file.st_mode)) return false;
    *mode = file.st_mode;
    return true;
}

/* Writing. */

/* What this process may still take of the disk; UINTMAX_MAX where the file system does not say. */
static uintmax_t free_bytes(const yoke_file_writer *writer) {
    struct statvfs disk;
    if (fstatvfs(writer->descriptor, &disk) != 0 || disk.f_blocks == 0) return UINTMAX_MAX;
    return (uintmax_t)(geteuid() == 0 ? disk.f_bfree : disk.f_bavail) * disk.f_frsize;
}

static yoke_status fail_space(yoke_file_writer *writer, size_t bytes, uintmax_t room, int cause) {
    char left[64] = "";
    if (room < UINTMAX_MAX) snprintf(left, sizeof left, ", and %ju are free on its disk", room);
    yoke_status status = FAIL(YOKE_ERROR_IO, "%s: needs %zu bytes%s: %s; free some space",
                              writer->path, bytes, left, strerror(cause));
    return close_failed(writer, status);
}

/* fallocate beyond the limit would raise SIGXFSZ. */
static yoke_status check_limit(yoke_file_writer *writer, size_t bytes) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        bytes <= limit.rlim_cur)
        return YOKE_OK;
    yoke_status status = FAIL(YOKE_ERROR_IO,
                              "%s: needs %zu bytes, and no file may have more than %ju: raise the "
                              "limit, ulimit -f",
                              writer->path, bytes, (uintmax_t)limit.rlim_cur);
    return close_failed(writer, status);
}

static yoke_status reserve(yoke_file_writer *writer, size_t bytes) {
    if (bytes == 0) return YOKE_OK;
    TRY(check_limit(writer, bytes));
    uintmax_t room = free_bytes(writer);
    /* fallocate would take all that is left before it fails, from other programs, too. */
    if (bytes > room) return fail_space(writer, bytes, room, ENOSPC);
    int failed, tries = 0;
    do /* on tmpfs each of a profiler's signals makes it begin anew */
        failed = fallocate(writer->descriptor, 0, 0, (off_t)bytes);
    while (failed != 0 && errno == EINTR && ++tries < RESERVE_TRIES);
    if (failed == 0 || (errno != ENOSPC && errno != EDQUOT && errno != EFBIG)) return YOKE_OK;
    return fail_space(writer, bytes, room, errno);
}

static yoke_status write_file(yoke_file_writer *writer, const void *data, size_t bytes) {
    const unsigned char *next = data;
    while (bytes > 0) {
        ssize_t written = write(writer->descriptor, next, bytes);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return fail_writer(writer, "write", errno);
        next += written;
        bytes -= (size_t)written;
    }
    return YOKE_OK;
}

/* Some file systems cannot sync a folder, and one that may only be written to is not open for it.
 */
static int sync_folder(int folder) {
    if (fsync(folder) == 0) return 0;
    return errno == EINVAL || errno == ENOTSUP || errno == EBADF ? 0 : errno;
}

int yoke_file_sync_name(const char *path) {
    char plain[PATH_MAX], name[NAME_MAX + 1];
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') /* of a folder's name */
        length--;
    snprintf(plain, sizeof plain, "%.*s", (int)length, path);
    int folder = open_folder(AT_FDCWD, plain, name);
    if (folder < 0) return errno;
    int cause = sync_folder(folder);
    close(folder);
    return cause;
}

/* The temporary name in the folder for a file that has none. 0, or errno. */
static int give_name(yoke_file_writer *writer) {
    char self[40];
    int cause = EEXIST;
    self_path(writer, self);
    for (int tries = 0; cause == EEXIST && tries < NAME_TRIES; tries++) {
        if (tries > 0 && draw_name(writer) != 0) return errno;
        cause = linkat(AT_FDCWD, self, writer->folder, writer->temporary, AT_SYMLINK_FOLLOW) == 0
                    ? 0
                    : errno;
    }
    writer->named = cause == 0;
    return cause;
}

static int copy_content(int from, int to) {
    struct stat file;
    if (fstat(from, &file) != 0 || fchmod(to, file.st_mode & 0777) != 0) return errno;
    for (off_t next = 0; next < file.st_size;) {
        ssize_t sent = sendfile(to, from, &next, (size_t)(file.st_size - next));
        if (sent < 0 && errno != EINTR) return errno;
        if (sent == 0) return EIO;
    }
    return fsync(to) == 0 ? 0 : errno;
}

/* Some sandboxes and file systems do not let a file without a name get one. */
static bool refuses_links(int cause) {
    return cause == EPERM || cause == EACCES || cause == EXDEV || cause == ENOSYS ||
           cause == EOPNOTSUPP || cause == EINVAL;
}

/* Copies into a file that has a name from the start. 0, or errno. */
static int copy_to_named(yoke_file_writer *writer) {
    int from = writer->descriptor;
    writer->descriptor = -1;
    int cause = open_named(writer);
    if (cause == 0) cause = copy_content(from, writer->descriptor);
    close(from);
    return cause;
}

static yoke_status commit_in_place(yoke_file_writer *writer) {
    int descriptor = writer->descriptor;
    writer->descriptor = -1;
    if (close(descriptor) != 0) return fail_writer(writer, "finish", errno);
    yoke_file_abort(writer);
    return YOKE_OK;
}

/* After its sync the file is on the disk: closing it can lose nothing. */
static yoke_status commit_whole(yoke_file_writer *writer) {
    if (fsync(writer->descriptor) != 0) return fail_writer(writer, "write to the disk", errno);
    int cause = writer->named ? 0 : give_name(writer);
    if (refuses_links(cause) && copy_to_named(writer) == 0) cause = 0;
    if (cause != 0) return fail_writer(writer, "name the new file", cause);
    if (renameat(writer->folder, writer->temporary, writer->folder, writer->name) != 0)
        return fail_writer(writer, "put the new file in place", errno);
    writer->named = false;
    cause = sync_folder(writer->folder);
    if (cause != 0) return fail_writer(writer, "write its directory to the disk", cause);
    yoke_file_abort(writer);
    return YOKE_OK;
}

/* The kinds. */

static const yoke_writer_kind whole_kind = {reserve, write_file, commit_whole, abort_file},
                              in_place_kind = {NULL, write_file, commit_in_place, abort_file};

static yoke_status refuse_closed(void) {
    return FAIL(YOKE_ERROR_IO, "the file was closed after an earlier error");
}

yoke_status yoke_file_reserve(yoke_file_writer *writer, size_t bytes) {
    if (writer->kind == NULL) return refuse_closed();
    return writer->kind->reserve != NULL ? writer->kind->reserve(writer, bytes) : YOKE_OK;
}

yoke_status yoke_file_write(yoke_file_writer *writer, const void *data, size_t bytes) {
    if (writer->kind == NULL) return refuse_closed();
    return bytes > 0 ? writer->kind->write(writer, data, bytes) : YOKE_OK;
}

yoke_status yoke_file_commit(yoke_file_writer *writer) {
    if (writer->kind == NULL) return refuse_closed();
    return writer->kind->commit(writer);
}

static yoke_status create(yoke_file_writer *writer, const char *path, bool whole) {
    mode_t mode;
    struct stat file;
    *writer = (yoke_file_writer){.descriptor = -1, .folder = -1};
    bool in_place = is_in_place(path, &mode);
    if (in_place && whole) {
        const char *kind = S_ISFIFO(mode) ? "pipe" : S_ISSOCK(mode) ? "socket" : "device";
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%s is a %s, and only a file can keep what is saved: choose another name", path,
                    kind);
    }
    writer->path = yoke_strdup(path);
    writer->kind = in_place ? &in_place_kind : &whole_kind;
    if (writer->path == NULL)
        return close_failed(writer, FAIL_MEMORY(strlen(path) + 1, "a file's name"));
    if (in_place) return open_in_place(writer);
    if (stat(path, &file) == 0 && S_ISDIR(file.st_mode))
        return fail_writer(writer, "write", EISDIR);
    return open_file(writer);
}

yoke_status yoke_file_create(yoke_file_writer *writer, const char *path) {
    return create(writer, path, false);
}

yoke_status yoke_file_create_whole(yoke_file_writer *writer, const char *path) {
    return create(writer, path, true);
}

yoke_status yoke_file_create_target(yoke_file_writer *writer, const yoke_file_target *target) {
    return target->sink != NULL ? yoke_sink_open(writer, target->sink)
                                : create(writer, target->path, true);
}

static yoke_status check(const char *path, bool whole) {
    mode_t mode;
    yoke_file_writer writer;
    if (path == NULL) return YOKE_OK;
    if (!whole && is_in_place(path, &mode)) {
        if (access(path, W_OK) == 0) return YOKE_OK;
        return FAIL(YOKE_ERROR_IO, "%s: cannot write: %s", path, strerror(errno));
    }
    TRY(create(&writer, path, whole));
    yoke_file_abort(&writer);
    return YOKE_OK;
}

yoke_status yoke_file_check(const char *path) {
    return check(path, false);
}

yoke_status yoke_file_check_whole(const char *path) {
    return check(path, true);
}
