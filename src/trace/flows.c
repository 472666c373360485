/* SPDX-License-Identifier: Apache-2.0 */
/* The arrows of a timeline: from a bucket's gradient through its reduce to its update, from the
 * last update to the copies of the weights, and from the work that a lane waited for to the end of
 * its wait. */
#include <stdlib.h>

#include "base/base.h"
#include "trace/events.h"

/* An arrow touches a span so far from its begin or end: viewers ask which span is open then. */
#define INSIDE_NS 100

/* The events of one step, by end. */
typedef struct step_events {
    yoke_trace_event *const *events;
    size_t count;
} step_events;

typedef struct flow_maker {
    const yoke_trace_events *all;
    const yoke_trace_event **gradients; /* [rows] the last one of a bucket */
    yoke_trace_event **of_bucket;       /* [events] those of a bucket in a step, by end */
    yoke_flow_writer write;
    void *context;
} flow_maker;

/* Points. */

static uint64_t inside_ns(const yoke_span *span) {
    uint64_t half = (span->end_ns - span->begin_ns) / 2;
    return half < INSIDE_NS ? half : INSIDE_NS;
}

static yoke_flow flow_from(const char *category, const yoke_trace_event *from) {
    return (yoke_flow){.category = category,
                       .bucket = YOKE_NO_BUCKET,
                       .count = 1,
                       .points = {from},
                       .at_ns = {from->span.end_ns - inside_ns(&from->span)}};
}

/* Viewers refuse an arrow that goes back in time, or ends where no span is open. */
static void flow_to(yoke_flow *flow, const yoke_trace_event *to, bool at_end) {
    uint64_t inside = inside_ns(&to->span), before = flow->at_ns[flow->count - 1];
    uint64_t at = at_end ? to->span.end_ns - inside : to->span.begin_ns + inside;
    if (at < before) at = before;
    if (flow->count == YOKE_FLOW_POINTS || at >= to->span.end_ns) return;
    flow->points[flow->count] = to;
    flow->at_ns[flow->count++] = at;
}

static yoke_status write_flow(const flow_maker *maker, const yoke_flow *flow) {
    return flow->count > 1 ? maker->write(maker->context, flow) : YOKE_OK;
}

/* Gradients. */

static bool uses_gradient(const yoke_span *span, int bucket) {
    bool uses = span->stage == YOKE_STAGE_REDUCE || span->stage == YOKE_STAGE_EXCHANGE ||
                span->stage == YOKE_STAGE_ALL_REDUCE || span->stage == YOKE_STAGE_UPDATE;
    return uses && span->bucket == bucket;
}

/* All that the row does with the bucket after the gradient. */
static void follow(yoke_flow *flow, const step_events *step, int row) {
    const yoke_trace_event *gradient = flow->points[0];
    for (size_t i = 0; i < step->count; i++) {
        const yoke_trace_event *event = step->events[i];
        if (event->row == row && uses_gradient(&event->span, flow->bucket) &&
            event->span.end_ns > gradient->span.end_ns)
            flow_to(flow, event, false);
    }
}

/* Another row can go on with the bucket only now that its last gradient is there. */
static yoke_status point_to_waiting(const flow_maker *maker, const step_events *step, int row,
                                    const yoke_trace_event *last) {
    for (size_t i = 0; i < step->count; i++) {
        const yoke_trace_event *event = step->events[i];
        if (event->row != row || !uses_gradient(&event->span, last->span.bucket) ||
            event->span.begin_ns < last->span.end_ns)
            continue;
        yoke_flow flow = flow_from("gradient", last);
        flow.bucket = last->span.bucket;
        flow_to(&flow, event, false);
        return write_flow(maker, &flow);
    }
    return YOKE_OK;
}

