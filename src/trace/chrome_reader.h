/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the spans of a Chrome trace, as chrome.c writes it. */
#ifndef TRACE_CHROME_READER_H
#define TRACE_CHROME_READER_H

#include <stdbool.h>

#include "yoke/trace.h"

/* A span with its cause. */
typedef struct yoke_caused_span {
    yoke_span_info span;         /* first: a piece's span is a part of this struct */
    int cause_lane, cause_stage; /* of a wait or idle time: what another lane does most of that
                                    time; -1: none */
} yoke_caused_span;

#define YOKE_TRACE_NAME_BYTES 96
typedef struct trace_lane {
    int64_t process, thread;
    int64_t engine; /* that it is a lane of; 0: the first one, or that of a file with one */
    char name[YOKE_TRACE_NAME_BYTES];
} trace_lane;

#define YOKE_TRACE_MARK "run" /* the category of marks */
#define YOKE_TRACE_MARK_BYTES 1024
#define YOKE_TRACE_MARKS 16
#define YOKE_TRACE_LANES 256
#define YOKE_TRACE_STEP_SPANS 4096 /* of a lane in a step */
typedef struct trace_file {
    yoke_caused_span
        *events; /* [event_count], on lanes of the file, with the causes that it names */
    size_t event_count, event_capacity;
    trace_lane *lanes;
    int lane_count;
    char (*marks)[YOKE_TRACE_MARK_BYTES]; /* what happened to the run, the first of them */
    int mark_count;
    size_t more_marks;
    bool went_on;                   /* lanes of other engines than the last one are left out */
    uint64_t first_step, last_step; /* of those that are summed up */
    size_t unknown;                 /* spans of stages that this version does not know */
    size_t no_lane; /* spans left out: the file has more lanes than YOKE_TRACE_LANES */
    size_t crowded; /* spans left out: too many in one step of one lane */
    bool cut_short; /* the text ends, or is damaged, at byte `end` */
    size_t end;
} trace_file;

/* Reads the text's events as far as it goes. MEMORY. */
yoke_status yoke_trace_file_read(trace_file *file, const char *text, size_t bytes);
/* Leaves out what is not of the last engine that did a whole step: engines have different lanes,
 * and do steps again. */
void yoke_trace_file_keep_engine(trace_file *file);
void yoke_trace_file_clear(trace_file *file);

#endif
