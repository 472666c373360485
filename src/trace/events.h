/* SPDX-License-Identifier: Apache-2.0 */
/* The spans of all processes as one list, with what each wait waited for, and the arrows between
 * them. For the files of this room only. */
#ifndef TRACE_EVENTS_H
#define TRACE_EVENTS_H

#include <stddef.h>

#include "trace/spans.h"

typedef struct yoke_trace_event {
    yoke_span span; /* by the clock of the first process */
    int process, lane, engine;
    int row; /* the lane's number among those of all processes */
    /* The work of another lane whose end ended this wait; NULL: this is no wait, nothing is known,
     * or the data was on its way. */
    const struct yoke_trace_event *cause;
} yoke_trace_event;

typedef struct yoke_trace_events {
    const yoke_trace_process *processes;
    int process_count, row_count;
    size_t count;
    yoke_trace_event *list;      /* [count] by process, lane, track and begin; outer spans first */
    yoke_trace_event **by_steps; /* [step_count] by engine, step and end; none of links */
    size_t step_count;
} yoke_trace_events;

yoke_status yoke_trace_events_open(yoke_trace_events *all, const yoke_trace_process *processes,
                                   int count);
void yoke_trace_events_close(yoke_trace_events *all); /* takes half-built ones */
/* An engine that goes on after a failure does steps of the one before it again. */
static inline bool yoke_trace_same_step(const yoke_trace_event *a, const yoke_trace_event *b) {
    return a->engine == b->engine && a->span.step == b->span.step;
}

/* One arrow through several spans. */
#define YOKE_FLOW_POINTS 8
typedef struct yoke_flow {
    const char *category; /* "gradient", "publish" or "wait" */
    int bucket;           /* YOKE_NO_BUCKET: none */
    int count;            /* of its points, 2 at least */
    const yoke_trace_event *points[YOKE_FLOW_POINTS];
    uint64_t at_ns[YOKE_FLOW_POINTS]; /* inside the span of the point; never falls */
} yoke_flow;

typedef yoke_status (*yoke_flow_writer)(void *context, const yoke_flow *flow);
yoke_status yoke_trace_flows(const yoke_trace_events *all, yoke_flow_writer write, void *context);

#endif
