/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are never half written: write goes to a temporary file, commit renames it over the
 * target. Or the bytes of one go to the caller's sink. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "yoke/sink.h"
#include "yoke/status.h"

/* Where a file goes. */
typedef struct yoke_file_target {
    const char *path;      /* a file, whole */
    const yoke_sink *sink; /* checked; NULL: to the path */
} yoke_file_target;

yoke_file_target yoke_target_path(const char *path);

typedef struct yoke_file_writer yoke_file_writer;
/* How one kind of target is written. */
typedef struct yoke_writer_kind {
    yoke_status (*reserve)(yoke_file_writer *writer, size_t bytes); /* NULL: nothing to do */
    yoke_status (*write)(yoke_file_writer *writer, const void *data, size_t bytes);
    yoke_status (*commit)(yoke_file_writer *writer); /* aborts at its end */
    void (*abort)(yoke_file_writer *writer);
} yoke_writer_kind;

struct yoke_file_writer {
    const yoke_writer_kind *kind; /* NULL: nothing is open */
    yoke_sink sink;
    char *path; /* as the caller named it */
    int descriptor;
    int folder; /* of the target; -1: a pipe or a device, which is written in place */
    bool named; /* the temporary file has its name */
    char name[NAME_MAX + 1], temporary[NAME_MAX + 1]; /* in the folder */
};

/* A failure is IO and names path and cause. After a failure or an abort the target is unchanged and
 * the temporary file is gone; only where commit could not sync the folder, the target is the new
 * file, which a power cut may still undo. Commit opens nothing where it may link a file. A link
 * stays one: the file that it leads to is replaced, or made. The target keeps its permissions. A
 * pipe or a device is written in place; create never waits for its reader. ARGUMENT: the path leads
 * to a file that has no name. create_whole: only for a file, ARGUMENT for a pipe, a socket or a
 * device, too. */
yoke_status yoke_file_create(yoke_file_writer *writer, const char *path);
yoke_status yoke_file_create_whole(yoke_file_writer *writer, const char *path);
/* create_whole, or a writer to the target's sink, which gets all bytes in order. A failure of the
 * sink has its status and text. */
yoke_status yoke_file_create_target(yoke_file_writer *writer, const yoke_file_target *target);
/* Takes the space on the disk now, so that writes do not fail for want of it. Nothing happens where
 * the file system cannot reserve. IO says how much is needed and free, or what limits a file;
 * nothing is taken then. */
yoke_status yoke_file_reserve(yoke_file_writer *writer, size_t bytes);
yoke_status yoke_file_write(yoke_file_writer *writer, const void *data, size_t bytes);
yoke_status yoke_file_commit(yoke_file_writer *writer);
void yoke_file_abort(yoke_file_writer *writer);

/* Opens a file to append to it, and makes it where it is missing; it never waits for a pipe's
 * reader. It follows links as above; a stranger's link in a folder for all, as /tmp, is EACCES. -1
 * and errno. check_links: 0, EACCES, or another errno. */
int yoke_file_append(const char *path);
int yoke_file_check_links(const char *path);

/* Makes the name of a new file or folder survive a power cut: syncs the folder that it lies in. 0,
 * or errno. Some file systems cannot sync a folder: 0. */
int yoke_file_sync_name(const char *path);

/* Checks whether create, or create_whole, would succeed now, so that a run of hours does not fail
 * at its end because a folder is missing. It opens no pipe and no device. NULL: nothing to
 * check. */
yoke_status yoke_file_check(const char *path);
yoke_status yoke_file_check_whole(const char *path);

/* Reads a whole file, or a pipe to its end. MISSING when it does not exist, IO for any other
 * failure, also for a device, which may have no end, and for a pipe with a name into which no
 * program writes for 10 s. The caller frees *data. */
yoke_status yoke_file_read(const char *path, size_t limit_bytes, unsigned char **data,
                           size_t *bytes);
/* Opens such a file or pipe, to be read from its begin to its end. The caller closes it. */
yoke_status yoke_file_open_stream(const char *path, int *descriptor);
bool yoke_file_exists(const char *path);

/* A file's bytes, read from the disk when they are looked at. The file must not become shorter
 * meanwhile: the kernel would send SIGBUS. MISSING and IO as above; unmap takes a zeroed mapping.
 */
typedef struct yoke_file_mapping {
    unsigned char *data; /* NULL: an empty file, or none */
    size_t bytes;
} yoke_file_mapping;
yoke_status yoke_file_map(yoke_file_mapping *mapping, const char *path);
void yoke_file_unmap(yoke_file_mapping *mapping);

#endif
