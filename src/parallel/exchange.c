/* exchange: reduce + update + publish of a bucket in one pass, each worker its slice of it, block
 * by block while the block is in the worker's cache. A worker exchanges the buckets that are
 * complete on every replica after each of its segments, without waiting: what backward has just
 * left is still in the shared cache. Only behind the last segment does it wait for the others. */
#include <math.h>

#include "parallel/engine.h"

void yoke_exchange_begin(yoke_data_parallel *parallel) {
    for (int b = 0; b < parallel->flat->bucket_count; b++)
        parallel->arrivals[b] = 0;
    for (int k = 0; k < parallel->count; k++)
        parallel->exchanged[k] = 0;
}

/* Which party exchanges which part, on which worker: home is the party whose weights are updated
 * and published. */
typedef struct exchange_slice {
    yoke_data_parallel *parallel;
    int worker, home;
    yoke_optimizer *optimizer;
    size_t offset, elements;
} exchange_slice;

static exchange_slice slice_of(yoke_data_parallel *parallel, int worker, int bucket) {
    bool ranks = yoke_shares_update(parallel);
    int party = ranks ? parallel->rank : worker;
    exchange_slice slice = {.parallel = parallel,
                            .worker = worker,
                            .home = ranks || yoke_is_sharded(parallel) ? party : 0,
                            .optimizer = yoke_optimizer_of(parallel, worker, bucket)};
    yoke_bucket_slice(parallel, bucket, party, &slice.offset, &slice.elements);
    return slice;
}

/* Memory is shared: the worker's own device reaches all of it. */
static yoke_device *device_of(const exchange_slice *slice) {
    return yoke_devices_at(slice->parallel->devices, slice->worker);
}

/* The parties' gradients of a range, summed in their order. */
static yoke_status sum_gradients(const exchange_slice *slice, size_t offset, size_t elements,
                                 float *to) {
    yoke_data_parallel *parallel = slice->parallel;
    const float *from[YOKE_DEVICES_LIMIT];
    for (int k = 0; k < parallel->contributors; k++)
        from[k] = parallel->party_gradients[k] + offset;
    return yoke_device_sum(device_of(slice), YOKE_STREAM_COMPUTE, to, from, parallel->contributors,
                           elements);
}

static yoke_status publish(const exchange_slice *slice, size_t offset, size_t elements) {
    yoke_data_parallel *parallel = slice->parallel;
    yoke_device *device = device_of(slice);
    const float *weights = parallel->party_parameters[slice->home] + offset;
    for (int k = 0; k < parallel->parties; k++) {
        if (k == slice->home) continue;
        TRY(yoke_device_copy(device, YOKE_STREAM_COMPUTE, parallel->party_parameters[k] + offset,
                             device, weights, elements * sizeof *weights));
    }
    return YOKE_OK;
}

static yoke_status update_and_publish(const exchange_slice *slice, size_t offset, size_t elements,
                                      const float *gradients) {
    yoke_data_parallel *parallel = slice->parallel;
    float *weights = parallel->party_parameters[slice->home] + offset;
    TRY(yoke_optimizer_update(slice->optimizer, &parallel->update, device_of(slice), offset,
                              elements, weights, gradients));
    return publish(slice, offset, elements);
}

static yoke_status exchange_blocks(const exchange_slice *slice) {
    yoke_data_parallel *parallel = slice->parallel;
    size_t end = slice->offset + slice->elements;
    for (size_t at = slice->offset; at < end; at += YOKE_EXCHANGE_BLOCK) {
        size_t count = end - at < YOKE_EXCHANGE_BLOCK ? end - at : YOKE_EXCHANGE_BLOCK;
        const float *gradients = parallel->party_gradients[0] + at;
        if (parallel->contributors > 1) {
            TRY(sum_gradients(slice, at, count, parallel->blocks[slice->worker]));
            gradients = parallel->blocks[slice->worker];
        }
        TRY(update_and_publish(slice, at, count, gradients));
    }
    return YOKE_OK;
}

static void trace_exchange(const exchange_slice *slice, uint64_t begin) {
    yoke_data_parallel *parallel = slice->parallel;
    size_t streams = (size_t)parallel->contributors + 4 + (size_t)parallel->parties - 1;
    yoke_trace_span(parallel->trace, slice->worker, YOKE_STAGE_EXCHANGE, parallel->steps, begin,
                    streams * slice->elements * sizeof(float));
}

static yoke_status exchange_bucket(yoke_data_parallel *parallel, int worker, int bucket) {
    exchange_slice slice = slice_of(parallel, worker, bucket);
    uint64_t begin = yoke_trace_now();
    TRY(exchange_blocks(&slice));
    trace_exchange(&slice, begin);
    return YOKE_OK;
}

