/* SPDX-License-Identifier: Apache-2.0 */
/* A file, open to read parts of it wherever they lie: a regular one, or the bytes of one in the
 * caller's memory. Reading costs no memory but the caller's; a file that another program cuts off
 * meanwhile is an error, where a mapping of it would end the process with SIGBUS. */
#ifndef BASE_FILE_READER_H
#define BASE_FILE_READER_H

#include <stdbool.h>
#include <stddef.h>

#include "yoke/status.h"

/* Where the bytes of a file are. */
typedef struct yoke_file_source {
    const char *path;  /* of the file; of bytes in memory what messages call them */
    const void *bytes; /* in memory, [count]; NULL: in the file */
    size_t count;
} yoke_file_source;

yoke_file_source yoke_source_path(const char *path);

#define YOKE_BYTES_NAME "the bytes in memory"
/* ARGUMENT: bytes is NULL. */
yoke_status yoke_source_bytes(yoke_file_source *source, const void *bytes, size_t count);

typedef struct yoke_reader_kind yoke_reader_kind; /* a row of the table of sources */
typedef struct yoke_file_reader {
    const yoke_reader_kind *kind; /* NULL: nothing is open */
    int descriptor; /* of an open file; it stays that file when another takes its name */
    const unsigned char *memory; /* borrowed */
    size_t bytes;                /* when it was opened */
} yoke_file_reader;

/* MISSING when it does not exist; IO for any other failure, and for a folder, pipe or device, whose
 * size nobody knows before its end. It never waits for the other end of a pipe. */
yoke_status yoke_file_open(yoke_file_reader *reader, const char *path);
/* The same of a source: bytes in memory must stay until the reader closes. */
yoke_status yoke_file_open_source(yoke_file_reader *reader, const yoke_file_source *source);
/* A reader of a regular file that is open already, and which it closes. */
yoke_file_reader yoke_file_adopt(int descriptor, size_t bytes);
bool yoke_file_is_memory(const yoke_file_reader *reader);
/* Fills `data` with the bytes from `offset` on. IO; path: for the message. */
yoke_status yoke_file_read_at(const yoke_file_reader *reader, const char *path, size_t offset,
                              void *data, size_t bytes);
void yoke_file_close(yoke_file_reader *reader); /* also takes a zeroed one */

/* Reads a regular file as a whole, with a closing NUL behind it; the caller frees *data. MISSING
 * and IO as above; IO, too, for a file longer than `limit_bytes`. */
yoke_status yoke_file_read_regular(const char *path, size_t limit_bytes, unsigned char **data,
                                   size_t *bytes);

#endif
