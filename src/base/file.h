/* Files that are complete or what they were: written beside the target, synced, renamed over it. */
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

/* IO with path and cause on every failure; after a failure or abandon the target is untouched and
 * no temporary is left. */
yoke_status yoke_file_create(yoke_file_writer *writer, const char *path);
yoke_status yoke_file_write(yoke_file_writer *writer, const void *data, size_t bytes);
yoke_status yoke_file_commit(yoke_file_writer *writer);
void yoke_file_abandon(yoke_file_writer *writer);

/* The whole of a file; MISSING when it is not there, IO otherwise. The caller frees *data. */
yoke_status yoke_file_read(const char *path, size_t limit_bytes, unsigned char **data,
                           size_t *bytes);
bool yoke_file_exists(const char *path);

#endif
