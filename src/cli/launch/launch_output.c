/* SPDX-License-Identifier: Apache-2.0 */
/* Passes whole lines on, so that no rank cuts the line of another. */
#include "cli/launch/launch_output.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TAIL_LINES 10
#define PREFIX_BYTES 16 /* "[rank 999999] " */

/* The most one read can become: every byte a line with a prefix. */
#define READING_BYTES ((size_t)LAUNCH_LINE_BYTES * (PREFIX_BYTES + 1) + LAUNCH_LINE_BYTES)

/* Sinks. */

static size_t room(const launch_sink *sink) {
    return sizeof sink->data - (sink->end - sink->begin);
}

static void put(launch_sink *sink, const char *data, size_t bytes) {
    if (sink->cause != 0 || bytes == 0 || bytes > room(sink)) return;
    if (sink->end + bytes > sizeof sink->data) {
        memmove(sink->data, sink->data + sink->begin, sink->end - sink->begin);
        sink->end -= sink->begin;
        sink->begin = 0;
    }
    memcpy(sink->data + sink->end, data, bytes);
    sink->end += bytes;
    sink->mid_line = data[bytes - 1] != '\n';
}

static void begin_line(launch_sink *sink) {
    if (sink->mid_line) put(sink, "\n", 1);
}

void launch_sink_print(launch_sink *sink, const char *format, ...) {
    char text[2048];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    begin_line(sink);
    put(sink, text, length < (int)sizeof text ? (size_t)length : sizeof text - 1);
    begin_line(sink);
}

/* At most what a pipe takes without blocking. */
static size_t writable_bytes(const launch_sink *sink) {
    struct pollfd look = {.fd = sink->descriptor, .events = POLLOUT};
    size_t left = sink->end - sink->begin;
    if (left == 0 || poll(&look, 1, 0) <= 0) return 0;
    return left < 4096 ? left : 4096;
}

void launch_sink_write(launch_sink *sink) {
    for (size_t bytes; (bytes = writable_bytes(sink)) > 0;) {
        ssize_t written = write(sink->descriptor, sink->data + sink->begin, bytes);
        if (written < 0 && errno != EINTR && errno != EAGAIN) {
            sink->cause = errno;
            sink->begin = sink->end = 0;
        }
        if (written < 0) return;
        sink->begin += (size_t)written;
    }
    if (sink->begin == sink->end) sink->begin = sink->end = 0;
}

bool launch_sink_is_empty(const launch_sink *sink) {
    return sink->begin == sink->end;
}

/* Streams. */

bool launch_stream_may_read(const launch_stream *stream) {
    return stream->sink == NULL || room(stream->sink) > READING_BYTES;
}

static void close_log(launch_stream *stream) {
    if (stream->log >= 0) close(stream->log);
    stream->log = -1;
}

static bool keep(launch_stream *stream, const char *data, size_t bytes) {
    while (stream->log >= 0 && bytes > 0) {
        ssize_t written = write(stream->log, data, bytes);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return false;
        data += written;
        bytes -= (size_t)written;
    }
    return true;
}

static void remember(launch_stream *stream, const char *data, size_t bytes) {
    size_t limit = sizeof stream->tail;
    if (bytes > limit) {
        data += bytes - limit;
        bytes = limit;
    }
    size_t kept = stream->tail_bytes + bytes > limit ? limit - bytes : stream->tail_bytes;
    memmove(stream->tail, stream->tail + stream->tail_bytes - kept, kept);
    memcpy(stream->tail + kept, data, bytes);
    stream->tail_bytes = kept + bytes;
}

/* Shows the first `bytes` of the buffer: whole lines, or one that is too long. */
static void show(launch_stream *stream, size_t bytes) {
    const char *next = stream->line, *end = stream->line + bytes;
    if (stream->sink == NULL) return;
    if (stream->prefix[0] == '\0') {
        put(stream->sink, next, bytes);
        return;
    }
    while (next < end) {
        const char *newline = memchr(next, '\n', (size_t)(end - next));
        size_t length = newline == NULL ? (size_t)(end - next) : (size_t)(newline + 1 - next);
        begin_line(stream->sink);
        put(stream->sink, stream->prefix, strlen(stream->prefix));
        put(stream->sink, next, length);
        next += length;
    }
    begin_line(stream->sink);
}

static void show_complete(launch_stream *stream) {
    const char *newline = memrchr(stream->line, '\n', stream->bytes);
    size_t complete = newline == NULL ? 0 : (size_t)(newline + 1 - stream->line);
    if (newline == NULL && stream->bytes == sizeof stream->line) complete = stream->bytes;
    show(stream, complete);
    memmove(stream->line, stream->line + complete, stream->bytes - complete);
    stream->bytes -= complete;
}

void launch_stream_close(launch_stream *stream) {
    close_log(stream);
    if (stream->descriptor < 0) return;
    show(stream, stream->bytes);
    stream->bytes = 0;
    close(stream->descriptor);
    stream->descriptor = -1;
}

/* No reader and no log are left: the worker gets SIGPIPE, as it would without a launcher. */
static bool is_in_vain(const launch_stream *stream) {
    return stream->sink != NULL && stream->sink->cause != 0 && stream->log < 0;
}

launch_read launch_stream_read(launch_stream *stream, launch_sink *errors, bool *lost) {
    char *next = stream->line + stream->bytes;
    ssize_t got = read(stream->descriptor, next, sizeof stream->line - stream->bytes);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return LAUNCH_NOTHING;
    if (got <= 0 || is_in_vain(stream)) {
        launch_stream_close(stream);
        return LAUNCH_END;
    }
    if (!keep(stream, next, (size_t)got)) {
        launch_sink_print(errors, "yoke: %s: %s; the log ends here", stream->path, strerror(errno));
        close_log(stream);
        *lost = true;
    }
    remember(stream, next, (size_t)got);
    stream->bytes += (size_t)got;
    show_complete(stream);
    return LAUNCH_MORE;
}

void launch_sink_print_tail(launch_sink *sink, const launch_stream *stream) {
    const char *begin = stream->tail, *end = stream->tail + stream->tail_bytes, *next = end;
    for (int lines = 0; next > begin; next--) {
        bool ends = next[-1] == '\n' && next != end;
        if (ends && ++lines == TAIL_LINES) break;
    }
    /* The first line of the tail may be incomplete. */
    if (next == begin && stream->tail_bytes == sizeof stream->tail) {
        const char *newline = memchr(begin, '\n', stream->tail_bytes);
        if (newline != NULL && newline + 1 < end) next = newline + 1;
    }
    while (next < end) {
        const char *newline = memchr(next, '\n', (size_t)(end - next));
        int length = (int)((newline == NULL ? end : newline) - next);
        launch_sink_print(sink, "  | %.*s", length, next);
        next += length + 1;
    }
}
