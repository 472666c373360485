/* SPDX-License-Identifier: Apache-2.0 */
/* loss: every lane compares the outputs of its shard with labels or targets, and computes the
 * gradient, divided by what the labels of the whole batch weigh. */
#include "parallel/stages/stage_table.h"

static yoke_status compute(yoke_step *step, int lane, yoke_span *span) {
    yoke_plan_step plan_step = yoke_lane_plan_step(step, lane);
    (void)span;
    TRY(yoke_replica_loss(step->lanes[lane].replica, &plan_step));
    return yoke_lane_download_scalars(&step->lanes[lane]);
}

const yoke_bar yoke_bar_loss = {.stage = YOKE_STAGE_LOSS, .on_stream = true, .work = compute};

yoke_status yoke_lane_loss(int lane, void *context) {
    yoke_step *step = context;
    const yoke_lane *own = &step->lanes[lane];
    if (own->shard.rows == 0 || own->bad_statistics) return YOKE_OK;
    TRY(yoke_run_bar(step, &yoke_bar_loss, lane, YOKE_NO_BUCKET));
    return yoke_device_event_record(own->events.losses, YOKE_STREAM_COMPUTE);
}

static yoke_status end(yoke_step *step) {
    step->flight.losses_known = true;
    return YOKE_OK;
}

const yoke_stage_def yoke_stage_loss = {.stage = YOKE_STAGE_LOSS,
                                        .place = YOKE_ON_LANES,
                                        .lane = yoke_lane_loss,
                                        .end = end,
                                        .progress = YOKE_STAGE_LOSS};
