/* SPDX-License-Identifier: Apache-2.0 */
/* reduce: the sum of the replicas' gradients on the root, the whole at once. The loss gradient was
 * divided by the weight of the whole batch at its source, so the sum is plain, whatever the shards.
 */
#include "parallel/stages/no_sync.h"
#include "parallel/stages/stage_table.h"

/* Reducing twice must not add twice. Gradients that no_sync has added up outlive their batch:
 * another one may be in flight. */
static yoke_status reduce(yoke_step *step) {
    yoke_flight *flight = &step->flight;
    yoke_stage progress = flight->progress;
    if (step->gradient.on_root) return YOKE_OK;
    if (progress == YOKE_STAGE_BACKWARD) flight->progress = YOKE_STAGE_SCATTER;
    TRY(yoke_reach_agree(step));
    TRY(step->exchange->kind->reduce(step->exchange));
    flight->progress = progress;
    step->gradient.on_root = true;
    step->gradient.is_used = false;
    return YOKE_OK;
}

static yoke_status begin(yoke_step *step) {
    return step->gradient.on_root ? YOKE_OK : yoke_unsynced_take(step);
}

static bool travels(const yoke_step *step) {
    return !step->gradient.on_root && step->flight.contributors > 1 &&
           !step->exchange->kind->times_itself;
}

static size_t bytes(const yoke_step *step, int lane) {
    return lane < step->flight.contributors ? step->flat->trainable_elements * sizeof(float) : 0;
}

const yoke_stage_def yoke_stage_reduce = {.stage = YOKE_STAGE_REDUCE,
                                          .place = YOKE_ON_HOST,
                                          .begin = begin,
                                          .work = reduce,
                                          .bytes = bytes,
                                          .travels = travels,
                                          .to_root = true};
