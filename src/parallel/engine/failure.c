/* SPDX-License-Identifier: Apache-2.0 */
/* What a failed step leaves behind, and how its error names the cause. */
#include "parallel/engine/failure.h"

#include <stdio.h>

#include "parallel/engine/average.h"
#include "parallel/observers/observers.h"
#include "parallel/stages/stages.h"

typedef struct bad_layers {
    const yoke_step *step;
    const char *layers[YOKE_DEVICES_LIMIT]; /* NULL: every value of the last forward is finite */
} bad_layers;

static yoke_status find_bad_layer(int lane, void *context) {
    bad_layers *found = context;
    const yoke_step *step = found->step;
    bool idle = yoke_flight_is_idle(step, lane);
    found->layers[lane] = idle ? NULL : yoke_replica_first_nonfinite(step->lanes[lane].replica);
    return YOKE_OK;
}

/* What a step does behind its update. Running statistics that are kept already stay as they are. */
static yoke_status finish_step(yoke_data_parallel *parallel) {
    TRY(yoke_run_stage(&parallel->step, &yoke_stage_keep_statistics));
    yoke_count_update(&parallel->step, true);
    return yoke_average_update(parallel);
}

/* A step that failed after its update has been taken, though without a result; of any other one
 * the weights may be left. Part of the root's weights may be new: the other replicas follow it
 * again. No later step waits for what was queued before the failure, so this one does. */
static yoke_status recover(yoke_data_parallel *parallel, yoke_status status) {
    yoke_step *step = &parallel->step;
    /* The other ranks learn of it first: rank 0 may wait until they write no more weights. */
    yoke_error cause = yoke_error_take(yoke_ranks_report(step, status));
    yoke_change change = yoke_exchange_recover(step->exchange);
    (void)yoke_timeline_read(step);
    if (change != YOKE_CHANGED_ALL) {
        step->versions.weights++;
        (void)yoke_guard_restore(step);
    } else if (finish_step(parallel) != YOKE_OK) {
        change = YOKE_CHANGED_PART;
    }
    parallel->is_torn = change == YOKE_CHANGED_PART;
    return yoke_error_restore(&cause);
}

yoke_status yoke_step_failed(yoke_data_parallel *parallel, yoke_status status) {
    yoke_step *step = &parallel->step;
    char what[192] = "loss", where[160] = "";
    bad_layers found = {.step = step};
    if (step->exchange->kind->drop != NULL) step->exchange->kind->drop(step->exchange);
    if (status != YOKE_ERROR_NUMERIC) return recover(parallel, status);
    uint64_t bad = yoke_exchange_first_bad(step->exchange);
    if (bad != YOKE_ALL_FINITE)
        snprintf(what, sizeof what, "gradient of %s",
                 yoke_exchange_parameter_at(step->exchange, bad));
    TRY(yoke_apply(step, step->count, "loss", find_bad_layer, &found));
    TRY(yoke_guard_restore(step));
    for (int k = step->count - 1; k >= 0; k--)
        if (found.layers[k] != NULL)
            snprintf(where, sizeof where, ", first at %s on replica %d (%s)", found.layers[k], k,
                     yoke_device_name(step->lanes[k].device));
    return FAIL(YOKE_ERROR_NUMERIC,
                "step %llu: the %s is not finite%s. The weights are those before the step; try a "
                "lower learning rate, warm-up or gradient clipping",
                (unsigned long long)step->steps, what, where);
}
