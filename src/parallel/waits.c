/* SPDX-License-Identifier: Apache-2.0 */
/* Waits of lanes that share memory, as spans of the trace. */
#include "parallel/waits.h"

#include "parallel/engine.h"

/* Less is the time to find out that there is nothing to wait for. */
#define WAIT_LEAST_NS 1000

static void record(const yoke_data_parallel *parallel, int lane, const yoke_wait *wait,
                   uint64_t step) {
    if (parallel->queued || yoke_trace_now() - wait->begin_ns < WAIT_LEAST_NS) return;
    yoke_trace_end_span(parallel->trace, lane,
                        &(yoke_span){.begin_ns = wait->begin_ns,
                                     .step = step,
                                     .stage = YOKE_STAGE_WAIT,
                                     .bucket = wait->bucket,
                                     .awaits = wait->awaits});
}

void yoke_wait_end(const yoke_data_parallel *parallel, int lane, const yoke_wait *wait) {
    record(parallel, lane, wait, parallel->steps);
}

bool yoke_idle_counts(const yoke_data_parallel *parallel) {
    return parallel->timeline.in_step;
}

void yoke_idle_begin(yoke_data_parallel *parallel, int lane) {
    parallel->lanes[lane].idle_ns = yoke_trace_now();
}

static void end_idle(yoke_data_parallel *parallel, int lane, uint64_t step) {
    yoke_lane *own = &parallel->lanes[lane];
    yoke_wait wait = {own->idle_ns, YOKE_STAGE_LOAD, YOKE_NO_BUCKET};
    own->idle_ns = 0;
    if (wait.begin_ns > 0) record(parallel, lane, &wait, step);
}

void yoke_idle_end(yoke_data_parallel *parallel, int lane) {
    end_idle(parallel, lane, parallel->steps);
}

void yoke_waits_begin(yoke_data_parallel *parallel) {
    parallel->timeline.in_step = !parallel->queued && parallel->count > 1;
    parallel->lanes[0].idle_ns = 0;
    for (int lane = 1; lane < parallel->count; lane++)
        yoke_idle_begin(parallel, lane);
}

/* The engine has counted the step by now. */
void yoke_waits_end(yoke_data_parallel *parallel, uint64_t step) {
    for (int lane = 1; parallel->timeline.in_step && lane < parallel->count; lane++)
        end_idle(parallel, lane, step);
    parallel->timeline.in_step = false;
}
