/* exchange: reduce + update + publish of the range a worker owns, block by block while the block is
 * in its cache: the fused pass of the overlap and sharded schedules. A block waits only for its own
 * bucket, so workers that are ahead begin while others still compute. */
#include <math.h>

#include "parallel/engine.h"

#define MOST_DEVICES 64

void yoke_exchange_begin(yoke_data_parallel *parallel) {
    for (int b = 0; b < parallel->flat->bucket_count; b++)
        parallel->arrivals[b] = 0;
}

typedef struct exchange_range {
    yoke_data_parallel *parallel;
    int worker, home, bucket; /* home: the replica that is updated and published */
    yoke_optimizer *optimizer;
} exchange_range;

/* The replicas' gradients of a block, summed in replica order into the worker's block. */
static yoke_status sum_block(const exchange_range *range, size_t offset, size_t elements,
                             float *to) {
    yoke_data_parallel *parallel = range->parallel;
    const float *from[MOST_DEVICES];
    for (int k = 0; k < parallel->contributors; k++)
        from[k] = yoke_replica_memory_of(parallel->replicas[k])->gradients + offset;
    return yoke_device_sum(yoke_devices_at(parallel->devices, range->worker), to, from,
                           parallel->contributors, elements);
}

static yoke_status publish_block(const exchange_range *range, size_t offset, size_t elements) {
    yoke_data_parallel *parallel = range->parallel;
    yoke_device *home = yoke_devices_at(parallel->devices, range->home);
    const float *weights =
        yoke_replica_memory_of(parallel->replicas[range->home])->parameters + offset;
    for (int k = 0; k < parallel->count; k++) {
        if (k == range->home) continue;
        float *to = yoke_replica_memory_of(parallel->replicas[k])->parameters + offset;
        TRY(yoke_device_copy(yoke_devices_at(parallel->devices, k), to, home, weights,
                             elements * sizeof *to));
    }
    return YOKE_OK;
}

static yoke_status update_block(const exchange_range *range, size_t offset, size_t elements,
                                const float *gradients) {
    yoke_data_parallel *parallel = range->parallel;
    float *weights = yoke_replica_memory_of(parallel->replicas[range->home])->parameters + offset;
    TRY(yoke_optimizer_update(range->optimizer, &parallel->update,
                              yoke_devices_at(parallel->devices, range->worker), offset, elements,
                              weights, gradients));
    return publish_block(range, offset, elements);
}

/* Waits until every bucket that reaches into [0, end) is complete on all replicas. */
static yoke_status await_buckets(exchange_range *range, size_t end) {
    yoke_data_parallel *parallel = range->parallel;
    const yoke_flat *flat = parallel->flat;
    while (range->bucket < flat->bucket_count && flat->buckets[range->bucket].offset < end) {
        TRY(yoke_workers_await(parallel->workers, &parallel->arrivals[range->bucket],
                               (uint32_t)parallel->count));
        range->bucket++;
    }
    return YOKE_OK;
}

static yoke_status exchange_blocks(exchange_range *range, size_t offset, size_t elements) {
    yoke_data_parallel *parallel = range->parallel;
    for (size_t done = 0; done < elements;) {
        size_t left = elements - done;
        size_t count = left < YOKE_EXCHANGE_BLOCK ? left : YOKE_EXCHANGE_BLOCK;
        size_t at = offset + done;
        TRY(await_buckets(range, at + count));
        const float *gradients = yoke_replica_memory_of(parallel->replicas[0])->gradients + at;
        if (parallel->contributors > 1) {
            TRY(sum_block(range, at, count, parallel->blocks[range->worker]));
            gradients = parallel->blocks[range->worker];
        }
        TRY(update_block(range, at, count, gradients));
        done += count;
    }
    return YOKE_OK;
}

/* Clipping needs the whole norm before the first update: the sums are kept on the root meanwhile.
 */
static yoke_status exchange_clipped(exchange_range *range, size_t offset, size_t elements) {
    yoke_data_parallel *parallel = range->parallel;
    float *gradients = yoke_replica_memory_of(parallel->replicas[0])->gradients + offset;
    TRY(await_buckets(range, offset + elements));
    if (parallel->contributors > 1) TRY(sum_block(range, offset, elements, gradients));
    TRY(yoke_device_square_sum(yoke_devices_at(parallel->devices, range->worker), gradients,
                               elements, &parallel->square_sums[range->worker]));
    TRY(yoke_workers_barrier(parallel->workers));
    if (range->worker == 0) {
        double squares = 0;
        for (int k = 0; k < parallel->count; k++)
            squares += parallel->square_sums[k];
        parallel->gradient_norm = sqrt(squares);
        parallel->update.gradient_scale =
            yoke_clip_scale(parallel->optimizer_options.clip_norm, parallel->gradient_norm);
    }
    TRY(yoke_workers_barrier(parallel->workers));
    return update_block(range, offset, elements, gradients);
}

yoke_status yoke_exchange(yoke_data_parallel *parallel, int worker) {
    exchange_range range = {.parallel = parallel, .worker = worker};
    bool sharded = parallel->optimizer_count > 1;
    range.home = sharded ? worker : 0;
    range.optimizer = parallel->optimizers[range.home];
    size_t offset, elements;
    yoke_owned_range(parallel, worker, &offset, &elements);
    /* The first bucket is complete everywhere only after every replica's loss is known. */
    TRY(await_buckets(&range, 1));
    if (!yoke_losses_finite(parallel)) return YOKE_OK;
    uint64_t begin = yoke_trace_now();
    if (parallel->optimizer_options.clip_norm > 0)
        TRY(exchange_clipped(&range, offset, elements));
    else
        TRY(exchange_blocks(&range, offset, elements));
    size_t streams = (size_t)parallel->contributors + 4 + (size_t)parallel->count - 1;
    yoke_trace_span(parallel->trace, worker, YOKE_STAGE_EXCHANGE, parallel->steps, begin,
                    streams * elements * sizeof(float));
    return YOKE_OK;
}
