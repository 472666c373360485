/* SPDX-License-Identifier: Apache-2.0 */
/* A lane on the CPU without a job waits, in a step, for another lane or for the root's worker,
 * which gives out the jobs. On GPUs, streams wait for each other and record nothing. */
#include "parallel/observers/observers.h"

static void begin_idle(yoke_step *step, int lane) {
    step->lanes[lane].idle_ns = yoke_trace_now();
}

static void end_idle(yoke_step *step, int lane, uint64_t number) {
    yoke_span wait = yoke_wait_begin(YOKE_STAGE_LOAD, YOKE_NO_BUCKET);
    wait.begin_ns = step->lanes[lane].idle_ns;
    wait.step = number;
    step->lanes[lane].idle_ns = 0;
    if (wait.begin_ns > 0) yoke_wait_end(step, lane, &wait);
}

void yoke_idle_end(yoke_step *step, int lane) {
    end_idle(step, lane, step->steps);
}

/* During a step only the root's lane works from the start. */
static void before_step(yoke_step *step) {
    step->watch.in_step = true;
    step->lanes[0].idle_ns = 0;
    for (int lane = 1; lane < step->count; lane++)
        begin_idle(step, lane);
}

/* The step has counted itself by now. */
static void after_step(yoke_step *step, uint64_t number) {
    for (int lane = 1; lane < step->count; lane++)
        end_idle(step, lane, number);
    step->watch.in_step = false;
}

static void before_job(yoke_step *step, int lane) {
    if (step->watch.in_step) yoke_idle_end(step, lane);
}

static void after_job(yoke_step *step, int lane) {
    if (step->watch.in_step) begin_idle(step, lane);
}

/* A lane that was done waited for the last one, and waits for the next job: on modelled links until
 * its transfer is over, which after_stage of modelled_links.c knows. */
static void after_jobs(yoke_step *step, int lanes) {
    for (int lane = 0; step->watch.in_step && lane < lanes; lane++) {
        if (lane > 0 && step->watch.modelled != NULL) continue;
        yoke_idle_end(step, lane);
        if (lane > 0) begin_idle(step, lane);
    }
}

const yoke_observer yoke_observe_waits = {.before_step = before_step,
                                          .after_step = after_step,
                                          .before_job = before_job,
                                          .after_job = after_job,
                                          .after_jobs = after_jobs};
