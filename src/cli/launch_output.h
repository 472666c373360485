/* What workers write, line by line, on its way to the launcher's own streams and to files. Nothing
 * here waits: whoever reads slowly slows the workers down, not the launcher. */
#ifndef CLI_LAUNCH_OUTPUT_H
#define CLI_LAUNCH_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

#define LAUNCH_LINE_BYTES 65536 /* longer lines are passed on in parts */
#define LAUNCH_TAIL_BYTES 4096

/* One of the launcher's own streams. */
typedef struct launch_sink {
    int descriptor;
    int cause;     /* errno of a write that failed: nothing more is written */
    bool mid_line; /* the last byte put here was no newline */
    size_t begin, end;
    char data[32 * LAUNCH_LINE_BYTES]; /* begin..end: not written yet */
} launch_sink;

/* One stream of a worker. */
typedef struct launch_stream {
    int descriptor;    /* the end to read from; -1: closed */
    int log;           /* -1: none */
    launch_sink *sink; /* NULL: not shown */
    const char *prefix;
    char path[512]; /* of the log */
    size_t bytes;
    char line[LAUNCH_LINE_BYTES]; /* not complete yet */
    size_t tail_bytes;
    char tail[LAUNCH_TAIL_BYTES]; /* the last that was read */
} launch_stream;

typedef enum launch_read { LAUNCH_MORE, LAUNCH_NOTHING, LAUNCH_END } launch_read;

/* Reads what there is, once. At the end the rest is passed on and all is closed. A log that cannot
 * be written any more is told to `errors` once and closed; `lost` becomes true. */
launch_read launch_stream_read(launch_stream *stream, launch_sink *errors, bool *lost);
/* Whether its sink has room for all that one reading can give. */
bool launch_stream_may_read(const launch_stream *stream);
void launch_stream_close(launch_stream *stream);

/* "text" as a line of its own. */
void launch_sink_print(launch_sink *sink, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The last lines of a stream, each behind its prefix. */
void launch_sink_print_tail(launch_sink *sink, const launch_stream *stream);
/* Writes as much as can be without waiting. */
void launch_sink_write(launch_sink *sink);
bool launch_sink_is_empty(const launch_sink *sink);

#endif
