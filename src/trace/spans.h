/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a trace; for the files of this room only. */
#ifndef TRACE_SPANS_H
#define TRACE_SPANS_H

#include "trace/trace.h"

typedef struct yoke_lane {
    char *name;
    yoke_span *spans;  /* [capacity]: span number i is at i % capacity */
    uint64_t recorded; /* since the last reset */
    char padding[104]; /* two lanes' writers do not share a pair of cache lines */
} yoke_lane;

struct yoke_trace {
    int lane_count;
    uint32_t capacity;
    bool queued;
    yoke_lane lanes[];
};

/* The number of spans in a lane's ring, and the i-th of them, oldest first. */
uint32_t yoke_lane_count(const yoke_trace *trace, int lane);
const yoke_span *yoke_lane_span(const yoke_trace *trace, int lane, uint32_t i);

/* The first step with all its spans: a full ring overwrites the oldest. */
uint64_t yoke_trace_first_step(const yoke_trace *trace);

#endif
