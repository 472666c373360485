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

void yoke_bucket_slice(const yoke_data_parallel *parallel, int bucket, int party, size_t *offset,
                       size_t *elements) {
    cut(parallel->flat->buckets[bucket].elements, parallel->parties, party, offset, elements);
    *offset += parallel->flat->buckets[bucket].offset;
}

static yoke_status copy_range(yoke_data_parallel *parallel, int to, float *to_values,
                              const float *from_values, size_t elements) {
    return yoke_device_copy(yoke_devices_at(parallel->devices, to), YOKE_STREAM_COMPUTE, to_values,
                            yoke_devices_at(parallel->devices, 0), from_values,
                            elements * sizeof(float));
}

typedef struct replicate_job {
    yoke_data_parallel *parallel;
    bool buffers;
} replicate_job;

static yoke_status replicate_slice(int worker, void *context) {
    const replicate_job *job = context;
    yoke_data_parallel *parallel = job->parallel;
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
    if (job->buffers && worker > 0 &&
        parallel->replica_buffers[worker] != parallel->buffers_version) {
        const yoke_replica_memory *own = yoke_replica_memory_of(parallel->replicas[worker]);
        TRY(copy_range(parallel, worker, own->buffers, root->buffers,
                       parallel->flat->buffer_elements));
        moved += parallel->flat->buffer_elements;
    }
    yoke_trace_span(parallel->trace, worker, YOKE_STAGE_REPLICATE, parallel->steps, begin,
                    2 * moved * sizeof(float));
    return YOKE_OK;
}

static bool is_stale(const yoke_data_parallel *parallel, const uint64_t *replicas,
                     uint64_t version) {
    for (int k = 1; k < parallel->count; k++)
        if (replicas[k] != version) return true;
    return false;
}

static yoke_status broadcast(yoke_data_parallel *parallel, float *const *buffers, size_t elements) {
    yoke_range range = {.buffers = buffers, .elements = elements};
    return elements > 0 ? yoke_device_group_broadcast(parallel->group, &range) : YOKE_OK;
}

/* On the communication streams, between what the compute streams were given before and after. */
static yoke_status queue_broadcasts(yoke_data_parallel *parallel, bool weights, bool buffers) {
    uint64_t begin = yoke_trace_now();
    float *of_weights[YOKE_DEVICES_LIMIT], *of_buffers[YOKE_DEVICES_LIMIT];
    for (int k = 0; k < parallel->count; k++) {
        of_weights[k] = yoke_replica_memory_of(parallel->replicas[k])->parameters;
        of_buffers[k] = yoke_replica_memory_of(parallel->replicas[k])->buffers;
    }
    TRY(yoke_queues_to_communication(parallel));
    if (weights) TRY(broadcast(parallel, of_weights, parallel->flat->elements));
    if (buffers) TRY(broadcast(parallel, of_buffers, parallel->flat->buffer_elements));
    TRY(yoke_queues_to_compute(parallel));
    size_t moved =
        (size_t)(parallel->count - 1) * ((weights ? parallel->flat->elements : 0) +
                                         (buffers ? parallel->flat->buffer_elements : 0));
    yoke_trace_span(parallel->trace, 0, YOKE_STAGE_REPLICATE, parallel->steps, begin,
                    2 * moved * sizeof(float));
    return YOKE_OK;
}

static yoke_status copy_stale(yoke_data_parallel *parallel, bool buffers) {
    replicate_job job = {.parallel = parallel, .buffers = buffers};
    return yoke_apply_with(parallel, YOKE_STAGE_REPLICATE, replicate_slice, &job);
}

/* A forward that trains does not look at running statistics, and the root's alone are kept. */
yoke_status yoke_replicate_stale(yoke_data_parallel *parallel, bool buffers) {
    bool weights = is_stale(parallel, parallel->replica_weights, parallel->weights_version);
    buffers = buffers && is_stale(parallel, parallel->replica_buffers, parallel->buffers_version);
    if (!weights && !buffers) return YOKE_OK;
    TRY(parallel->queued ? queue_broadcasts(parallel, weights, buffers)
                         : copy_stale(parallel, buffers));
    for (int k = 1; k < parallel->count; k++) {
        parallel->replica_weights[k] = parallel->weights_version;
        if (buffers) parallel->replica_buffers[k] = parallel->buffers_version;
    }
    return YOKE_OK;
}

yoke_status yoke_replicate(yoke_data_parallel *parallel) {
    TRY(yoke_pointer_check(parallel, "parallel"));
    return yoke_replicate_stale(parallel, true);
}
