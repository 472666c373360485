/* A reader of the target sees the old file or the whole new one, never a part: write fills a
 * temporary file beside the target; commit syncs it, renames it over the target and syncs the
 * folder, so that file and name survive a power cut. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

void yoke_file_abort(yoke_file_writer *writer) {
    if (writer->path == NULL) return;
    if (writer->descriptor >= 0) close(writer->descriptor);
    if (writer->temporary != NULL) unlink(writer->temporary);
    free(writer->temporary);
    free(writer->path);
    *writer = (yoke_file_writer){.descriptor = -1};
}

static yoke_status fail_writer(yoke_file_writer *writer, const char *action, int cause) {
    yoke_status status =
        FAIL(YOKE_ERROR_IO, "%s: cannot %s: %s%s", writer->path, action, strerror(cause),
             cause == ENOSPC || cause == EDQUOT ? "; free some space and save again" : "");
    yoke_file_abort(writer);
    return status;
}

static yoke_status open_temporary(yoke_file_writer *writer, const struct stat *old) {
    if (asprintf(&writer->temporary, "%s.tmp.%ld", writer->path, (long)getpid()) < 0) {
        yoke_status status = FAIL_MEMORY(strlen(writer->path) + 32, "a temporary file's name");
        writer->temporary = NULL;
        yoke_file_abort(writer);
        return status;
    }
    /* A file of this name belongs to a dead process that had our process id: overwrite it. */
    int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW;
    writer->descriptor = open(writer->temporary, flags, 0666);
    if (writer->descriptor < 0) {
        int cause = errno;
        free(writer->temporary);
        writer->temporary = NULL;
        return fail_writer(writer, "create a file in its directory", cause);
    }
    if (old != NULL && fchmod(writer->descriptor, old->st_mode & 0777) != 0)
        return fail_writer(writer, "take over the old file's permissions", errno);
    return YOKE_OK;
}

yoke_status yoke_file_create(yoke_file_writer *writer, const char *path) {
    *writer = (yoke_file_writer){.descriptor = -1};
    writer->path = strdup(path);
    if (writer->path == NULL) return FAIL_MEMORY(strlen(path) + 1, "a file's name");
    struct stat old;
    if (stat(path, &old) != 0) return open_temporary(writer, NULL);
    if (S_ISDIR(old.st_mode)) return fail_writer(writer, "write", EISDIR);
    if (S_ISREG(old.st_mode)) return open_temporary(writer, &old);
    /* Write a terminal, a pipe or /dev/null in place: renaming a file over it would replace it. */
    writer->descriptor = open(path, O_WRONLY | O_CLOEXEC);
    return writer->descriptor < 0 ? fail_writer(writer, "open", errno) : YOKE_OK;
}

yoke_status yoke_file_write(yoke_file_writer *writer, const void *data, size_t bytes) {
    if (writer->path == NULL)
        return FAIL(YOKE_ERROR_IO, "the file was closed after an earlier error");
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

int yoke_file_sync_name(const char *path) {
    char directory[PATH_MAX];
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') /* of a folder's name */
        length--;
    while (length > 0 && path[length - 1] != '/')
        length--;
    if (length == 0)
        strcpy(directory, ".");
    else
        snprintf(directory, sizeof directory, "%.*s", (int)length, path);
    int descriptor = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) return errno == EACCES ? 0 : errno; /* a folder one may only write to */
    int cause = fsync(descriptor) == 0 ? 0 : errno;
    close(descriptor);
    return cause == EINVAL || cause == ENOTSUP ? 0 : cause;
}

