/* SPDX-License-Identifier: Apache-2.0 */
/* The door of trace: each lane has a fixed ring of spans and one writer; recording allocates
 * nothing. account.h says where the time of the spans goes. */
#ifndef TRACE_TRACE_H
#define TRACE_TRACE_H

#include <stdbool.h>

#include "trace/account.h"
#include "trace/chrome_reader.h"
#include "yoke/trace.h"

#define YOKE_NO_BUCKET (-1)

/* What a lane does at the same time gets rows of its own in the timeline. Lanes that share memory
 * have the first one only. */
typedef enum yoke_track {
    YOKE_TRACK_COMPUTE,
    YOKE_TRACK_COPY,
    YOKE_TRACK_COMMUNICATION,
    YOKE_TRACK_HOST, /* of a lane that queues: what its host thread measures */
    YOKE_TRACK_LINK, /* what the lane's modelled link carries; no time of the lane */
    YOKE_TRACK_COUNT
} yoke_track;

typedef struct yoke_span {
    uint64_t begin_ns, end_ns, step, bytes;
    uint64_t sent, received; /* bytes over the lane's modelled link; 0: it has none */
    yoke_stage stage;
    int bucket; /* YOKE_NO_BUCKET: all of them, or none */
    /* What a wait waits for: this stage of another lane, on `bucket`. LOAD: whatever another lane
     * does. COUNT: its own link, not a lane. */
    yoke_stage awaits;
    yoke_track track;
} yoke_span;

typedef struct yoke_trace_options {
    const char *const *lanes; /* names, "cpu:0" ...; copied */
    int lane_count;
    uint32_t capacity; /* spans a lane; 0: 65536 */
    bool queued;       /* the host's spans get YOKE_TRACK_HOST */
} yoke_trace_options;

yoke_status yoke_trace_create(yoke_trace **trace, const yoke_trace_options *options);
void yoke_trace_destroy(yoke_trace *trace);

/* One thread at a time records the spans of a lane. A NULL trace records nothing. bytes: what this
 * lane reads from and writes to memory. Lane 0 waits for the loader, so lane 0 records loading. */
uint64_t yoke_trace_now(void);
/* Records a span without bucket that ends now. */
void yoke_trace_span(yoke_trace *trace, int lane, yoke_stage stage, uint64_t step,
                     uint64_t begin_ns, uint64_t bytes);
/* Records a span that ends now, whatever its end_ns and track. */
void yoke_trace_end_span(yoke_trace *trace, int lane, const yoke_span *span);
/* Records a span that ended earlier. */
void yoke_trace_past_span(yoke_trace *trace, int lane, const yoke_span *span);

/* As yoke_trace_read_last, the spans of modelled links alone, which it leaves out. */
size_t yoke_trace_read_links(const yoke_trace *trace, uint64_t steps, yoke_span_info *spans,
                             size_t capacity);

/* A trace on its way to another process of the same program. pack: *words[*count] is heap memory
 * that the caller frees. unpack: DATA when the words are no packed trace. */
yoke_status yoke_trace_pack(const yoke_trace *trace, int64_t **words, size_t *count);
yoke_status yoke_trace_unpack(yoke_trace **trace, const int64_t *words, size_t count);

/* What happened to a run: it lost a device and went on, another rank joined ... */
typedef struct yoke_trace_mark {
    uint64_t at_ns;
    char *text;
} yoke_trace_mark;

/* One process of a run. */
typedef struct yoke_trace_process {
    int rank; /* -1: the run has one process and no ranks */
    const yoke_trace *trace;
    int64_t shift_ns; /* its clock + shift_ns is the clock of the first process */
    const char *name; /* NULL: "yoke", or its rank */
    /* Those of one engine train together; a run that goes on after a failure has a later one. */
    int engine;
    const yoke_trace_mark *marks; /* [mark_count] of the whole run */
    int mark_count;
} yoke_trace_process;

/* yoke_trace_save for the processes of a run, in one file (docs/traces.md). */
yoke_status yoke_trace_write_processes(const yoke_trace_process *processes, int count,
                                       const char *path);

#endif
