/* SPDX-License-Identifier: Apache-2.0 */
/* Collects the spans of all processes, and finds the cause of each wait from when other lanes ended
 * their work. Recording a wait costs one span; who was waited for is worked out here. */
#include "trace/events.h"

#include <stdlib.h>

#include "base/base.h"

#define NESTING_MOST 8
#define ANYTHING YOKE_STAGE_LOAD /* of yoke_span.awaits */

/* Order. */

static int compare_numbers(uint64_t a, uint64_t b) {
    return (a > b) - (a < b);
}

/* Outer spans first: viewers nest events that begin together in file order, and a lane records an
 * inner span before the outer one. */
static int compare_places(const void *left, const void *right) {
    const yoke_trace_event *a = left, *b = right;
    if (a->row != b->row) return a->row - b->row;
    if (a->span.track != b->span.track) return (int)a->span.track - (int)b->span.track;
    if (a->span.begin_ns != b->span.begin_ns)
        return compare_numbers(a->span.begin_ns, b->span.begin_ns);
    return compare_numbers(b->span.end_ns, a->span.end_ns);
}

static int compare_ends(const void *left, const void *right) {
    const yoke_trace_event *a = *(yoke_trace_event *const *)left;
    const yoke_trace_event *b = *(yoke_trace_event *const *)right;
    if (a->engine != b->engine) return a->engine - b->engine;
    if (a->span.step != b->span.step) return compare_numbers(a->span.step, b->span.step);
    if (a->span.end_ns != b->span.end_ns) return compare_numbers(a->span.end_ns, b->span.end_ns);
    return (a > b) - (a < b);
}

/* Causes. */

static bool is_work(yoke_stage stage) {
    return stage != YOKE_STAGE_WAIT && stage != YOKE_STAGE_STEP && stage != YOKE_STAGE_EVALUATE;
}

/* Lanes of one process wait for each other, ranks of one lane each for other ranks. */
static bool can_end(const yoke_trace_events *all, const yoke_trace_event *work,
                    const yoke_trace_event *wait) {
    const yoke_span *awaited = &wait->span;
    bool among_lanes = all->processes[wait->process].trace->lane_count > 1;
    if (work->row == wait->row || (among_lanes && work->process != wait->process)) return false;
    if (awaited->awaits == ANYTHING) return is_work(work->span.stage);
    return work->span.stage == awaited->awaits &&
           (awaited->bucket == YOKE_NO_BUCKET || work->span.bucket == awaited->bucket);
}

/* The work that ended last before the wait did. What ended before the wait began is no cause. */
static void find_cause(const yoke_trace_events *all, size_t index) {
    yoke_trace_event *wait = all->by_steps[index];
    if (wait->span.stage != YOKE_STAGE_WAIT) return;
    while (index-- > 0) {
        const yoke_trace_event *work = all->by_steps[index];
        if (!yoke_trace_same_step(work, wait) || work->span.end_ns <= wait->span.begin_ns) return;
        if (!can_end(all, work, wait)) continue;
        wait->cause = work;
        return;
    }
}

/* Life. */

static void add_process(yoke_trace_events *all, int process) {
    const yoke_trace *trace = all->processes[process].trace;
    uint64_t shift = (uint64_t)all->processes[process].shift_ns;
    for (int lane = 0; lane < trace->lane_count; lane++, all->row_count++) {
        for (uint32_t i = 0; i < yoke_lane_count(trace, lane); i++) {
            yoke_trace_event *event = &all->list[all->count++];
            *event = (yoke_trace_event){.span = *yoke_lane_span(trace, lane, i),
                                        .process = process,
                                        .lane = lane,
                                        .engine = all->processes[process].engine,
                                        .row = all->row_count};
            event->span.begin_ns += shift;
            event->span.end_ns += shift;
        }
    }
}

yoke_status yoke_trace_events_open(yoke_trace_events *all, const yoke_trace_process *processes,
                                   int count) {
    size_t spans = 0;
    for (int process = 0; process < count; process++)
        for (int lane = 0; lane < processes[process].trace->lane_count; lane++)
            spans += yoke_lane_count(processes[process].trace, lane);
    *all = (yoke_trace_events){.processes = processes, .process_count = count};
    all->list = yoke_malloc((spans + 1) * sizeof *all->list);
    all->by_steps = yoke_malloc((spans + 1) * sizeof(yoke_trace_event *));
    if (all->list == NULL || all->by_steps == NULL)
        return FAIL_MEMORY(spans * sizeof *all->list, "sorting a trace");
    for (int process = 0; process < count; process++)
        add_process(all, process);
    qsort(all->list, all->count, sizeof *all->list, compare_places);
    /* Viewers keep a stack for each thread, and drop a span that begins in one and ends behind it.
     * A GPU's events measure to half a microsecond, so that a span seems to reach into the next
     * one: it then ends where that one begins. */
    yoke_trace_event *open[NESTING_MOST];
    size_t depth = 0;
    for (size_t i = 0; i < all->count; i++) {
        yoke_trace_event *event = &all->list[i];
        if (i == 0 || event->row != event[-1].row || event->span.track != event[-1].span.track)
            depth = 0;
        while (depth > 0 && open[depth - 1]->span.end_ns < event->span.end_ns) {
            yoke_span *before = &open[--depth]->span;
            if (before->end_ns > event->span.begin_ns) before->end_ns = event->span.begin_ns;
        }
        if (depth < NESTING_MOST) open[depth++] = event;
    }
    for (size_t i = 0; i < all->count; i++)
        if (all->list[i].span.track != YOKE_TRACK_LINK)
            all->by_steps[all->step_count++] = &all->list[i];
    qsort(all->by_steps, all->step_count, sizeof(yoke_trace_event *), compare_ends);
    for (size_t i = 0; i < all->step_count; i++)
        find_cause(all, i);
    return YOKE_OK;
}

void yoke_trace_events_close(yoke_trace_events *all) {
    yoke_free(all->by_steps);
    yoke_free(all->list);
}
