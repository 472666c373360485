/* SPDX-License-Identifier: Apache-2.0 */
/* A sink that keeps a file's bytes, and may fail at a call of its choice. */
#ifndef SUPPORT_MEMORY_FILE_H
#define SUPPORT_MEMORY_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "yoke/sink.h"

typedef struct memory_file {
    unsigned char *data;
    size_t bytes, largest; /* of one call */
    int calls, fail_at;    /* from 1; 0: never */
    yoke_status fails_with;
    bool wordless;
} memory_file;

static inline yoke_status memory_file_take(void *payload, const void *bytes, size_t count) {
    memory_file *file = payload;
    file->calls++;
    if (count == 0) return yoke_error_raise(YOKE_ERROR_INTERNAL, "a call without bytes");
    if (file->calls == file->fail_at && file->wordless) return file->fails_with;
    if (file->calls == file->fail_at)
        return yoke_error_raise(file->fails_with, "the store is full at call %d", file->calls);
    unsigned char *grown = realloc(file->data, file->bytes + count);
    if (grown == NULL) return YOKE_ERROR_MEMORY;
    memcpy(grown + file->bytes, bytes, count);
    file->data = grown;
    file->bytes += count;
    if (count > file->largest) file->largest = count;
    return YOKE_OK;
}

static inline yoke_sink memory_file_sink(memory_file *file) {
    yoke_sink sink = YOKE_SINK_INIT;
    sink.write = memory_file_take;
    sink.payload = file;
    return sink;
}

static inline void memory_file_free(memory_file *file) {
    free(file->data);
    *file = (memory_file){0};
}

#endif
