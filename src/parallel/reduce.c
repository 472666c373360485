/* reduce: the replicas' gradients summed onto the root, in replica order. The loss gradient was
 * scaled by 1 / rows of the whole batch at its source, so the sum is plain whatever the shards. */
#include "parallel/engine.h"

static yoke_status reduce_slices(int worker, void *context) {
    yoke_data_parallel *parallel = context;
    for (int bucket = 0; bucket < parallel->flat->bucket_count; bucket++) {
        uint64_t begin = yoke_trace_now();
        size_t offset, elements;
        yoke_bucket_slice(parallel, bucket, worker, &offset, &elements);
        const float *from[YOKE_DEVICES_LIMIT];
        for (int k = 0; k < parallel->contributors; k++)
            from[k] = yoke_replica_memory_of(parallel->replicas[k])->gradients + offset;
        float *to = yoke_replica_memory_of(parallel->replicas[0])->gradients + offset;
        TRY(yoke_device_sum(yoke_devices_at(parallel->devices, worker), YOKE_STREAM_COMPUTE, to,
                            from, parallel->contributors, elements));
        yoke_trace_span(parallel->trace, worker, YOKE_STAGE_REDUCE, parallel->steps, begin,
                        ((size_t)parallel->contributors + 1) * elements * sizeof(float));
    }
    return YOKE_OK;
}

yoke_status yoke_reduce(yoke_data_parallel *parallel) {
    TRY(yoke_check_progress(parallel, "yoke_reduce", YOKE_STAGE_BACKWARD, YOKE_STAGE_BACKWARD));
    if (parallel->gradient_on_root) return YOKE_OK; /* reducing twice must not add twice */
    parallel->progress = YOKE_STAGE_SCATTER;
    if (parallel->contributors > 1)
        TRY(parallel->queued ? yoke_queue_reduce(parallel)
                             : yoke_apply(parallel, YOKE_STAGE_REDUCE, reduce_slices));
    if (parallel->ranks != NULL) TRY(yoke_all_reduce_gradient(parallel));
    parallel->progress = YOKE_STAGE_BACKWARD;
    parallel->gradient_on_root = true;
    return YOKE_OK;
}