/* A bucket is complete everywhere only after every replica's loss is known: no bucket of a step
 * whose loss is not finite is exchanged. */
static bool step_is_bad(const yoke_data_parallel *parallel) {
    return !yoke_losses_finite(parallel);
}

static yoke_status exchange_ready(yoke_data_parallel *parallel, int worker) {
    if (parallel->queued) return worker == 0 ? yoke_queue_exchange_ready(parallel) : YOKE_OK;
    if (parallel->optimizer_options.clip_norm > 0) return YOKE_OK;
    for (int *next = &parallel->exchanged[worker]; *next < parallel->flat->bucket_count; ++*next) {
        if (!yoke_workers_reached(&parallel->arrivals[*next], (uint32_t)parallel->count))
            return YOKE_OK;
        if (step_is_bad(parallel)) return YOKE_OK;
        TRY(exchange_bucket(parallel, worker, *next));
    }
    return YOKE_OK;
}

yoke_status yoke_exchange_mark(yoke_data_parallel *parallel, int replica, int bucket) {
    if (!parallel->queued) return YOKE_OK;
    return yoke_device_event_record(parallel->events[replica].buckets[bucket], YOKE_STREAM_COMPUTE);
}

yoke_status yoke_exchange_announce(yoke_data_parallel *parallel, int replica, int bucket) {
    TRY(yoke_exchange_mark(parallel, replica, bucket));
    return yoke_exchange_release(parallel, replica, bucket);
}

yoke_status yoke_exchange_release(yoke_data_parallel *parallel, int replica, int bucket) {
    yoke_workers_signal(parallel->workers, &parallel->arrivals[bucket]);
    return exchange_ready(parallel, replica);
}

/* Clipping needs the norm of the whole gradient before the first update: until then the sums lie
 * where the first party's gradients were. */
static float *kept_sum(const exchange_slice *slice) {
    return slice->parallel->party_gradients[0] + slice->offset;
}

static yoke_status reduce_slices(yoke_data_parallel *parallel, int worker) {
    parallel->square_sums[worker] = 0;
    for (int bucket = 0; bucket < parallel->flat->bucket_count; bucket++) {
        exchange_slice slice = slice_of(parallel, worker, bucket);
        uint64_t begin = yoke_trace_now();
        float *sum = kept_sum(&slice);
        double squares;
        if (parallel->contributors > 1)
            TRY(sum_gradients(&slice, slice.offset, slice.elements, sum));
        TRY(yoke_device_square_sum(device_of(&slice), YOKE_STREAM_COMPUTE, sum, slice.elements,
                                   &squares));
        parallel->square_sums[worker] += squares;
        trace_exchange(&slice, begin);
    }
    return YOKE_OK;
}

static yoke_status update_slices(yoke_data_parallel *parallel, int worker) {
    if (!isfinite(parallel->gradient_norm)) return YOKE_OK;
    for (int bucket = 0; bucket < parallel->flat->bucket_count; bucket++) {
        exchange_slice slice = slice_of(parallel, worker, bucket);
        TRY(update_and_publish(&slice, slice.offset, slice.elements, kept_sum(&slice)));
    }
    return YOKE_OK;
}

static yoke_status exchange_clipped(yoke_data_parallel *parallel, int worker) {
    TRY(reduce_slices(parallel, worker));
    TRY(yoke_workers_barrier(parallel->workers));
    if (worker == 0) yoke_clip(parallel);
    TRY(yoke_workers_barrier(parallel->workers));
    return update_slices(parallel, worker);
}

yoke_status yoke_exchange_finish(yoke_data_parallel *parallel, int worker) {
    if (parallel->queued) return worker == 0 ? yoke_queue_exchange_finish(parallel) : YOKE_OK;
    int last = parallel->flat->bucket_count - 1;
    for (int bucket = parallel->exchanged[worker]; bucket <= last; bucket++) {
        TRY(yoke_workers_await(parallel->workers, &parallel->arrivals[bucket],
                               (uint32_t)parallel->count));
        TRY(exchange_ready(parallel, worker));
    }
    if (parallel->optimizer_options.clip_norm <= 0 || step_is_bad(parallel)) return YOKE_OK;
    return exchange_clipped(parallel, worker);
}

/* By ranks. */

yoke_status yoke_exchange_slice(yoke_data_parallel *parallel, int bucket) {
    return exchange_bucket(parallel, 0, bucket);
}

yoke_status yoke_exchange_sums(yoke_data_parallel *parallel) {
    return reduce_slices(parallel, 0);
}

yoke_status yoke_exchange_updates(yoke_data_parallel *parallel) {
    return update_slices(parallel, 0);
}
