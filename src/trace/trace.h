/* The door of trace: a fixed ring of spans per lane, one writer a lane, nothing allocated while
 * recording. */
#ifndef TRACE_TRACE_H
#define TRACE_TRACE_H

#include "yoke/trace.h"

typedef struct yoke_span {
    uint64_t begin_ns, end_ns, step, bytes;
    yoke_stage stage;
} yoke_span;

typedef struct yoke_trace_options {
    const char *const *lanes; /* names, "cpu:0" ...; copied */
    int lane_count;
    uint32_t capacity; /* spans a lane; 0: 65536 */
} yoke_trace_options;

yoke_status yoke_trace_create(yoke_trace **trace, const yoke_trace_options *options);
void yoke_trace_destroy(yoke_trace *trace);

/* Spans of a lane are recorded by one thread at a time; NULL trace is allowed and records nothing.
 * bytes: moved through memory by this lane, reads and writes. Loading is traced by the same lane
 * (0) that waits for it. */
uint64_t yoke_trace_now(void);
void yoke_trace_span(yoke_trace *trace, int lane, yoke_stage stage, uint64_t step,
                     uint64_t begin_ns, uint64_t bytes);
/* The same for a span whose end lies in the past. */
void yoke_trace_past_span(yoke_trace *trace, int lane, const yoke_span *span);

#endif
