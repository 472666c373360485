/* SPDX-License-Identifier: Apache-2.0 */
/* What is kept of a trace: the spans that have a row in event_names.c. For the files of this room
 * only. */
#ifndef DOCTOR_KINETO_TRACE_H
#define DOCTOR_KINETO_TRACE_H

#include "doctor/doctor.h"
#include "doctor/event_names.h"
#include "doctor/json_pieces.h"

/* A thread of the host, or a stream of a GPU. */
typedef struct kineto_lane {
    int64_t process, thread; /* of a GPU: its number, and the stream */
    bool gpu;
    int64_t operation_begin_ns, operation_end_ns; /* the last one that was kept */
} kineto_lane;

typedef struct kineto_span {
    int64_t begin_ns, end_ns;
    int64_t correlation; /* of a launch and its work */
    double bytes;        /* of a collective, copy or gradient; of a DOCTOR_CALL elements, until the
                            end of the file tells their type */
    const doctor_name *name;
    int lane;
} kineto_span;

/* The first operation of a kind in the file. */
typedef struct kineto_rows {
    int64_t begin_ns;
    double rows, row_bytes; /* 0: unknown */
} kineto_rows;

typedef struct kineto_trace {
    kineto_span *spans; /* [count] */
    size_t count, capacity;
    kineto_lane *lanes; /* [lane_count] */
    int lane_count, last_lane;
    unsigned marks;       /* of all names that were found */
    uint64_t events;      /* in the file */
    bool profiler;        /* PyTorch's has written it */
    bool full;            /* the rest of the file was not read */
    int world, rank;      /* -1: unknown */
    double element_bytes; /* of a gradient */
    kineto_rows input, loss;
    char backend[YOKE_DOCTOR_TEXT_BYTES], device[YOKE_DOCTOR_TEXT_BYTES];
    char end[YOKE_DOCTOR_TEXT_BYTES]; /* why the file was not read to its end; "": it was */
} kineto_trace;

/* DATA: not JSON, another tool's trace, or none of PyTorch's. `name`: of the file, for messages. */

yoke_status kineto_trace_read(kineto_trace *trace, json_pieces *pieces, const char *name);
void kineto_trace_clear(kineto_trace *trace); /* takes a zeroed struct */

#endif
