/* SPDX-License-Identifier: Apache-2.0 */
/* What a GPU does has the number of the call that asked for it, and the call lies in a stage of the
 * host. GPUs lag behind the host, so the steps of a GPU end when it has done what the host asked
 * for in them. */
#include <stdlib.h>

#include "base/base.h"
#include "doctor/analysis.h"

typedef struct launch {
    int64_t correlation, at_ns;
    int lane;
} launch;

static int by_correlation(const void *left, const void *right) {
    const launch *a = left, *b = right;
    return (a->correlation > b->correlation) - (a->correlation < b->correlation);
}

static const launch *find_launch(const launch *launches, size_t count, int64_t correlation) {
    launch key = {.correlation = correlation};
    if (count == 0 || correlation < 0) return NULL;
    return bsearch(&key, launches, count, sizeof key, by_correlation);
}

static bool travels(yoke_stage stage) {
    return stage == YOKE_STAGE_SCATTER || stage == YOKE_STAGE_REPLICATE ||
           stage == YOKE_STAGE_GATHER || stage == YOKE_STAGE_REDUCE;
}

static yoke_stage stage_of_work(const analysis *found, const doctor_name *name, const launch *asked,
                                int64_t at_ns) {
    yoke_stage around = asked != NULL ? analysis_stage_at(found, asked->lane, at_ns) : NO_STAGE;
    if (around == NO_STAGE) around = analysis_phase_at(found, at_ns);
    if (name->stage == NO_STAGE || ((name->marks & DOCTOR_FROM_HOST) && travels(around)))
        return around;
    return name->stage;
}

static void resolve(analysis *found, const launch *launches, size_t count) {
    const kineto_trace *trace = found->trace;
    for (size_t i = 0; i < trace->count; i++) {
        const kineto_span *span = &trace->spans[i];
        if (span->name->kind != DOCTOR_WORK) continue;
        const launch *asked = find_launch(launches, count, span->correlation);
        found->launch_ns[i] = asked != NULL ? asked->at_ns : span->begin_ns;
        found->stages[i] = (uint8_t)stage_of_work(found, span->name, asked, found->launch_ns[i]);
    }
}

static int64_t later(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* The host asks for work and goes on. A window shall begin and end when the GPU has done the work
 * that the host asked for before that moment. */
static yoke_status move_windows(analysis *found) {
    timed_list work = {0};
    size_t next = 0;
    int64_t done_ns = 0;
    yoke_status status = YOKE_OK;
    for (size_t i = 0; i < found->trace->count && status == YOKE_OK; i++)
        if (found->trace->spans[i].name->kind == DOCTOR_WORK)
            status = timed_add(&work, found->launch_ns[i], (double)i);
    timed_sort(&work);
    for (int w = 0; w < found->window_count && status == YOKE_OK; w++) {
        step_window *window = &found->windows[w];
        for (int edge = 0; edge < 2; edge++) {
            int64_t mark_ns = edge == 0 ? window->begin_ns : window->end_ns;
            for (; next < work.count && work.values[next].at_ns < mark_ns; next++)
                done_ns =
                    later(done_ns, found->trace->spans[(size_t)work.values[next].value].end_ns);
            *(edge == 0 ? &window->device_begin_ns : &window->device_end_ns) =
                later(mark_ns, done_ns);
        }
    }
    yoke_free(work.values);
    return status;
}

/* Those that compute, the root first: it updates the weights, and has done most. */
static yoke_status find_devices(analysis *found) {
    const kineto_trace *trace = found->trace;
    double *done = yoke_calloc((size_t)trace->lane_count + 1, sizeof *done);
    if (done == NULL)
        return FAIL_MEMORY((size_t)trace->lane_count * sizeof *done, "the GPUs of a trace");
    for (size_t i = 0; i < trace->count; i++) {
        const kineto_span *span = &trace->spans[i];
        yoke_stage stage = (yoke_stage)found->stages[i];
        if (span->name->kind != DOCTOR_WORK || stage == NO_STAGE) continue;
        if (analysis_window_at(found, found->launch_ns[i]) == NULL) continue;
        int device = (int)trace->lanes[span->lane].process, at = 0;
        while (at < found->device_count && found->devices[at] != device)
            at++;
        if (at == found->device_count) found->devices[found->device_count++] = device;
        double ns = (double)(span->end_ns - span->begin_ns);
        if (stage == YOKE_STAGE_UPDATE) ns *= 1e6;
        if (yoke_activity_of((int)stage) == YOKE_COMPUTES) done[at] += ns;
    }
    int root = 0;
    for (int i = 1; i < found->device_count; i++)
        root = done[i] > done[root] ? i : root;
    int first = found->devices[0];
    found->devices[0] = found->devices[root];
    found->devices[root] = first;
    yoke_free(done);
    return YOKE_OK;
}

yoke_status analysis_resolve_work(analysis *found) {
    const kineto_trace *trace = found->trace;
    size_t count = 0;
    if (!found->gpu) {
        found->device_count = 1;
        return YOKE_OK;
    }
    for (size_t i = 0; i < trace->count; i++)
        count += trace->spans[i].name->kind == DOCTOR_LAUNCH;
    launch *launches = yoke_malloc((count + 1) * sizeof *launches);
    if (launches == NULL) return FAIL_MEMORY(count * sizeof *launches, "the launches of a trace");
    count = 0;
    for (size_t i = 0; i < trace->count; i++) {
        const kineto_span *span = &trace->spans[i];
        if (span->name->kind == DOCTOR_LAUNCH)
            launches[count++] = (launch){span->correlation, span->begin_ns, span->lane};
    }
    qsort(launches, count, sizeof *launches, by_correlation);
    resolve(found, launches, count);
    yoke_free(launches);
    TRY(move_windows(found));
    return find_devices(found);
}
