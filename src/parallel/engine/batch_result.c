/* SPDX-License-Identifier: Apache-2.0 */
/* What batch_result.h promises. */
#include "parallel/engine/batch_result.h"

yoke_status yoke_result_check(yoke_step_result *result) {
    yoke_step_result none = {0};
    if (result == NULL) return YOKE_OK;
    return yoke_options_store(result, &none, sizeof none, "yoke_step_result");
}

yoke_status yoke_result_store(const yoke_step *step, yoke_step_result *result) {
    if (result == NULL) return YOKE_OK;
    yoke_step_result own = step->flight.result;
    own.loss = own.weight > 0 ? own.loss / own.weight : 0;
    if (!step->limits.labels) own.correct = -1;
    own.gradient_norm = step->flight.gradient_norm;
    return yoke_options_store(result, &own, sizeof own, "yoke_step_result");
}
