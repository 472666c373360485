/* SPDX-License-Identifier: Apache-2.0 */
/* replicate: the root's weights go to the replicas whose version is behind the root's; frozen ones,
 * which lie behind the others, only where they changed too. */
#include "parallel/stages/stage_table.h"

/* A training forward reads no running statistics but the fixed ones, and only the root's are kept.
 */
static bool trains_with_buffers(const yoke_step *step) {
    return step->fixed_statistics != NULL;
}

static yoke_stale find_stale(const yoke_step *step, bool buffers) {
    yoke_stale stale = {0};
    for (int k = 1; k < step->count; k++) {
        const yoke_lane *lane = &step->lanes[k];
        if (lane->weights_version != step->versions.weights && stale.weights == 0)
            stale.weights = step->flat->trainable_elements;
        if (lane->weights_version < step->versions.frozen) stale.weights = step->flat->elements;
        stale.buffers |= buffers && lane->buffers_version != step->versions.buffers;
    }
    return stale;
}

static yoke_status replicate(yoke_step *step, bool buffers) {
    yoke_stale stale = find_stale(step, buffers);
    if (stale.weights == 0 && !stale.buffers) return YOKE_OK;
    step->exchange->stale = stale;
    TRY(step->exchange->kind->replicate(step->exchange));
    for (int k = 1; k < step->count; k++) {
        step->lanes[k].weights_version = step->versions.weights;
        if (stale.buffers) step->lanes[k].buffers_version = step->versions.buffers;
    }
    return YOKE_OK;
}

/* What a lane gets. */
static size_t stale_bytes(const yoke_step *step, int lane, bool buffers) {
    yoke_stale stale = find_stale(step, buffers);
    const yoke_lane *own = &step->lanes[lane];
    size_t elements = own->weights_version != step->versions.weights ? stale.weights : 0;
    if (stale.buffers && own->buffers_version != step->versions.buffers)
        elements += step->flat->buffer_elements;
    return elements * sizeof(float);
}

static bool is_stale(const yoke_step *step, bool buffers) {
    yoke_stale stale = find_stale(step, buffers);
    return stale.weights > 0 || stale.buffers;
}

static yoke_status replicate_all(yoke_step *step) {
    return replicate(step, true);
}

static size_t bytes_of_all(const yoke_step *step, int lane) {
    return stale_bytes(step, lane, true);
}

static bool all_travel(const yoke_step *step) {
    return is_stale(step, true);
}

static yoke_status replicate_weights(yoke_step *step) {
    return replicate(step, trains_with_buffers(step));
}

static size_t bytes_of_weights(const yoke_step *step, int lane) {
    return stale_bytes(step, lane, trains_with_buffers(step));
}

static bool weights_travel(const yoke_step *step) {
    return is_stale(step, trains_with_buffers(step));
}

const yoke_stage_def yoke_stage_replicate = {.stage = YOKE_STAGE_REPLICATE,
                                             .place = YOKE_ON_HOST,
                                             .work = replicate_all,
                                             .bytes = bytes_of_all,
                                             .travels = all_travel};
const yoke_stage_def yoke_stage_replicate_weights = {.stage = YOKE_STAGE_REPLICATE,
                                                     .place = YOKE_ON_HOST,
                                                     .work = replicate_weights,
                                                     .bytes = bytes_of_weights,
                                                     .travels = weights_travel};
