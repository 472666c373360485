/* The door of trace: each lane has a fixed ring of spans and one writer; recording allocates
 * nothing. */
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

/* One thread at a time records the spans of a lane. A NULL trace records nothing. bytes: what this
 * lane reads from and writes to memory. Lane 0 waits for the loader, so lane 0 records loading. */
uint64_t yoke_trace_now(void);
void yoke_trace_span(yoke_trace *trace, int lane, yoke_stage stage, uint64_t step,
                     uint64_t begin_ns, uint64_t bytes);
/* Records a span that ended earlier. */
void yoke_trace_past_span(yoke_trace *trace, int lane, const yoke_span *span);

#endif
