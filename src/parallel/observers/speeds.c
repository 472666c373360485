/* SPDX-License-Identifier: Apache-2.0 */
/* How long each device computes, for options.auto_shares: after some steps the batch is dealt anew
 * if the slowest device would then be done clearly earlier. On devices that queue the timeline
 * measures, a step or two late. */
#include <stdlib.h>
#include <string.h>

#include "parallel/observers/observers.h"

/* A window is long enough to compare devices on a machine that also does other things. */
#define LEAST_STEPS 8
#define LEAST_NS 100000000u
#define LATE_STEPS                                                                                 \
    3 /* behind a new deal, which still bring times of the old one, and make plans                 \
       */

struct yoke_speeds {
    double
        seconds[YOKE_DEVICES_LIMIT]; /* of computing, in this window; each by its lane's worker */
    int steps;                       /* of this window; below 0: not yet */
    uint64_t begin_ns;
};

yoke_status yoke_speeds_create(yoke_step *step) {
    if (!step->options.auto_shares || step->count * step->ranks.world < 2) return YOKE_OK;
    step->watch.speeds = yoke_calloc(1, sizeof *step->watch.speeds);
    if (step->watch.speeds == NULL) return FAIL_MEMORY(sizeof *step->watch.speeds, "speeds");
    step->watch.speeds->steps = -LATE_STEPS;
    return YOKE_OK;
}

void yoke_speeds_add(yoke_step *step, int lane, yoke_stage stage, double seconds) {
    struct yoke_speeds *speeds = step->watch.speeds;
    bool computes =
        stage == YOKE_STAGE_FORWARD || stage == YOKE_STAGE_LOSS || stage == YOKE_STAGE_BACKWARD;
    if (speeds != NULL && computes) speeds->seconds[lane] += seconds;
}

static yoke_status after_bar(yoke_step *step, int lane, yoke_open_bar *open) {
    if (!step->queued && step->flight.training)
        yoke_speeds_add(step, lane, open->span.stage,
                        (double)(yoke_trace_now() - open->span.begin_ns) * 1e-9);
    return YOKE_OK;
}

static void begin_window(struct yoke_speeds *speeds, int steps) {
    memset(speeds->seconds, 0, sizeof speeds->seconds);
    speeds->steps = steps;
    speeds->begin_ns = yoke_trace_now();
}

static void after_step(yoke_step *step, uint64_t number) {
    struct yoke_speeds *speeds = step->watch.speeds;
    (void)number;
    speeds->steps++;
    if (speeds->steps == 0) begin_window(speeds, 0);
    if (step->ranks.world > 1) return; /* yoke_speeds_take reads it */
    if (speeds->steps < LEAST_STEPS || yoke_trace_now() - speeds->begin_ns < LEAST_NS) return;
    bool changed = yoke_deal_improve(step, speeds->seconds);
    if (changed) yoke_shards_deal(step);
    begin_window(speeds, changed ? -LATE_STEPS : 0);
}

double yoke_speeds_take(yoke_step *step) {
    struct yoke_speeds *speeds = step->watch.speeds;
    if (speeds == NULL || speeds->steps < LATE_STEPS) return 0;
    double seconds = speeds->seconds[0] / speeds->steps;
    begin_window(speeds, 0);
    return seconds;
}

const yoke_observer yoke_observe_speeds = {.after_bar = after_bar, .after_step = after_step};
