/* SPDX-License-Identifier: Apache-2.0 */
/* DataParallel with an exchange of the host program (yoke/custom_exchange.h): lane 0 calls it for
 * each bucket once the gradients of all lanes are complete. Then participant 0 holds the sum, and
 * the lanes check, update and publish their slices as in exchange_threads.c; published weights take
 * no time on modelled links, because every device could update its own. */
#include <stdatomic.h>
#include <string.h>

#include "parallel/exchange/exchange_links.h"

typedef struct custom_exchange {
    yoke_exchange base;
    yoke_custom_exchange own;
    yoke_wire *wire;
    float *memory;                  /* of the inboxes */
    float **inboxes, **gradients;   /* [lanes]; of the bucket */
    _Atomic uint64_t *completed_ns; /* [buckets] the last lane's gradients */
} custom_exchange;

static yoke_status custom_check(const yoke_step *step) {
    const yoke_data_parallel_options *options = &step->options;
    yoke_custom_exchange own = {0};
    TRY(yoke_options_load(&own, sizeof own, options->custom_exchange, "yoke_custom_exchange"));
    if (own.all_reduce == NULL)
        return FAIL(YOKE_ERROR_ARGUMENT, "custom_exchange has no `all_reduce`: set the function");
    if (options->schedule != YOKE_SCHEDULE_OVERLAP && options->schedule != YOKE_SCHEDULE_CLASSIC)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "custom_exchange in another schedule than overlap and classic: take one of "
                    "these, in which device 0 has the whole gradient");
    if (step->queued || step->ranks.process_group != NULL || options->shards > 0)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "custom_exchange %s: it is for the CPU devices of one process, each with one "
                    "gradient",
                    step->queued          ? "on GPUs"
                    : options->shards > 0 ? "with shards"
                                          : "in DDP");
    return YOKE_OK;
}

static size_t largest_bucket(const yoke_flat *flat) {
    size_t most = 0;
    for (int bucket = 0; bucket < flat->bucket_count; bucket++)
        if (flat->buckets[bucket].elements > most) most = flat->buckets[bucket].elements;
    return most;
}

static yoke_status custom_open(yoke_exchange *exchange) {
    custom_exchange *custom = (custom_exchange *)exchange;
    const yoke_step *step = exchange->step;
    size_t lanes = (size_t)step->count, most = largest_bucket(step->flat);
    size_t buckets = (size_t)step->flat->bucket_count + 1, bytes = lanes * most * sizeof(float);
    TRY(yoke_options_load(&custom->own, sizeof custom->own, step->options.custom_exchange,
                          "yoke_custom_exchange"));
    TRY(yoke_wire_create(&custom->wire, step->watch.links, step->count, most));
    custom->memory = yoke_calloc(bytes + 1, 1);
    custom->inboxes = yoke_calloc(lanes, sizeof *custom->inboxes);
    custom->gradients = yoke_calloc(lanes, sizeof *custom->gradients);
    custom->completed_ns = yoke_calloc(buckets, sizeof *custom->completed_ns);
    if (custom->memory == NULL || custom->inboxes == NULL || custom->gradients == NULL ||
        custom->completed_ns == NULL)
        return FAIL_MEMORY(bytes, "the inboxes of custom_exchange");
    for (size_t k = 0; k < lanes; k++)
        custom->inboxes[k] = custom->memory + k * most;
    return YOKE_OK;
}

static void custom_close(yoke_exchange *exchange) {
    custom_exchange *custom = (custom_exchange *)exchange;
    yoke_free((void *)custom->completed_ns);
    yoke_free(custom->gradients);
    yoke_free(custom->inboxes);
    yoke_free(custom->memory);
    yoke_wire_destroy(custom->wire);
}

static void custom_begin(yoke_exchange *exchange) {
    custom_exchange *custom = (custom_exchange *)exchange;
    exchange->summed = false;
    custom->wire->end_ns = 0;
    for (int bucket = 0; bucket < exchange->step->flat->bucket_count; bucket++)
        atomic_store(&custom->completed_ns[bucket], 0);
    for (int k = 0; exchange->step->watch.links != NULL && k < exchange->step->count; k++)
        (void)yoke_links_take(exchange->step->watch.links, k); /* of a step that failed */
}

static yoke_status custom_ready(yoke_exchange *exchange, int lane, int bucket) {
    custom_exchange *custom = (custom_exchange *)exchange;
    uint64_t now_ns = yoke_now_ns(), last_ns = atomic_load(&custom->completed_ns[bucket]);
    (void)lane;
    while (now_ns > last_ns &&
           !atomic_compare_exchange_weak(&custom->completed_ns[bucket], &last_ns, now_ns))
        continue;
    yoke_workers_signal(exchange->step->workers, &exchange->arrivals[bucket]);
    return YOKE_OK;
}

