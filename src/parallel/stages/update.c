/* SPDX-License-Identifier: Apache-2.0 */
/* update: one optimizer step on the root, from the gradient there; the other replicas become stale.
 */
#include "parallel/stages/stage_table.h"

static yoke_status update(yoke_step *step) {
    TRY(yoke_exchange_set_rate(step->exchange, step->flight.learning_rate));
    TRY(yoke_guard_end(step, step->exchange->kind->update(step->exchange), false));
    step->gradient.is_used = true;
    return YOKE_OK;
}

const yoke_stage_def yoke_stage_update = {
    .stage = YOKE_STAGE_UPDATE, .place = YOKE_ON_HOST, .work = update};
