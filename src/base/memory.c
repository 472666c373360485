/* SPDX-License-Identifier: Apache-2.0 */
#include "base/memory.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/options.h"

#define PLAIN_ALIGNMENT 16

/* The only mutable state of the library that is the process's: memory may be freed by any object,
 * on any thread. It is constant once `used` is true. */
static struct {
    yoke_allocator host; /* allocate NULL: there is none */
    _Atomic bool used;
} memory_of_process;

yoke_status yoke_set_allocator(const yoke_allocator *allocator) {
    yoke_allocator own = {0};
    if (allocator == NULL) return FAIL(YOKE_ERROR_ARGUMENT, "yoke_set_allocator: NULL");
    TRY(yoke_options_load(&own, sizeof own, allocator, "yoke_allocator"));
    if (own.allocate == NULL || own.resize == NULL || own.release == NULL)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "yoke_allocator: set allocate, resize and release; one of them is NULL");
    if (atomic_load(&memory_of_process.used))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "yoke_set_allocator: the library has allocated memory already; call it before "
                    "any other call of the library");
    memory_of_process.host = own;
    return YOKE_OK;
}

/* The allocator; NULL: malloc. */
static const yoke_allocator *in_use(void) {
    if (!atomic_load_explicit(&memory_of_process.used, memory_order_relaxed))
        atomic_store_explicit(&memory_of_process.used, true, memory_order_relaxed);
    return memory_of_process.host.allocate != NULL ? &memory_of_process.host : NULL;
}

static void *from_host(const yoke_allocator *host, size_t alignment, size_t bytes) {
    return host->allocate(host->payload, alignment, bytes > 0 ? bytes : 1);
}

void *yoke_malloc(size_t bytes) {
    const yoke_allocator *host = in_use();
    return host != NULL ? from_host(host, PLAIN_ALIGNMENT, bytes) : malloc(bytes);
}

void *yoke_calloc(size_t count, size_t size) {
    const yoke_allocator *host = in_use();
    size_t bytes;
    if (host == NULL) return calloc(count, size);
    if (__builtin_mul_overflow(count, size, &bytes)) return NULL;
    void *memory = from_host(host, PLAIN_ALIGNMENT, bytes);
    return memory != NULL ? memset(memory, 0, bytes) : NULL;
}

void *yoke_realloc(void *memory, size_t bytes) {
    const yoke_allocator *host = in_use();
    if (host == NULL) return realloc(memory, bytes);
    if (memory == NULL) return from_host(host, PLAIN_ALIGNMENT, bytes);
    return host->resize(host->payload, memory, bytes > 0 ? bytes : 1);
}

void *yoke_aligned_alloc(size_t alignment, size_t bytes) {
    const yoke_allocator *host = in_use();
    if (host == NULL) return aligned_alloc(alignment, bytes);
    return from_host(host, alignment > PLAIN_ALIGNMENT ? alignment : PLAIN_ALIGNMENT, bytes);
}

static char *copy_text(const char *text, size_t length) {
    char *copy = yoke_malloc(length + 1);
    if (copy == NULL) return NULL;
    copy[length] = '\0';
    return memcpy(copy, text, length);
}

char *yoke_strdup(const char *text) {
    return copy_text(text, strlen(text));
}

char *yoke_strndup(const char *text, size_t most) {
    return copy_text(text, strnlen(text, most));
}

void yoke_free(void *memory) {
    const yoke_allocator *host = in_use();
    if (host == NULL)
        free(memory);
    else if (memory != NULL)
        host->release(host->payload, memory);
}

char *yoke_format(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    char *text = length >= 0 ? yoke_malloc((size_t)length + 1) : NULL;
    if (text == NULL) return NULL;
    va_start(arguments, format);
    vsnprintf(text, (size_t)length + 1, format, arguments);
    va_end(arguments);
    return text;
}

/* A stream of memory. */

typedef struct memory_stream {
    char **text;
    size_t *bytes;
    char *memory;
    size_t used, room;
    size_t missing; /* bytes that it did not get: a part is lost, and so the text */
} memory_stream;

static ssize_t write_memory(void *cookie, const char *from, size_t count) {
    memory_stream *stream = cookie;
    if (stream->missing > 0) return 0;
    if (stream->room - stream->used <= count) {
        size_t room = stream->room * 2 + count + 1;
        char *grown = yoke_realloc(stream->memory, room);
        if (grown == NULL) stream->missing = room;
        if (grown == NULL) return 0;
        stream->memory = grown;
        stream->room = room;
    }
    memcpy(stream->memory + stream->used, from, count);
    stream->used += count;
    stream->memory[stream->used] = '\0';
    *stream->text = stream->memory;
    *stream->bytes = stream->used;
    return (ssize_t)count;
}

static int close_memory(void *cookie) {
    memory_stream *stream = cookie;
    size_t missing = stream->missing;
    if (missing > 0) {
        yoke_free(stream->memory);
        *stream->text = NULL;
        *stream->bytes = missing;
    }
    yoke_free(stream);
    return missing > 0 ? EOF : 0;
}

FILE *yoke_memory_stream(char **text, size_t *bytes) {
    memory_stream *stream = yoke_calloc(1, sizeof *stream);
    *text = NULL;
    *bytes = 0;
    if (stream == NULL) return NULL;
    *stream = (memory_stream){.text = text, .bytes = bytes};
    FILE *file = fopencookie(stream, "w",
                             (cookie_io_functions_t){.write = write_memory, .close = close_memory});
    if (file == NULL) yoke_free(stream);
    /* As with open_memstream, an empty text is one, too. */
    if (file != NULL) (void)write_memory(stream, "", 0);
    return file;
}
