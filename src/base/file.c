/* SPDX-License-Identifier: Apache-2.0 */
/* Reads files whole, or maps them. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file_reader.h"
#include "base/memory.h"

#define WRITER_S 10 /* how long a program may take to open a pipe with a name for writing */

typedef struct buffer {
    unsigned char *data;
    size_t length, capacity;
} buffer;

static yoke_status buffer_grow(buffer *read_so_far, size_t capacity) {
    unsigned char *data = yoke_realloc(read_so_far->data, capacity);
    if (data == NULL) return FAIL_MEMORY(capacity, "a file's content");
    read_so_far->data = data;
    read_so_far->capacity = capacity;
    return YOKE_OK;
}

/* A pipe that another program has put here may never get a writer. One without a name, as in
 * <(program), has its writer from the start. */
static yoke_status await_writer(int descriptor, const char *path) {
    struct pollfd look = {.fd = descriptor, .events = POLLIN};
    struct statfs system;
    uint64_t end = yoke_now_ns() + WRITER_S * 1000000000ull, now;
    if (fstatfs(descriptor, &system) == 0 && system.f_type == PIPEFS_MAGIC) return YOKE_OK;
    while ((now = yoke_now_ns()) < end) {
        int ready = poll(&look, 1, (int)((end - now) / 1000000));
        if (ready > 0 || (ready < 0 && errno != EINTR)) return YOKE_OK;
    }
    return FAIL(YOKE_ERROR_IO,
                "%s: a pipe into which no program has written for %d s; name a file, or start the "
                "program first",
                path, WRITER_S);
}

/* Never waits for the writer of a pipe. */
static yoke_status open_to_read(const char *path, int *descriptor) {
    *descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (*descriptor >= 0) return YOKE_OK;
    bool missing = errno == ENOENT || errno == ENOTDIR;
    return FAIL(missing ? YOKE_ERROR_MISSING : YOKE_ERROR_IO, "%s: cannot open: %s", path,
                strerror(errno));
}

/* Whether it has an end; then reads wait for what a program writes later. */
static yoke_status prepare_stream(int descriptor, const char *path, struct stat *file) {
    if (fstat(descriptor, file) != 0)
        return FAIL(YOKE_ERROR_IO, "%s: cannot read: %s", path, strerror(errno));
    bool device = S_ISCHR(file->st_mode) || S_ISBLK(file->st_mode);
    if (device || S_ISDIR(file->st_mode))
        return FAIL(YOKE_ERROR_IO, "%s: is a %s; expected a file or a pipe", path,
                    device ? "device" : "folder");
    if (S_ISFIFO(file->st_mode)) TRY(await_writer(descriptor, path));
    if (fcntl(descriptor, F_SETFL, 0) == 0) return YOKE_OK;
    return FAIL(YOKE_ERROR_IO, "%s: cannot read: %s", path, strerror(errno));
}

yoke_status yoke_file_open_stream(const char *path, int *descriptor) {
    struct stat file;
    TRY(open_to_read(path, descriptor));
    yoke_status status = prepare_stream(*descriptor, path, &file);
    if (status == YOKE_OK) return YOKE_OK;
    close(*descriptor);
    *descriptor = -1;
    return status;
}

static yoke_status read_open(int descriptor, const char *path, size_t limit, buffer *content) {
    struct stat file;
    TRY(prepare_stream(descriptor, path, &file));
    if (S_ISREG(file.st_mode) && (uintmax_t)file.st_size > limit)
        return FAIL(YOKE_ERROR_IO, "%s: %jd bytes long, the limit is %zu", path,
                    (intmax_t)file.st_size, limit);
    TRY(buffer_grow(content, S_ISREG(file.st_mode) ? (size_t)file.st_size + 2 : 4096));
    /* Read to the end. A pipe has no size, so the buffer grows when it is full; it always has room
     * for a closing NUL. */
    for (;;) {
        if (content->length + 1 >= content->capacity)
            TRY(buffer_grow(content, 2 * content->capacity));
        ssize_t got = read(descriptor, content->data + content->length,
                           content->capacity - content->length - 1);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return FAIL(YOKE_ERROR_IO, "%s: cannot read: %s", path, strerror(errno));
        if (got == 0) break;
        content->length += (size_t)got;
        if (content->length > limit)
            return FAIL(YOKE_ERROR_IO, "%s: longer than the limit of %zu bytes", path, limit);
    }
    content->data[content->length] = '\0';
    return YOKE_OK;
}

yoke_status yoke_file_read(const char *path, size_t limit_bytes, unsigned char **data,
                           size_t *bytes) {
    *data = NULL;
    *bytes = 0;
    int descriptor;
    TRY(open_to_read(path, &descriptor));
    buffer content = {0};
    yoke_status status = read_open(descriptor, path, limit_bytes, &content);
    close(descriptor);
    if (status != YOKE_OK) {
        yoke_free(content.data);
        return status;
    }
    *data = content.data;
    *bytes = content.length;
    return YOKE_OK;
}

bool yoke_file_exists(const char *path) {
    return access(path, F_OK) == 0;
}

yoke_status yoke_file_map(yoke_file_mapping *mapping, const char *path) {
    yoke_file_reader reader;
    *mapping = (yoke_file_mapping){0};
    TRY(yoke_file_open(&reader, path));
    void *data = NULL;
    if (reader.bytes > 0)
        data = mmap(NULL, reader.bytes, PROT_READ, MAP_PRIVATE, reader.descriptor, 0);
    int cause = errno;
    size_t bytes = reader.bytes;
    yoke_file_close(&reader);
    if (data == MAP_FAILED) return FAIL(YOKE_ERROR_IO, "%s: cannot map: %s", path, strerror(cause));
    *mapping = (yoke_file_mapping){.data = data, .bytes = bytes};
    return YOKE_OK;
}

void yoke_file_unmap(yoke_file_mapping *mapping) {
    if (mapping->data != NULL) munmap(mapping->data, mapping->bytes);
    *mapping = (yoke_file_mapping){0};
}
