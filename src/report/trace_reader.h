/* SPDX-License-Identifier: Apache-2.0 */
/* Inside report: reads the events of a Chrome trace, and sums them up. */
#ifndef REPORT_TRACE_READER_H
#define REPORT_TRACE_READER_H

#include "report/report.h"

typedef struct trace_lane {
    int64_t process, thread;
    char name[YOKE_REPORT_NAME_BYTES];
} trace_lane;

#define YOKE_TRACE_LANES 256
#define YOKE_TRACE_STEP_SPANS 4096 /* of a lane in a step */
typedef struct trace_file {
    yoke_report_span
        *events; /* [event_count], on lanes of the file, with the causes that it names */
    size_t event_count, event_capacity;
    trace_lane *lanes;
    int lane_count;
    size_t unknown; /* spans of stages that this version does not know */
    size_t no_lane; /* spans left out: the file has more lanes than YOKE_TRACE_LANES */
    size_t crowded; /* spans left out: too many in one step of one lane */
    bool cut_short; /* the text ends, or is damaged, at byte `end` */
    size_t end;
} trace_file;

/* Reads the text's events as far as it goes. MEMORY. */
yoke_status yoke_trace_file_read(trace_file *file, const char *text, size_t bytes);
void yoke_trace_file_clear(trace_file *file);

/* Appends a lane's pieces of a step. */
yoke_status yoke_report_add_pieces(yoke_report_lane *lane, const yoke_piece *pieces, size_t count,
                                   uint64_t begin_ns);

/* Fills in the lanes and the step of a mode from the last complete steps. Sorts the events. DATA:
 * no complete step. */
yoke_status yoke_trace_file_sum(trace_file *file, yoke_report_mode *mode);

#endif
