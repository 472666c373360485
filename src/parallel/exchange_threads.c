/* SPDX-License-Identifier: Apache-2.0 */
/* DataParallel where lanes share memory: every worker sums its slice of a bucket, updates it and
 * publishes it. It takes the buckets that are complete on every lane after each of its segments,
 * without waiting, while backward's writes are still in the shared cache. Only after its last
 * segment does it wait for the other lanes. */
#include "parallel/engine.h"
#include "parallel/exchange_links.h"

/* A bucket is complete everywhere only after every lane knows its loss: a step with a loss that is
 * not finite exchanges no bucket. */
static bool threads_is_complete(const yoke_exchange *exchange, int bucket) {
    const yoke_data_parallel *parallel = exchange->parallel;
    return yoke_workers_reached(&exchange->arrivals[bucket], (uint32_t)parallel->count) &&
           yoke_flight_is_finite(parallel) && yoke_exchange_links_summed(exchange, bucket);
}

static yoke_status threads_ready(yoke_exchange *exchange, int lane, int bucket) {
    yoke_workers_signal(exchange->parallel->workers, &exchange->arrivals[bucket]);
    return yoke_exchange_advance(exchange, lane);
}

static yoke_status await_bucket(const yoke_exchange *exchange, int lane, int bucket) {
    const yoke_data_parallel *parallel = exchange->parallel;
    yoke_wait wait = {yoke_trace_now(), YOKE_STAGE_BACKWARD, bucket};
    TRY(yoke_workers_await(parallel->workers, &exchange->arrivals[bucket],
                           (uint32_t)parallel->count));
    yoke_wait_end(parallel, lane, &wait);
    return YOKE_OK;
}

static yoke_status await_sums(const yoke_exchange *exchange, int lane) {
    yoke_wait wait = {yoke_trace_now(), YOKE_STAGE_EXCHANGE, YOKE_NO_BUCKET};
    TRY(yoke_workers_barrier(exchange->parallel->workers));
    yoke_wait_end(exchange->parallel, lane, &wait);
    return YOKE_OK;
}

static yoke_status exchange_rest(yoke_exchange *exchange, int lane) {
    yoke_data_parallel *parallel = exchange->parallel;
    for (int bucket = exchange->next[lane]; bucket < parallel->flat->bucket_count; bucket++) {
        TRY(await_bucket(exchange, lane, bucket));
        yoke_exchange_links_await(exchange, lane, bucket);
        TRY(yoke_exchange_advance(exchange, lane));
    }
    if (!yoke_exchange_waits(exchange) || !yoke_flight_is_finite(parallel)) return YOKE_OK;
    TRY(await_sums(exchange, lane)); /* the whole gradient is summed and checked */
    if (yoke_exchange_clips(exchange)) {
        if (lane == 0) yoke_exchange_clip(exchange);
        TRY(await_sums(exchange, lane));
    }
    return yoke_exchange_update_slices(exchange, lane);
}

static yoke_status threads_finish(yoke_exchange *exchange, int lane) {
    TRY(exchange_rest(exchange, lane));
    yoke_exchange_links_finish(exchange, lane);
    return YOKE_OK;
}

/* By hand. */

static yoke_status reduce_slices(int lane, void *context) {
    yoke_exchange *exchange = context;
    yoke_data_parallel *parallel = exchange->parallel;
    for (int bucket = 0; bucket < parallel->flat->bucket_count; bucket++) {
        uint64_t begin = yoke_trace_now();
        yoke_slice slice = yoke_exchange_slice(exchange, lane, bucket);
        TRY(yoke_exchange_sum(exchange, lane, exchange->gradients[0] + slice.offset, slice.offset,
                              slice.elements));
        size_t floats = (size_t)(parallel->flight.contributors + 1) * slice.elements;
        if (yoke_links_carry(parallel)) continue;
        yoke_trace_end_span(parallel->trace, lane,
                            &(yoke_span){.begin_ns = begin,
                                         .step = parallel->steps,
                                         .bytes = floats * sizeof(float),
                                         .stage = YOKE_STAGE_REDUCE,
                                         .bucket = bucket});
    }
    return YOKE_OK;
}

