/* replicate: broadcasts the root's flat buffers to the replicas whose version is behind the root's.
 * Every worker carries its slice to all of them, so the whole machine's bandwidth is used. */
#include "parallel/engine.h"

/* Part k of n, cut at cache lines (16 floats) so that no two workers write to one. */
static void cut(size_t all, int parts, int part, size_t *offset, size_t *elements) {
    size_t lines = all / 16, count = (size_t)parts, k = (size_t)part;
    size_t end = k + 1 == count ? all : 16 * (lines * (k + 1) / count);
    *offset = 16 * (lines * k / count);
    *elements = end - *offset;
}

void yoke_bucket_slice(const yoke_data_parallel *parallel, int bucket, int worker, size_t *offset,
                       size_t *elements) {
    cut(parallel->flat->buckets[bucket].elements, parallel->count, worker, offset, elements);
    *offset += parallel->flat->buckets[bucket].offset;
}

static yoke_status copy_range(yoke_data_parallel *parallel, int to, float *to_values,
                              const float *from_values, size_t elements) {
    return yoke_device_copy(yoke_devices_at(parallel->devices, to), YOKE_STREAM_COMPUTE, to_values,
                            yoke_devices_at(parallel->devices, 0), from_values,
                            elements * sizeof(float));
}

static yoke_status replicate_slice(int worker, void *context) {
    yoke_data_parallel *parallel = context;
    uint64_t begin = yoke_trace_now();
    const yoke_replica_memory *root = yoke_replica_memory_of(parallel->replicas[0]);
    size_t offset, elements, moved = 0;
    cut(parallel->flat->elements, parallel->count, worker, &offset, &elements);
    for (int k = 1; k < parallel->count; k++) {
        if (parallel->replica_weights[k] == parallel->weights_version) continue;
        const yoke_replica_memory *replica = yoke_replica_memory_of(parallel->replicas[k]);
        TRY(copy_range(parallel, k, replica->parameters + offset, root->parameters + offset,
                       elements));
        moved += elements;
    }
    if (worker > 0 && parallel->replica_buffers[worker] != parallel->buffers_version) {
        const yoke_replica_memory *own = yoke_replica_memory_of(parallel->replicas[worker]);
        TRY(copy_range(parallel, worker, own->buffers, root->buffers,
                       parallel->flat->buffer_elements));
        moved += parallel->flat->buffer_elements;
    }
    yoke_trace_span(parallel->trace, worker, YOKE_STAGE_REPLICATE, parallel->steps, begin,
                    2 * moved * sizeof(float));
    return YOKE_OK;
}

yoke_status yoke_replicate(yoke_data_parallel *parallel) {
    TRY(yoke_pointer_check(parallel, "parallel"));
    bool stale = false;
    for (int k = 1; k < parallel->count; k++)
        stale = stale || parallel->replica_weights[k] != parallel->weights_version ||
                parallel->replica_buffers[k] != parallel->buffers_version;
    if (!stale) return YOKE_OK;
    TRY(yoke_apply(parallel, YOKE_STAGE_REPLICATE, replicate_slice));
    for (int k = 1; k < parallel->count; k++) {
        parallel->replica_weights[k] = parallel->weights_version;
        parallel->replica_buffers[k] = parallel->buffers_version;
    }
    return YOKE_OK;
}
