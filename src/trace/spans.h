/* What a trace holds; for the files of this room only. */
#ifndef TRACE_SPANS_H
#define TRACE_SPANS_H

#include "trace/trace.h"

typedef struct yoke_lane {
    char *name;
    yoke_span *spans;  /* [capacity]: span i of all lies at i % capacity */
    uint64_t recorded; /* since the last reset */
    char apart[104];   /* neighbours' writers do not share a cache line pair */
} yoke_lane;

struct yoke_trace {
    int lane_count;
    uint32_t capacity;
    yoke_lane lanes[];
};

/* Spans still in the ring, and the i-th of them, oldest first. */
uint32_t yoke_lane_count(const yoke_trace *trace, int lane);
const yoke_span *yoke_lane_span(const yoke_trace *trace, int lane, uint32_t i);

#endif
