/* SPDX-License-Identifier: Apache-2.0 */
/* update: one optimizer step on the root, from the gradient there; the other replicas become stale.
 */
#include "parallel/stages/stage_table.h"

static yoke_status update(yoke_step *step) {
    TRY(yoke_exchange_set_rate(step->exchange, step->flight.learning_rate));
    yoke_status status = step->exchange->kind->update(step->exchange);
    bool skips = yoke_guard_skips(step, status);
    if (!skips) TRY(status);
    step->gradient.is_used = true;
    if (skips) return yoke_guard_skip(step);
    step->versions.weights++;
    yoke_models_count(step);
    yoke_loss_scaler_count(step);
    step->steps++;
    return YOKE_OK;
}

const yoke_stage_def yoke_stage_update = {
    .stage = YOKE_STAGE_UPDATE, .place = YOKE_ON_HOST, .work = update};