yoke_status yoke_file_commit(yoke_file_writer *writer) {
    if (writer->path == NULL)
        return FAIL(YOKE_ERROR_IO, "the file was closed after an earlier error");
    if (writer->temporary != NULL && fsync(writer->descriptor) != 0)
        return fail_writer(writer, "write to the disk", errno);
    int descriptor = writer->descriptor;
    writer->descriptor = -1;
    if (close(descriptor) != 0) return fail_writer(writer, "finish", errno);
    if (writer->temporary != NULL) {
        if (rename(writer->temporary, writer->path) != 0)
            return fail_writer(writer, "put the new file in place", errno);
        free(writer->temporary);
        writer->temporary = NULL;
        int cause = yoke_file_sync_name(writer->path);
        if (cause != 0) return fail_writer(writer, "write its directory to the disk", cause);
    }
    yoke_file_abort(writer);
    return YOKE_OK;
}

yoke_status yoke_file_check(const char *path) {
    yoke_file_writer writer;
    if (path == NULL) return YOKE_OK;
    TRY(yoke_file_create(&writer, path));
    yoke_file_abort(&writer);
    return YOKE_OK;
}

typedef struct buffer {
    unsigned char *data;
    size_t length, capacity;
} buffer;

static yoke_status buffer_grow(buffer *read_so_far, size_t capacity) {
    unsigned char *data = realloc(read_so_far->data, capacity);
    if (data == NULL) return FAIL_MEMORY(capacity, "a file's content");
    read_so_far->data = data;
    read_so_far->capacity = capacity;
    return YOKE_OK;
}

/* Reads to the end. A pipe has no size, so the buffer grows when it is full; it always has room for
 * a closing NUL. */
static yoke_status read_all(int descriptor, const char *path, size_t limit, buffer *content) {
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

static yoke_status read_open(int descriptor, const char *path, size_t limit, buffer *content) {
    struct stat file;
    if (fstat(descriptor, &file) != 0)
        return FAIL(YOKE_ERROR_IO, "%s: cannot read: %s", path, strerror(errno));
    if (S_ISREG(file.st_mode) && (uintmax_t)file.st_size > limit)
        return FAIL(YOKE_ERROR_IO, "%s: %jd bytes long, the limit is %zu", path,
                    (intmax_t)file.st_size, limit);
    TRY(buffer_grow(content, S_ISREG(file.st_mode) ? (size_t)file.st_size + 2 : 4096));
    return read_all(descriptor, path, limit, content);
}

static yoke_status open_to_read(const char *path, int *descriptor) {
    *descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (*descriptor >= 0) return YOKE_OK;
    bool missing = errno == ENOENT || errno == ENOTDIR;
    return FAIL(missing ? YOKE_ERROR_MISSING : YOKE_ERROR_IO, "%s: cannot open: %s", path,
                strerror(errno));
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
        free(content.data);
        return status;
    }
    *data = content.data;
    *bytes = content.length;
    return YOKE_OK;
}

bool yoke_file_exists(const char *path) {
    return access(path, F_OK) == 0;
}

static yoke_status map_open(yoke_file_mapping *mapping, const char *path, int descriptor) {
    struct stat file;
    if (fstat(descriptor, &file) != 0)
        return FAIL(YOKE_ERROR_IO, "%s: cannot read: %s", path, strerror(errno));
    if (!S_ISREG(file.st_mode))
        return FAIL(YOKE_ERROR_IO, "%s: a pipe, device or folder; expected a file", path);
    if (file.st_size == 0) return YOKE_OK;
    void *data = mmap(NULL, (size_t)file.st_size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (data == MAP_FAILED) return FAIL(YOKE_ERROR_IO, "%s: cannot map: %s", path, strerror(errno));
    *mapping = (yoke_file_mapping){.data = data, .bytes = (size_t)file.st_size};
    return YOKE_OK;
}

yoke_status yoke_file_map(yoke_file_mapping *mapping, const char *path) {
    int descriptor;
    *mapping = (yoke_file_mapping){0};
    TRY(open_to_read(path, &descriptor));
    yoke_status status = map_open(mapping, path, descriptor);
    close(descriptor);
    return status;
}

void yoke_file_unmap(yoke_file_mapping *mapping) {
    if (mapping->data != NULL) munmap(mapping->data, mapping->bytes);
    *mapping = (yoke_file_mapping){0};
}