static yoke_status threads_reduce(yoke_exchange *exchange) {
    if (exchange->parallel->flight.contributors < 2) return YOKE_OK;
    const yoke_data_parallel *parallel = exchange->parallel;
    yoke_root_stage stage = {
        .stage = YOKE_STAGE_REDUCE, .to_root = true, .begin_ns = yoke_trace_now()};
    for (int k = 1; k < parallel->flight.contributors; k++)
        stage.bytes[k] = parallel->flat->trainable_elements * sizeof(float);
    TRY(yoke_apply(exchange->parallel, parallel->count, "reduce", reduce_slices, exchange));
    yoke_links_run(exchange->parallel, &stage);
    return YOKE_OK;
}

typedef struct replicate_job {
    yoke_data_parallel *parallel;
    size_t weights;
    bool buffers;
} replicate_job;

/* Every worker copies its slice of the weights to all stale replicas, so the copies use the whole
 * machine's bandwidth; running statistics are small: each worker copies its own. */
static yoke_status replicate_slice(int lane, void *context) {
    const replicate_job *job = context;
    yoke_data_parallel *parallel = job->parallel;
    const yoke_lane *root = &parallel->lanes[0], *own = &parallel->lanes[lane];
    uint64_t begin = yoke_trace_now();
    size_t all = job->weights, buffers = parallel->flat->buffer_elements, moved = 0;
    size_t first = yoke_line_cut(all, YOKE_LINE_FLOATS, parallel->count, lane);
    size_t elements = yoke_line_cut(all, YOKE_LINE_FLOATS, parallel->count, lane + 1) - first;
    for (int k = 1; elements > 0 && k < parallel->count; k++) {
        const yoke_lane *stale = &parallel->lanes[k];
        if (stale->weights_version == parallel->weights_version) continue;
        TRY(yoke_device_copy(stale->device, YOKE_STREAM_COMPUTE, stale->memory->parameters + first,
                             root->device, root->memory->parameters + first,
                             elements * sizeof(float)));
        moved += elements;
    }
    if (job->buffers && own->buffers_version != parallel->buffers_version && lane > 0) {
        TRY(yoke_device_copy(own->device, YOKE_STREAM_COMPUTE, own->memory->buffers, root->device,
                             root->memory->buffers, buffers * sizeof(float)));
        moved += buffers;
    }
    if (yoke_links_carry(parallel)) return YOKE_OK;
    yoke_trace_span(parallel->trace, lane, YOKE_STAGE_REPLICATE, parallel->steps, begin,
                    2 * moved * sizeof(float));
    return YOKE_OK;
}

/* What a lane gets. */
static size_t stale_elements(const replicate_job *job, const yoke_lane *lane) {
    const yoke_data_parallel *parallel = job->parallel;
    bool stale = lane->weights_version != parallel->weights_version;
    bool buffers = job->buffers && lane->buffers_version != parallel->buffers_version;
    return (stale ? job->weights : 0) + (buffers ? parallel->flat->buffer_elements : 0);
}

static yoke_status threads_replicate(yoke_exchange *exchange, size_t weights, bool buffers) {
    yoke_data_parallel *parallel = exchange->parallel;
    replicate_job job = {parallel, .weights = weights, .buffers = buffers};
    yoke_root_stage stage = {.stage = YOKE_STAGE_REPLICATE, .begin_ns = yoke_trace_now()};
    for (int k = 1; k < parallel->count; k++)
        stage.bytes[k] = stale_elements(&job, &parallel->lanes[k]) * sizeof(float);
    TRY(yoke_apply(parallel, parallel->count, "replicate", replicate_slice, &job));
    yoke_links_run(parallel, &stage);
    return YOKE_OK;
}

const yoke_exchange_kind yoke_exchange_threads = {
    .bytes = sizeof(yoke_exchange),
    .ready = threads_ready,
    .is_complete = threads_is_complete,
    .finish = threads_finish,
    .reduce = threads_reduce,
    .update = yoke_exchange_update_root,
    .replicate = threads_replicate,
};
