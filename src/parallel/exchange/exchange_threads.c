/* SPDX-License-Identifier: Apache-2.0 */
/* DataParallel where lanes share memory: every worker sums its slice of a bucket, updates it and
 * publishes it. It takes the buckets that are complete on every lane after each of its segments,
 * without waiting, while backward's writes are still in the shared cache. Only after its last
 * segment does it wait for the other lanes. */
#include "parallel/exchange/exchange.h"
#include "parallel/exchange/exchange_links.h"

/* A bucket is complete everywhere only after every lane knows its loss: a step with a loss that is
 * not finite exchanges no bucket. */
static bool threads_is_complete(const yoke_exchange *exchange, int bucket) {
    const yoke_step *step = exchange->step;
    return yoke_workers_reached(&exchange->arrivals[bucket], (uint32_t)step->count) &&
           yoke_flight_is_finite(step) && yoke_exchange_links_summed(exchange, bucket);
}

static yoke_status threads_ready(yoke_exchange *exchange, int lane, int bucket) {
    (void)lane;
    yoke_workers_signal(exchange->step->workers, &exchange->arrivals[bucket]);
    return YOKE_OK;
}

static yoke_status await_sums(const yoke_exchange *exchange, int lane) {
    yoke_span wait = yoke_wait_begin(YOKE_STAGE_EXCHANGE, YOKE_NO_BUCKET);
    TRY(yoke_workers_barrier(exchange->step->workers));
    yoke_wait_end(exchange->step, lane, &wait);
    return YOKE_OK;
}

static yoke_status threads_finish(yoke_exchange *exchange, int lane) {
    yoke_step *step = exchange->step;
    for (int bucket = exchange->next[lane]; bucket < step->flat->bucket_count; bucket++) {
        yoke_span wait = yoke_wait_begin(YOKE_STAGE_BACKWARD, bucket);
        TRY(yoke_workers_await(step->workers, &exchange->arrivals[bucket], (uint32_t)step->count));
        yoke_wait_end(step, lane, &wait);
        yoke_exchange_links_await(exchange, lane, bucket);
        TRY(yoke_exchange_advance(exchange, lane));
    }
    if (yoke_exchange_waits(exchange) && yoke_flight_is_finite(step)) {
        TRY(await_sums(exchange, lane)); /* the whole gradient is summed and checked */
        if (yoke_exchange_clips(exchange)) {
            if (lane == 0) yoke_exchange_clip(exchange);
            TRY(await_sums(exchange, lane));
        }
        TRY(yoke_exchange_update_slices(exchange, lane));
    }
    yoke_exchange_links_finish(exchange, lane);
    return YOKE_OK;
}

/* By hand. */

static yoke_status reduce_slice(yoke_step *step, int lane, yoke_span *span) {
    const yoke_exchange *exchange = step->exchange;
    yoke_slice slice = yoke_exchange_slice(exchange, lane, span->bucket);
    span->bytes = (size_t)(step->flight.contributors + 1) * slice.elements * sizeof(float);
    return yoke_exchange_sum(exchange, lane, exchange->gradients[0] + slice.offset, slice.offset,
                             slice.elements);
}

static const yoke_bar reduce_bar = {.stage = YOKE_STAGE_REDUCE, .work = reduce_slice};

static yoke_status reduce_slices(int lane, void *context) {
    yoke_step *step = ((yoke_exchange *)context)->step;
    for (int bucket = 0; bucket < step->flat->bucket_count; bucket++)
        TRY(yoke_run_bar(step, &reduce_bar, lane, bucket));
    return YOKE_OK;
}

static yoke_status threads_reduce(yoke_exchange *exchange) {
    yoke_step *step = exchange->step;
    if (step->flight.contributors < 2) return YOKE_OK;
    return yoke_apply(step, step->count, "reduce", reduce_slices, exchange);
}

/* Every worker copies its slice of the weights to all stale replicas, so the copies use the whole
 * machine's bandwidth; running statistics are small: each worker copies its own. */
static yoke_status replicate_slice(yoke_step *step, int lane, yoke_span *span) {
    const yoke_lane *root = &step->lanes[0], *own = &step->lanes[lane];
    const yoke_stale *stale = &step->exchange->stale;
    size_t buffers = step->flat->buffer_elements, moved = 0;
    size_t first = yoke_line_cut(stale->weights, YOKE_LINE_FLOATS, step->count, lane);
    size_t elements =
        yoke_line_cut(stale->weights, YOKE_LINE_FLOATS, step->count, lane + 1) - first;
    for (int k = 1; elements > 0 && k < step->count; k++) {
        const yoke_lane *to = &step->lanes[k];
        if (to->weights_version == step->versions.weights) continue;
        TRY(yoke_device_copy(to->device, YOKE_STREAM_COMPUTE, to->memory->parameters + first,
                             root->device, root->memory->parameters + first,
                             elements * sizeof(float)));
        if (to->memory->shadow != NULL)
            TRY(yoke_device_shadow(to->device, step->options.precision, to->memory->shadow + first,
                                   root->memory->parameters + first, elements));
        moved += elements;
    }
    if (stale->buffers && own->buffers_version != step->versions.buffers && lane > 0) {
        TRY(yoke_device_copy(own->device, YOKE_STREAM_COMPUTE, own->memory->buffers, root->device,
                             root->memory->buffers, buffers * sizeof(float)));
        moved += buffers;
    }
    span->bytes = 2 * moved * sizeof(float);
    return YOKE_OK;
}

static const yoke_bar replicate_bar = {.stage = YOKE_STAGE_REPLICATE, .work = replicate_slice};

static yoke_status replicate_slices(int lane, void *context) {
    return yoke_run_bar(context, &replicate_bar, lane, YOKE_NO_BUCKET);
}

static yoke_status threads_replicate(yoke_exchange *exchange) {
    yoke_step *step = exchange->step;
    TRY(yoke_apply(step, step->count, "replicate", replicate_slices, step));
    for (int k = 1; k < step->count; k++)
        yoke_replica_wrote_shadow(step->lanes[k].replica);
    return YOKE_OK;
}

const yoke_exchange_kind yoke_exchange_threads = {
    .bytes = sizeof(yoke_exchange),
    .takes_factors = true,
    .ready = threads_ready,
    .is_complete = threads_is_complete,
    .finish = threads_finish,
    .reduce = threads_reduce,
    .update = yoke_exchange_update_root,
    .replicate = threads_replicate,
};
