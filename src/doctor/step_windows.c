/* SPDX-License-Identifier: Apache-2.0 */
/* Steps, as the profiler marks them; else they end where an optimizer's step does, or begin where
 * the wrapped model's forward does. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "doctor/analysis.h"

#define WINDOWS_MOST 1000000

static yoke_status add_window(analysis *found, int64_t begin_ns, int64_t end_ns) {
    if (end_ns <= begin_ns || found->window_count == WINDOWS_MOST) return YOKE_OK;
    /* A power of two is full. */
    size_t count = (size_t)found->window_count;
    if ((count & (count - 1)) == 0) {
        size_t bytes = (count > 0 ? 2 * count : 1) * sizeof *found->windows;
        step_window *larger = yoke_realloc(found->windows, bytes);
        if (larger == NULL) return FAIL_MEMORY(bytes, "the steps of a trace");
        found->windows = larger;
    }
    found->windows[found->window_count++] = (step_window){.begin_ns = begin_ns,
                                                          .end_ns = end_ns,
                                                          .device_begin_ns = begin_ns,
                                                          .device_end_ns = end_ns,
                                                          .forward_begin_ns = NEVER,
                                                          .backward_begin_ns = NEVER};
    return YOKE_OK;
}

static int by_begin(const void *left, const void *right) {
    const step_window *a = left, *b = right;
    return (a->begin_ns > b->begin_ns) - (a->begin_ns < b->begin_ns);
}

static bool marks_optimizer(const kineto_span *span) {
    return (span->name->marks & DOCTOR_OPTIMIZER) != 0;
}

static bool marks_forward(const kineto_span *span) {
    return (span->name->marks & DOCTOR_FORWARD) != 0;
}

/* The lane of the first span that fits; -1: none. */
static int lane_with(const analysis *found, bool (*fits)(const kineto_span *span)) {
    for (size_t i = 0; i < found->trace->count; i++)
        if (fits(&found->trace->spans[i])) return found->trace->spans[i].lane;
    return -1;
}

static yoke_status add_marked(analysis *found) {
    const kineto_trace *trace = found->trace;
    for (size_t i = 0; i < trace->count; i++) {
        const kineto_span *span = &trace->spans[i];
        if (span->name->kind != DOCTOR_STEP) continue;
        if (found->main_lane < 0) found->main_lane = span->lane;
        if (span->lane == found->main_lane) TRY(add_window(found, span->begin_ns, span->end_ns));
    }
    found->windows_from = "ProfilerStep";
    return YOKE_OK;
}

/* Between two spans that fit: from end to end, or from begin to begin. */
static yoke_status add_repeated(analysis *found, bool (*fits)(const kineto_span *span), bool ends) {
    const kineto_trace *trace = found->trace;
    int64_t last_ns = -1;
    int lane = lane_with(found, fits);
    for (size_t i = 0; i < trace->count; i++) {
        const kineto_span *span = &trace->spans[i];
        if (span->lane != lane || !fits(span)) continue;
        int64_t at_ns = ends ? span->end_ns : span->begin_ns;
        if (last_ns >= 0) TRY(add_window(found, last_ns, at_ns));
        last_ns = at_ns;
    }
    if (found->window_count > 0) found->main_lane = lane;
    return YOKE_OK;
}

/* Windows do not overlap: a step that the profiler marks twice counts once. */
static void drop_overlaps(analysis *found) {
    int kept = 0;
    qsort(found->windows, (size_t)found->window_count, sizeof *found->windows, by_begin);
    for (int i = 0; i < found->window_count; i++)
        if (kept == 0 || found->windows[i].begin_ns >= found->windows[kept - 1].end_ns)
            found->windows[kept++] = found->windows[i];
    found->window_count = kept;
}

step_window *analysis_window_at(const analysis *found, int64_t at_ns) {
    int low = 0, high = found->window_count;
    while (low < high) { /* the first that ends behind the time */
        int middle = low + (high - low) / 2;
        if (found->windows[middle].end_ns <= at_ns)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == found->window_count || found->windows[low].begin_ns > at_ns) return NULL;
    return &found->windows[low];
}

static void note_times(analysis *found) {
    for (size_t i = 0; i < found->trace->count; i++) {
        const kineto_span *span = &found->trace->spans[i];
        if (span->name->kind != DOCTOR_SPAN) continue;
        step_window *window = analysis_window_at(found, span->begin_ns);
        if (window == NULL) continue;
        if (marks_optimizer(span) && span->end_ns > window->optimizer_end_ns)
            window->optimizer_end_ns = span->end_ns;
        if (marks_forward(span)) {
            if (span->begin_ns < window->forward_begin_ns)
                window->forward_begin_ns = span->begin_ns;
            if (span->end_ns > window->forward_end_ns) window->forward_end_ns = span->end_ns;
        }
        if (span->name->stage != YOKE_STAGE_BACKWARD) continue;
        if (span->begin_ns < window->backward_begin_ns) window->backward_begin_ns = span->begin_ns;
        if (span->begin_ns > window->backward_last_ns) window->backward_last_ns = span->begin_ns;
        if (span->end_ns > window->backward_end_ns) window->backward_end_ns = span->end_ns;
    }
}

yoke_status analysis_find_windows(analysis *found, const char *name) {
    TRY(add_marked(found));
    if (found->window_count == 0) {
        found->windows_from = "the optimizer's steps";
        TRY(add_repeated(found, marks_optimizer, true));
    }
    if (found->window_count == 0) {
        found->windows_from = "forward";
        TRY(add_repeated(found, marks_forward, false));
    }
    if (found->window_count == 0)
        return FAIL(YOKE_ERROR_DATA,
                    "%s is a trace of PyTorch's profiler without steps%s%s: call prof.step() after "
                    "each step and profile three or more of them, schedule(wait=1, warmup=1, "
                    "active=5)",
                    name, found->trace->end[0] != '\0' ? "; " : "", found->trace->end);
    drop_overlaps(found);
    note_times(found);
    return YOKE_OK;
}

yoke_stage analysis_phase_at(const analysis *found, int64_t at_ns) {
    const step_window *window = analysis_window_at(found, at_ns);
    if (window == NULL) return NO_STAGE;
    if (window->forward_end_ns > 0) {
        if (at_ns < window->forward_begin_ns) return YOKE_STAGE_LOAD;
        if (at_ns < window->forward_end_ns) return YOKE_STAGE_FORWARD;
        if (at_ns < window->backward_last_ns) return YOKE_STAGE_LOSS;
    } else if (at_ns < window->backward_last_ns) {
        return YOKE_STAGE_FORWARD;
    }
    if (at_ns < window->backward_end_ns) return YOKE_STAGE_BACKWARD;
    return at_ns < window->optimizer_end_ns ? YOKE_STAGE_UPDATE : NO_STAGE;
}

/* In other threads replicas run their forward. */
void analysis_resolve_operations(analysis *found) {
    for (size_t i = 0; i < found->trace->count; i++) {
        const kineto_span *span = &found->trace->spans[i];
        if (span->name->kind != DOCTOR_OPERATION) continue;
        found->stages[i] = (uint8_t)analysis_phase_at(found, span->begin_ns);
    }
}
