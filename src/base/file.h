/* Files that are never half written: write goes to a temporary file, commit renames it over the
 * target. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "yoke/status.h"

typedef struct yoke_file_writer {
    char *path, *temporary;
    int descriptor;
} yoke_file_writer;

/* A failure is IO and names path and cause. After a failure or an abort the target is unchanged and
 * the temporary file is gone; only where commit could not sync the folder, the target is the new
 * file, which a power cut may still undo. */
yoke_status yoke_file_create(yoke_file_writer *writer, const char *path);
yoke_status yoke_file_write(yoke_file_writer *writer, const void *data, size_t bytes);
yoke_status yoke_file_commit(yoke_file_writer *writer);
void yoke_file_abort(yoke_file_writer *writer);

/* Makes the name of a new file or folder survive a power cut: syncs the folder that it lies in. 0,
 * or errno. Some file systems cannot sync a folder: 0. */
int yoke_file_sync_name(const char *path);

/* Whether create would succeed now, so that a run of hours does not fail at its end because a
 * folder is missing. NULL: nothing to check. */
yoke_status yoke_file_check(const char *path);

/* Reads a whole file. MISSING when it does not exist, IO for any other failure. The caller frees
 * *data. */
yoke_status yoke_file_read(const char *path, size_t limit_bytes, unsigned char **data,
                           size_t *bytes);
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
