/* SPDX-License-Identifier: Apache-2.0 */
/* replicate: the root's weights go to the replicas whose version is behind the root's; frozen ones,
 * which lie behind the others, only where they changed too. */
#include "parallel/engine.h"
#include "parallel/stages.h"

/* A training forward does not read running statistics, and only the root's are kept. */
yoke_status yoke_replicate_stale(yoke_data_parallel *parallel, bool buffers) {
    const yoke_flat *flat = parallel->flat;
    size_t weights = 0;
    bool stale_buffers = false;
    for (int k = 1; k < parallel->count; k++) {
        const yoke_lane *lane = &parallel->lanes[k];
        if (lane->weights_version != parallel->weights_version && weights == 0)
            weights = flat->trainable_elements;
        if (lane->weights_version < parallel->frozen_version) weights = flat->elements;
        stale_buffers |= buffers && lane->buffers_version != parallel->buffers_version;
    }
    if (weights == 0 && !stale_buffers) return YOKE_OK;
    TRY(parallel->exchange->kind->replicate(parallel->exchange, weights, stale_buffers));
    for (int k = 1; k < parallel->count; k++) {
        parallel->lanes[k].weights_version = parallel->weights_version;
        if (stale_buffers) parallel->lanes[k].buffers_version = parallel->buffers_version;
    }
    return YOKE_OK;
}

yoke_status yoke_replicate(yoke_data_parallel *parallel) {
    TRY(yoke_enter_settled(parallel, "yoke_replicate"));
    yoke_interpreter_forget(parallel);
    TRY(yoke_leave(parallel, yoke_replicate_stale(parallel, true)));
    yoke_interpreter_rebuild(parallel);
    return YOKE_OK;
}