/* step: its events of the bucket. */
static yoke_status follow_bucket(const flow_maker *maker, const step_events *step, int bucket) {
    const yoke_trace_event *last = NULL;
    for (int row = 0; row < maker->all->row_count; row++)
        maker->gradients[row] = NULL;
    for (size_t i = 0; i < step->count; i++) {
        const yoke_trace_event *event = step->events[i];
        if (event->span.stage != YOKE_STAGE_BACKWARD || event->span.bucket != bucket) continue;
        maker->gradients[event->row] = last = event;
    }
    for (int row = 0; last != NULL && row < maker->all->row_count; row++) {
        if (maker->gradients[row] != NULL) {
            /* A GPU that is not the root records no exchange of its own: the root reduces its
             * gradient. */
            yoke_flow flow = flow_from("gradient", maker->gradients[row]);
            flow.bucket = bucket;
            follow(&flow, step, row);
            if (flow.count == 1) follow(&flow, step, row - flow.points[0]->lane);
            TRY(write_flow(maker, &flow));
        }
        if (row != last->row) TRY(point_to_waiting(maker, step, row, last));
    }
    return YOKE_OK;
}

static int count_buckets(const step_events *step) {
    int last = YOKE_NO_BUCKET;
    for (size_t i = 0; i < step->count; i++)
        if (step->events[i]->span.bucket > last) last = step->events[i]->span.bucket;
    return last + 1;
}

/* Weights and waits. */

static yoke_status follow_weights(const flow_maker *maker, const step_events *before,
                                  const yoke_trace_event *copy) {
    for (size_t i = before->count; i-- > 0;) {
        const yoke_trace_event *update = before->events[i];
        if (update->span.stage != YOKE_STAGE_UPDATE || update->process != copy->process) continue;
        yoke_flow flow = flow_from("publish", update);
        flow_to(&flow, copy, false);
        return write_flow(maker, &flow);
    }
    return YOKE_OK;
}

static yoke_status follow_wait(const flow_maker *maker, const yoke_trace_event *wait) {
    if (wait->cause == NULL) return YOKE_OK;
    yoke_flow flow = flow_from("wait", wait->cause);
    flow.bucket = wait->span.bucket;
    flow_to(&flow, wait, true);
    return write_flow(maker, &flow);
}

static yoke_status follow_step(const flow_maker *maker, const step_events *before,
                               const step_events *step) {
    int buckets = count_buckets(step);
    for (int bucket = 0; bucket < buckets; bucket++) {
        /* A step of many ranks has thousands of events, and every row looks through those of the
         * bucket. */
        step_events own = {.events = maker->of_bucket};
        for (size_t i = 0; i < step->count; i++)
            if (step->events[i]->span.bucket == bucket)
                maker->of_bucket[own.count++] = step->events[i];
        TRY(follow_bucket(maker, &own, bucket));
    }
    for (size_t i = 0; i < step->count; i++) {
        const yoke_trace_event *event = step->events[i];
        if (event->span.stage == YOKE_STAGE_REPLICATE) TRY(follow_weights(maker, before, event));
        TRY(follow_wait(maker, event));
    }
    return YOKE_OK;
}

static yoke_status follow_steps(const flow_maker *maker) {
    const yoke_trace_events *all = maker->all;
    step_events before = {0};
    for (size_t i = 0; i < all->step_count;) {
        step_events step = {.events = all->by_steps + i};
        for (; i < all->step_count && yoke_trace_same_step(all->by_steps[i], step.events[0]); i++)
            step.count++;
        TRY(follow_step(maker, &before, &step));
        before = step;
    }
    return YOKE_OK;
}

yoke_status yoke_trace_flows(const yoke_trace_events *all, yoke_flow_writer write, void *context) {
    size_t bytes = ((size_t)all->row_count + 1) * sizeof(yoke_trace_event *);
    flow_maker maker = {.all = all, .write = write, .context = context};
    maker.gradients = yoke_malloc(bytes);
    maker.of_bucket = yoke_malloc((all->count + 1) * sizeof(yoke_trace_event *));
    yoke_status status = maker.gradients != NULL && maker.of_bucket != NULL
                             ? follow_steps(&maker)
                             : FAIL_MEMORY(bytes, "the arrows of a trace");
    yoke_free(maker.of_bucket);
    yoke_free(maker.gradients);
    return status;
}
