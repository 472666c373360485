/* SPDX-License-Identifier: Apache-2.0 */
/* The all-gathers of batch norms: of lanes over two buffers and a barrier, of ranks over their
 * process group. */
#include "parallel/stages/sync_batch_norm.h"

#include <stdlib.h>
#include <string.h>

typedef struct sync_lane {
    yoke_norm_group group;
    yoke_step *step;
    int lane;
    int gathers; /* in this micro-batch so far */
} sync_lane;

struct yoke_sync_norm {
    /* [participants, numbers of one]. Two are enough: a lane that writes for an all-gather has
     * waited for all lanes at the one before it, so all have read the one before that. */
    double *gathered[2];
    sync_lane *lanes; /* [lanes] */
};

static yoke_status gather_from_lanes(void *context, const double *own, size_t count,
                                     const double **all) {
    sync_lane *lane = context;
    yoke_step *step = lane->step;
    double *gathered = step->sync_norm->gathered[lane->gathers++ % 2];
    memcpy(gathered + (size_t)lane->lane * count, own, count * sizeof *own);
    *all = gathered;
    return yoke_workers_barrier(step->workers);
}

/* Comes in the same order among the all-reduces of buckets on every rank. */
static yoke_status gather_from_ranks(void *context, const double *own, size_t count,
                                     const double **all) {
    sync_lane *lane = context;
    yoke_step *step = lane->step;
    double *gathered = step->sync_norm->gathered[lane->gathers++ % 2];
    *all = gathered;
    return yoke_process_group_all_gather(step->ranks.process_group, gathered, own, count,
                                         YOKE_ELEMENT_FLOAT64);
}

yoke_status yoke_sync_norm_create(yoke_step *step) {
    int world = step->ranks.world, participants = world > 1 ? world : step->count;
    size_t channels = (size_t)yoke_model_norm_channels(step->model);
    if (!step->options.synchronize_batch_norm || channels == 0 || participants == 1) return YOKE_OK;
    struct yoke_sync_norm *sync = step->sync_norm = yoke_calloc(1, sizeof *sync);
    if (sync == NULL) return FAIL_MEMORY(sizeof *sync, "synchronised batch norm");
    sync->lanes = yoke_calloc((size_t)step->count, sizeof *sync->lanes);
    size_t doubles = (size_t)participants * (1 + 2 * channels); /* count, mean, deviation */
    for (int i = 0; i < 2; i++)
        sync->gathered[i] = yoke_calloc(doubles, sizeof(double));
    if (sync->lanes == NULL || sync->gathered[0] == NULL || sync->gathered[1] == NULL)
        return FAIL_MEMORY(2 * doubles * sizeof(double), "synchronised batch norm");
    for (int k = 0; k < step->count; k++) {
        sync_lane *lane = &sync->lanes[k];
        *lane = (sync_lane){.step = step, .lane = k};
        lane->group =
            (yoke_norm_group){.participants = participants,
                              .all_gather = world > 1 ? gather_from_ranks : gather_from_lanes,
                              .context = lane};
    }
    return YOKE_OK;
}

void yoke_sync_norm_destroy(struct yoke_sync_norm *sync) {
    if (sync == NULL) return;
    yoke_free(sync->lanes);
    yoke_free(sync->gathered[1]);
    yoke_free(sync->gathered[0]);
    yoke_free(sync);
}

yoke_norm_group *yoke_sync_norm_group(const yoke_step *step, int lane) {
    return step->sync_norm != NULL ? &step->sync_norm->lanes[lane].group : NULL;
}

static bool gathers(const yoke_step *step) {
    return step->sync_norm != NULL && step->flight.training;
}

void yoke_sync_norm_begin(const yoke_step *step, int lane) {
    if (!gathers(step)) return;
    step->sync_norm->lanes[lane].gathers = 0;
    step->sync_norm->lanes[lane].group.found_nonfinite = false;
}

/* A lane whose own values ended its forward early takes part in the remaining all-gathers, as the
 * others wait for it. */
yoke_status yoke_sync_norm_end(const yoke_step *step, int lane, yoke_status status) {
    if (!gathers(step) || (status != YOKE_OK && status != YOKE_ERROR_NUMERIC)) return status;
    const sync_lane *own = &step->sync_norm->lanes[lane];
    yoke_error error = yoke_error_take(status);
    TRY(yoke_replica_idle_forward(step->lanes[lane].replica, own->gathers));
    if (status == YOKE_ERROR_NUMERIC) return yoke_error_restore(&error);
    if (!own->group.found_nonfinite) return YOKE_OK;
    return FAIL(YOKE_ERROR_NUMERIC, "the statistics of a batch norm are not finite");
}

yoke_status yoke_sync_norm_idle_segment(const yoke_step *step, int lane, int segment) {
    if (!gathers(step)) return YOKE_OK;
    return yoke_replica_idle_segment(step->lanes[lane].replica, segment);
}
