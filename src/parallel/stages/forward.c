/* SPDX-License-Identifier: Apache-2.0 */
/* forward: every lane computes the outputs of its shard. */
#include <math.h>

#include "parallel/stages/scatter.h"
#include "parallel/stages/stage_table.h"
#include "parallel/stages/sync_batch_norm.h"

static yoke_status compute(yoke_step *step, int lane, yoke_span *span) {
    const yoke_lane *own = &step->lanes[lane];
    yoke_plan_step plan_step = yoke_lane_plan_step(step, lane);
    (void)span;
    return yoke_replica_forward(own->replica, own->shard.rows, step->flight.training, &plan_step);
}

const yoke_bar yoke_bar_forward = {.stage = YOKE_STAGE_FORWARD, .on_stream = true, .work = compute};

yoke_status yoke_lane_forward(int lane, void *context) {
    yoke_step *step = context;
    yoke_status status = YOKE_OK;
    TRY(yoke_lane_unpack(step, lane));
    yoke_sync_norm_begin(step, lane);
    if (step->lanes[lane].shard.rows > 0)
        status = yoke_run_bar(step, &yoke_bar_forward, lane, YOKE_NO_BUCKET);
    return yoke_sync_norm_end(step, lane, status);
}

yoke_status yoke_lane_forward_or_nan(yoke_step *step, int lane) {
    yoke_status status = yoke_lane_forward(lane, step);
    if (status != YOKE_ERROR_NUMERIC) return status;
    step->lanes[lane].bad_statistics = true;
    *step->lanes[lane].memory->on_host = (yoke_loss_scalars){.loss_sum = NAN};
    return YOKE_OK;
}

static yoke_status begin(yoke_step *step) {
    yoke_flight *flight = &step->flight;
    flight->losses_known = false;
    flight->reached = YOKE_OUTPUT_0; /* unless a backward has gradients of its own */
    flight->progress = YOKE_STAGE_SCATTER;
    flight->loss_only = false; /* they can be gathered behind this stage */
    step->gradient.of_inputs = false;
    if (flight->training) yoke_count_forward(step);
    return YOKE_OK;
}

const yoke_stage_def yoke_stage_forward = {.stage = YOKE_STAGE_FORWARD,
                                           .place = YOKE_ON_REPLICAS,
                                           .begin = begin,
                                           .lane = yoke_lane_forward,
                                           .progress = YOKE_STAGE_FORWARD};
