/* replicate: the root's weights go to the replicas whose version is behind the root's. */
#include "parallel/engine.h"
#include "parallel/stages.h"

/* A training forward does not read running statistics, and only the root's are kept. */
yoke_status yoke_replicate_stale(yoke_data_parallel *parallel, bool buffers) {
    bool stale_weights = false, stale_buffers = false;
    for (int k = 1; k < parallel->count; k++) {
        const yoke_lane *lane = &parallel->lanes[k];
        stale_weights |= lane->weights_version != parallel->weights_version;
        stale_buffers |= buffers && lane->buffers_version != parallel->buffers_version;
    }
    if (!stale_weights && !stale_buffers) return YOKE_OK;
    TRY(parallel->exchange->kind->replicate(parallel->exchange, stale_weights, stale_buffers));
    for (int k = 1; k < parallel->count; k++) {
        parallel->lanes[k].weights_version = parallel->weights_version;
        if (stale_buffers) parallel->lanes[k].buffers_version = parallel->buffers_version;
    }
    return YOKE_OK;
}

yoke_status yoke_replicate(yoke_data_parallel *parallel) {
    TRY(yoke_pointer_check(parallel, "parallel"));
    return yoke_replicate_stale(parallel, true);
}
