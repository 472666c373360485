/* SPDX-License-Identifier: Apache-2.0 */
/* A regular file, open to read parts of it wherever they lie. Reading costs no memory but the
 * caller's; a file that another program cuts off meanwhile is an error, where a mapping of it would
 * end the process with SIGBUS. */
#ifndef BASE_FILE_READER_H
#define BASE_FILE_READER_H

#include <stddef.h>

#include "yoke/status.h"

typedef struct yoke_file_reader {
    int descriptor; /* of an open file; it stays that file when another takes its name */
    size_t bytes;   /* when it was opened */
} yoke_file_reader;

/* MISSING when it does not exist; IO for any other failure, and for a folder, pipe or device, whose
 * size nobody knows before its end. It never waits for the other end of a pipe. */
yoke_status yoke_file_open(yoke_file_reader *reader, const char *path);
/* Fills `data` with the bytes from `offset` on. IO; path: for the message. */
yoke_status yoke_file_read_at(const yoke_file_reader *reader, const char *path, size_t offset,
                              void *data, size_t bytes);
void yoke_file_close(yoke_file_reader *reader);

/* Reads a regular file as a whole, with a closing NUL behind it; the caller frees *data. MISSING
 * and IO as above; IO, too, for a file longer than `limit_bytes`. */
yoke_status yoke_file_read_regular(const char *path, size_t limit_bytes, unsigned char **data,
                                   size_t *bytes);

#endif