/* The host program's part. A lane without rows adds nothing. */
static yoke_status sum_bucket(yoke_step *step, int lane, yoke_span *span) {
    custom_exchange *custom = (custom_exchange *)step->exchange;
    yoke_bucket range = step->flat->buckets[span->bucket];
    uint64_t sent = custom->wire->bytes, begin_ns = custom->completed_ns[span->bucket];
    (void)lane;
    for (int k = 0; k < step->count; k++) {
        custom->gradients[k] = custom->base.gradients[k] + range.offset;
        if (k >= step->flight.contributors)
            memset(custom->gradients[k], 0, range.elements * sizeof(float));
    }
    const yoke_bucket_gradients *view = yoke_wire_begin(
        custom->wire, span->bucket, range.elements, custom->gradients, custom->inboxes, begin_ns);
    step->host_exchanges = true;
    yoke_error_forget();
    yoke_status status =
        yoke_error_of_host(custom->own.all_reduce(custom->own.payload, view), "custom_exchange");
    step->host_exchanges = false;
    span->bytes = 2 * (size_t)(custom->wire->bytes - sent);
    if (status != YOKE_OK) yoke_error_prefix("bucket %d", span->bucket);
    return status;
}

static const yoke_bar sum_bar = {.stage = YOKE_STAGE_EXCHANGE, .work = sum_bucket};

static yoke_status sum_buckets(int lane, void *context) {
    yoke_exchange *exchange = context;
    const yoke_step *step = exchange->step;
    for (int bucket = 0; step->count > 1 && bucket < step->flat->bucket_count; bucket++)
        TRY(yoke_run_bar(exchange->step, &sum_bar, lane, bucket));
    exchange->summed = true;
    return YOKE_OK;
}

static yoke_status await_all(const yoke_exchange *exchange, int lane, yoke_stage stage) {
    yoke_span wait = yoke_wait_begin(stage, YOKE_NO_BUCKET);
    TRY(yoke_workers_barrier(exchange->step->workers));
    yoke_wait_end(exchange->step, lane, &wait);
    return YOKE_OK;
}

/* After the last lane has learned the times. */
static void await_links(const yoke_exchange *exchange, int lane) {
    const custom_exchange *custom = (const custom_exchange *)exchange;
    yoke_links *links = exchange->step->watch.links;
    if (links != NULL)
        yoke_exchange_links_sleep(exchange->step, lane, custom->wire->end_ns,
                                  yoke_links_take(links, lane));
}

static yoke_status custom_finish(yoke_exchange *exchange, int lane) {
    yoke_step *step = exchange->step;
    TRY(await_all(exchange, lane, YOKE_STAGE_BACKWARD));
    if (!yoke_flight_is_finite(step)) return YOKE_OK;
    if (lane == 0) TRY(sum_buckets(lane, exchange));
    TRY(await_all(exchange, lane, YOKE_STAGE_EXCHANGE));
    TRY(yoke_exchange_sum_slices(lane, exchange));
    TRY(await_all(exchange, lane, YOKE_STAGE_EXCHANGE));
    if (yoke_exchange_clips(exchange)) {
        if (lane == 0) yoke_exchange_clip(exchange);
        TRY(await_all(exchange, lane, YOKE_STAGE_EXCHANGE));
    }
    TRY(yoke_exchange_update_slices(exchange, lane));
    await_links(exchange, lane);
    return YOKE_OK;
}

/* By hand, and in the schedule classic: the whole gradient begins to travel now. */
static yoke_status custom_reduce(yoke_exchange *exchange) {
    custom_exchange *custom = (custom_exchange *)exchange;
    yoke_step *step = exchange->step;
    custom_begin(exchange);
    for (int bucket = 0; bucket < step->flat->bucket_count; bucket++)
        custom->completed_ns[bucket] = yoke_now_ns();
    TRY(yoke_apply(step, 1, "reduce", sum_buckets, exchange));
    for (int lane = 0; lane < step->count; lane++)
        await_links(exchange, lane);
    return YOKE_OK;
}

static yoke_status custom_replicate(yoke_exchange *exchange) {
    return yoke_exchange_threads.replicate(exchange);
}

const yoke_exchange_kind yoke_exchange_custom = {
    .bytes = sizeof(custom_exchange),
    .times_itself = true,
    .check = custom_check,
    .open = custom_open,
    .close = custom_close,
    .begin = custom_begin,
    .ready = custom_ready,
    .finish = custom_finish,
    .reduce = custom_reduce,
    .update = yoke_exchange_update_root,
    .replicate = custom_replicate,
};
