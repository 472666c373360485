/* SPDX-License-Identifier: Apache-2.0 */
/* The spans of a simulated step. */
#ifndef SIMULATE_SIMULATED_SPANS_H
#define SIMULATE_SIMULATED_SPANS_H

#include "trace/trace.h"

typedef struct yoke_timeline {
    yoke_span_info *spans; /* yoke_free frees them */
    int count, capacity;
} yoke_timeline;

/* A span of less than a nanosecond is none. MEMORY. */
yoke_status yoke_timeline_add(yoke_timeline *timeline, const yoke_span_info *span);
/* Keeps what lies between the times, lane by lane up to `lanes`, each of which does one thing at a
 * time by the rule of trace/account.h. begin_ns becomes 0. A part of a span keeps its part of the
 * bytes. MEMORY. */
yoke_status yoke_timeline_cut(yoke_timeline *timeline, int lanes, uint64_t begin_ns,
                              uint64_t end_ns);

#endif
