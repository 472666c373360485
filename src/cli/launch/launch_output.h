/* SPDX-License-Identifier: Apache-2.0 */
/* The output of workers: from their pipes, line by line, to the launcher's streams and to logs.
 * Nothing here blocks: a slow reader slows the workers down, not the launcher. */
#ifndef CLI_LAUNCH_OUTPUT_H
#define CLI_LAUNCH_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

#define LAUNCH_LINE_BYTES 65536 /* longer lines are cut */
#define LAUNCH_TAIL_BYTES 4096

/* One of the launcher's streams. */
typedef struct launch_sink {
    int descriptor;
    int cause;     /* errno of a failed write, which closes the sink; 0: none */
    bool mid_line; /* the last byte was no newline */
    size_t begin, end;
    char data[32 * LAUNCH_LINE_BYTES]; /* begin..end: to be written */
} launch_sink;

/* One stream of a worker. */
typedef struct launch_stream {
    int descriptor;    /* the end to read from; -1: closed */
    int log;           /* -1: none */
    launch_sink *sink; /* NULL: not shown */
    const char *prefix;
    char path[512]; /* of the log */
    size_t bytes;
    char line[LAUNCH_LINE_BYTES]; /* incomplete so far */
    size_t tail_bytes;
    char tail[LAUNCH_TAIL_BYTES]; /* the last bytes read */
} launch_stream;

typedef enum launch_read { LAUNCH_MORE, LAUNCH_NOTHING, LAUNCH_END } launch_read;

/* Reads once. At the end of the stream, passes the rest on and closes. A log that can no longer be
 * written is reported to `errors` and closed, and *lost becomes true. */
launch_read launch_stream_read(launch_stream *stream, launch_sink *errors, bool *lost);
/* Whether the sink has room for one read. */
bool launch_stream_may_read(const launch_stream *stream);
void launch_stream_close(launch_stream *stream);

/* A line of its own. */
void launch_sink_print(launch_sink *sink, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The last lines of a stream, indented. */
void launch_sink_print_tail(launch_sink *sink, const launch_stream *stream);
/* Writes as much as does not block. */
void launch_sink_write(launch_sink *sink);
bool launch_sink_is_empty(const launch_sink *sink);

#endif
