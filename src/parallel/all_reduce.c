/* all_reduce: DDP's counterpart of exchange where memory is shared (elsewhere exchange_queued.c
 * does it in the communication stream). A finished bucket is summed over the ranks while backward
 * goes on; every rank then updates its own weights from it. The loss travels ahead of the first
 * bucket: no rank updates anything in a step whose loss is not finite anywhere. */
#include <math.h>

#include "parallel/engine.h"

static yoke_status update_bucket(yoke_data_parallel *parallel, int bucket) {
    const yoke_replica_memory *memory = yoke_replica_memory_of(parallel->replicas[0]);
    size_t offset = parallel->flat->buckets[bucket].offset;
    size_t elements = parallel->flat->buckets[bucket].elements;
    uint64_t begin = yoke_trace_now();
    TRY(yoke_optimizer_update(yoke_optimizer_of(parallel, 0, bucket), &parallel->update,
                              yoke_devices_at(parallel->devices, 0), offset, elements,
                              memory->parameters + offset, memory->gradients + offset));
    yoke_trace_span(parallel->trace, 0, YOKE_STAGE_UPDATE, parallel->steps, begin,
                    5 * elements * sizeof(float));
    return YOKE_OK;
}

static void trace_sum(yoke_data_parallel *parallel, yoke_stage stage, uint64_t begin,
                      size_t elements) {
    yoke_trace_span(parallel->trace, 0, stage, parallel->steps, begin,
                    2 * (size_t)parallel->world * elements * sizeof(float));
}

yoke_status yoke_all_reduce_loss(yoke_data_parallel *parallel) {
    double loss = parallel->result.loss;
    if (parallel->queued) return YOKE_OK; /* gates look at it on the devices */
    if (parallel->shards[0].rows > 0) loss += parallel->loss_sums[0];
    if (parallel->boards != NULL) {
        yoke_shared_update_loss(parallel, loss);
        return YOKE_OK;
    }
    *parallel->found_nonfinite = isfinite(loss) ? 0 : NAN;
    return yoke_process_group_all_reduce_async(parallel->ranks, parallel->found_nonfinite, 1);
}

yoke_status yoke_all_reduce_ready(yoke_data_parallel *parallel, int replica, int bucket) {
    if (parallel->queued) return yoke_exchange_announce(parallel, replica, bucket);
    if (parallel->boards != NULL) return yoke_shared_update_ready(parallel, bucket);
    const yoke_replica_memory *memory = yoke_replica_memory_of(parallel->replicas[0]);
    size_t elements = parallel->flat->buckets[bucket].elements;
    uint64_t begin = yoke_trace_now();
    TRY(yoke_process_group_all_reduce_async(
        parallel->ranks, memory->gradients + parallel->flat->buckets[bucket].offset, elements));
    TRY(yoke_process_group_progress(parallel->ranks));
    trace_sum(parallel, YOKE_STAGE_ALL_REDUCE, begin, elements);
    return YOKE_OK;
}

static yoke_status clip(yoke_data_parallel *parallel) {
    const float *gradients = yoke_replica_memory_of(parallel->replicas[0])->gradients;
    parallel->square_sums[0] = 0;
    for (int bucket = 0; bucket < parallel->flat->bucket_count; bucket++) {
        double squares;
        TRY(yoke_device_square_sum(yoke_devices_at(parallel->devices, 0), YOKE_STREAM_COMPUTE,
                                   gradients + parallel->flat->buckets[bucket].offset,
                                   parallel->flat->buckets[bucket].elements, &squares));
        parallel->square_sums[0] += squares;
    }
    yoke_clip(parallel);
    return YOKE_OK;
}

yoke_status yoke_all_reduce_finish(yoke_data_parallel *parallel) {
    if (parallel->queued) return yoke_exchange_finish(parallel, 0);
    if (parallel->boards != NULL) return yoke_shared_update_finish(parallel);
    uint64_t begin = yoke_trace_now();
    TRY(yoke_process_group_wait(parallel->ranks));
    trace_sum(parallel, YOKE_STAGE_WAIT, begin, 0);
    if (*parallel->found_nonfinite != 0) return YOKE_OK;
    if (parallel->optimizer_options.clip_norm > 0) TRY(clip(parallel));
    if (!isfinite(parallel->gradient_norm)) return YOKE_OK;
    for (int bucket = 0; bucket < parallel->flat->bucket_count; bucket++)
        TRY(update_bucket(parallel, bucket));
    return YOKE_OK;
}

/* By hand: the whole gradient at once. */
yoke_status yoke_all_reduce_gradient(yoke_data_parallel *parallel) {
    const yoke_replica_memory *memory = yoke_replica_memory_of(parallel->replicas[0]);
    uint64_t begin = yoke_trace_now();
    TRY(yoke_queues_synchronize(parallel));
    TRY(yoke_process_group_all_reduce(parallel->ranks, memory->gradients, parallel->flat->elements,
                                      YOKE_ELEMENT_FLOAT32, YOKE_SUM));
    trace_sum(parallel, YOKE_STAGE_ALL_REDUCE, begin, parallel->flat->elements);
    return YOKE_OK;
}

static yoke_status idle_job(int replica, void *context) {
    yoke_data_parallel *parallel = context;
    yoke_device *device = yoke_devices_at(parallel->devices, replica);
    const yoke_replica_memory *memory = yoke_replica_memory_of(parallel->replicas[replica]);
    TRY(yoke_device_event_wait(parallel->events[replica].published, device, YOKE_STREAM_COMPUTE));
    TRY(yoke_device_clear(device, YOKE_STREAM_COMPUTE, memory->gradients,
                          parallel->flat->elements * sizeof(float)));
    TRY(yoke_all_reduce_loss(parallel));
    for (int bucket = 0; bucket < parallel->flat->bucket_count; bucket++)
        TRY(yoke_all_reduce_ready(parallel, replica, bucket));
    return yoke_all_reduce_finish(parallel);
}

yoke_status yoke_all_reduce_idle(yoke_data_parallel *parallel) {
    return yoke_apply(parallel, YOKE_STAGE_STEP, idle_job);
}
