/* SPDX-License-Identifier: Apache-2.0 */
/* Opens without waiting, looks at what it has opened, and reads with pread; or copies from memory.
 */
#include "base/file_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/options.h"

yoke_file_source yoke_source_path(const char *path) {
    return (yoke_file_source){.path = path};
}

struct yoke_reader_kind {
    yoke_status (*read_at)(const yoke_file_reader *reader, const char *path, size_t offset,
                           void *data, size_t bytes);
    void (*close)(yoke_file_reader *reader);
};

/* Files. */

static const char *kind_of(mode_t mode) {
    if (S_ISDIR(mode)) return "a folder";
    if (S_ISFIFO(mode)) return "a pipe";
    if (S_ISSOCK(mode)) return "a socket";
    return "a device";
}

static yoke_status check_kind(yoke_file_reader *reader, const char *path) {
    struct stat file;
    if (fstat(reader->descriptor, &file) != 0)
        return FAIL(YOKE_ERROR_IO, "%s: cannot read: %s", path, strerror(errno));
    if (!S_ISREG(file.st_mode))
        return FAIL(YOKE_ERROR_IO,
                    "%s: is %s; expected a regular file: write its content to one, or "
                    "give its bytes to the call that reads from memory",
                    path, kind_of(file.st_mode));
    reader->bytes = (size_t)file.st_size;
    return YOKE_OK;
}

static yoke_status read_file(const yoke_file_reader *reader, const char *path, size_t offset,
                             void *data, size_t bytes) {
    unsigned char *next = data;
    while (bytes > 0) {
        ssize_t got = pread(reader->descriptor, next, bytes, (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return FAIL(YOKE_ERROR_IO, "%s: cannot read: %s", path, strerror(errno));
        if (got == 0)
            return FAIL(YOKE_ERROR_IO,
                        "%s: had %zu bytes and ends at byte %zu now: another program writes to it",
                        path, reader->bytes, offset);
        next += got;
        offset += (size_t)got;
        bytes -= (size_t)got;
    }
    return YOKE_OK;
}

static void close_file(yoke_file_reader *reader) {
    close(reader->descriptor);
}

static const yoke_reader_kind file_kind = {read_file, close_file};

yoke_file_reader yoke_file_adopt(int descriptor, size_t bytes) {
    return (yoke_file_reader){.kind = &file_kind, .descriptor = descriptor, .bytes = bytes};
}

yoke_status yoke_file_open(yoke_file_reader *reader, const char *path) {
    /* O_NONBLOCK: a pipe without a writer would keep open waiting. */
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    *reader = (yoke_file_reader){0};
    if (descriptor < 0) {
        bool missing = errno == ENOENT || errno == ENOTDIR;
        return FAIL(missing ? YOKE_ERROR_MISSING : YOKE_ERROR_IO, "%s: cannot open: %s", path,
                    strerror(errno));
    }
    *reader = yoke_file_adopt(descriptor, 0);
    yoke_status status = check_kind(reader, path);
    if (status != YOKE_OK) yoke_file_close(reader);
    return status;
}

/* Memory. */

static yoke_status read_memory(const yoke_file_reader *reader, const char *path, size_t offset,
                               void *data, size_t bytes) {
    if (offset > reader->bytes || bytes > reader->bytes - offset)
        return FAIL(YOKE_ERROR_IO, "%s: %zu bytes from byte %zu on: it has %zu", path, bytes,
                    offset, reader->bytes);
    if (bytes > 0) memcpy(data, reader->memory + offset, bytes);
    return YOKE_OK;
}

static void close_memory(yoke_file_reader *reader) {
    (void)reader; /* the caller's */
}

static const yoke_reader_kind memory_kind = {read_memory, close_memory};

yoke_status yoke_source_bytes(yoke_file_source *source, const void *bytes, size_t count) {
    TRY(yoke_pointer_check(bytes, "bytes"));
    *source = (yoke_file_source){.path = YOKE_BYTES_NAME, .bytes = bytes, .count = count};
    return YOKE_OK;
}

bool yoke_file_is_memory(const yoke_file_reader *reader) {
    return reader->kind == &memory_kind;
}

/* Either. */

yoke_status yoke_file_open_source(yoke_file_reader *reader, const yoke_file_source *source) {
    if (source->bytes == NULL) return yoke_file_open(reader, source->path);
    *reader =
        (yoke_file_reader){.kind = &memory_kind, .memory = source->bytes, .bytes = source->count};
    return YOKE_OK;
}

yoke_status yoke_file_read_at(const yoke_file_reader *reader, const char *path, size_t offset,
                              void *data, size_t bytes) {
    return reader->kind->read_at(reader, path, offset, data, bytes);
}

void yoke_file_close(yoke_file_reader *reader) {
    if (reader->kind != NULL) reader->kind->close(reader);
    *reader = (yoke_file_reader){0};
}

static yoke_status read_whole(const yoke_file_reader *reader, const char *path, size_t limit,
                              unsigned char **data) {
    if (reader->bytes > limit)
        return FAIL(YOKE_ERROR_IO, "%s: %zu bytes long, the limit is %zu", path, reader->bytes,
                    limit);
    unsigned char *made = yoke_malloc(reader->bytes + 1);
    if (made == NULL) return FAIL_MEMORY(reader->bytes + 1, "a file's content");
    yoke_status status = yoke_file_read_at(reader, path, 0, made, reader->bytes);
    if (status != YOKE_OK) {
        yoke_free(made);
        return status;
    }
    made[reader->bytes] = '\0';
    *data = made;
    return YOKE_OK;
}

yoke_status yoke_file_read_regular(const char *path, size_t limit_bytes, unsigned char **data,
                                   size_t *bytes) {
    yoke_file_reader reader;
    *data = NULL;
    *bytes = 0;
    TRY(yoke_file_open(&reader, path));
    yoke_status status = read_whole(&reader, path, limit_bytes, data);
    if (status == YOKE_OK) *bytes = reader.bytes;
    yoke_file_close(&reader);
    return status;
}
