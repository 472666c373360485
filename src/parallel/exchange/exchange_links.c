/* SPDX-License-Identifier: Apache-2.0 */
/* When the collectives of a step would be over on modelled links. */
#include "parallel/exchange/exchange_links.h"

#include <pthread.h>
#include <stdlib.h>

struct yoke_bucket_times {
    pthread_mutex_t mutex; /* of the times and of the engine's links, while lanes run */
    uint64_t **arrived_ns; /* [devices] of [buckets]: the device's gradients are complete */
    uint64_t *own;         /* the lanes' arrivals; NULL: they lie in memory of all ranks */
    yoke_bucket_clock clock;
    size_t *bytes;       /* the clock's */
    uint64_t *begins_ns; /* [buckets]: the bucket's first collective begins */
    int timed;           /* buckets whose times are known */
};

static int device_count(const yoke_step *step) {
    return step->ranks.world > 1 ? step->ranks.world : step->count;
}

static yoke_status find_arrivals(yoke_exchange *exchange) {
    yoke_bucket_times *times = exchange->times;
    yoke_process_group *group = exchange->process_group;
    size_t buckets = (size_t)exchange->step->flat->bucket_count;
    size_t bytes = buckets * sizeof(uint64_t);
    void *memory = NULL;
    if (group != NULL) {
        TRY(yoke_process_group_allocate(group, bytes, &memory));
        yoke_status status = yoke_process_group_peers(group, memory, (void **)times->arrived_ns);
        if (status != YOKE_OK) yoke_error_prefix("link %s", exchange->step->options.link);
        return status;
    }
    size_t lanes = (size_t)exchange->step->count;
    times->own = yoke_calloc(lanes, bytes);
    if (times->own == NULL) return FAIL_MEMORY(lanes * bytes, "times of buckets");
    for (size_t k = 0; k < lanes; k++)
        times->arrived_ns[k] = times->own + k * buckets;
    return YOKE_OK;
}

static yoke_status create_clock(const yoke_exchange *exchange, yoke_bucket_times *times) {
    const yoke_flat *flat = exchange->step->flat;
    size_t buckets = (size_t)flat->bucket_count;
    bool is_sharded = exchange->step->options.schedule == YOKE_SCHEDULE_SHARDED;
    bool has_ranks = exchange->process_group != NULL;
    yoke_bucket_clock *clock = &times->clock;
    *clock =
        (yoke_bucket_clock){.links = exchange->step->watch.links,
                            .route = is_sharded || has_ranks ? YOKE_ROUTE_RING : YOKE_ROUTE_CHAIN,
                            .all_reduces = has_ranks && !is_sharded,
                            .late = yoke_exchange_clips(exchange),
                            .count = flat->bucket_count,
                            .summed_ns = yoke_calloc(buckets, sizeof *clock->summed_ns),
                            .published_ns = yoke_calloc(buckets, sizeof *clock->published_ns)};
    clock->bytes = times->bytes = yoke_calloc(buckets, sizeof *times->bytes);
    times->begins_ns = yoke_calloc(buckets, sizeof *times->begins_ns);
    if (clock->summed_ns == NULL || clock->published_ns == NULL || times->bytes == NULL ||
        times->begins_ns == NULL)
        return FAIL_MEMORY(4 * buckets * sizeof(uint64_t), "times of buckets");
    for (size_t b = 0; b < buckets; b++)
        times->bytes[b] = flat->buckets[b].elements * sizeof(float);
    return YOKE_OK;
}

yoke_status yoke_exchange_links_open(yoke_exchange *exchange) {
    if (exchange->step->watch.links == NULL || exchange->kind->times_itself) return YOKE_OK;
    size_t devices = (size_t)device_count(exchange->step);
    yoke_bucket_times *times = exchange->times = yoke_calloc(1, sizeof *times);
    if (times == NULL) return FAIL_MEMORY(sizeof *times, "times of buckets");
    pthread_mutex_init(&times->mutex, NULL);
    times->arrived_ns = yoke_calloc(devices, sizeof *times->arrived_ns);
    if (times->arrived_ns == NULL)
        return FAIL_MEMORY(devices * sizeof *times->arrived_ns, "times of buckets");
    TRY(create_clock(exchange, times));
    return find_arrivals(exchange);
}

void yoke_exchange_links_close(yoke_exchange *exchange) {
    yoke_bucket_times *times = exchange->times;
    if (times == NULL) return;
    yoke_free(times->own);
    yoke_free(times->begins_ns);
    yoke_free(times->bytes);
    yoke_free(times->clock.published_ns);
    yoke_free(times->clock.summed_ns);
    yoke_free(times->arrived_ns);
    pthread_mutex_destroy(&times->mutex);
    yoke_free(times);
}

/* A step that failed may have left bytes. */
void yoke_exchange_links_begin(yoke_exchange *exchange) {
    if (exchange->times == NULL) return;
    exchange->times->timed = 0;
    for (int k = 0; k < device_count(exchange->step); k++)
        (void)yoke_links_take(exchange->step->watch.links, k);
}

void yoke_exchange_links_arrive(yoke_exchange *exchange, int lane, int bucket) {
    if (exchange->times == NULL) return;
    exchange->times->arrived_ns[exchange->step->ranks.rank + lane][bucket] = yoke_now_ns();
}

/* When the links are free for the bucket. */
static uint64_t free_ns(const yoke_bucket_times *times, int bucket) {
    const yoke_bucket_clock *clock = &times->clock;
    if (bucket == 0) return 0;
    return clock->late ? clock->summed_ns[bucket - 1] : clock->published_ns[bucket - 1];
}

/* A bucket travels when the last device has computed it. */
static void time_buckets(const yoke_exchange *exchange, int last) {
    yoke_bucket_times *times = exchange->times;
    pthread_mutex_lock(&times->mutex);
    for (; times->timed <= last; times->timed++) {
        uint64_t arrived_ns = 0;
        for (int k = 0; k < device_count(exchange->step); k++) {
            uint64_t own_ns = times->arrived_ns[k][times->timed];
            if (own_ns > arrived_ns) arrived_ns = own_ns;
        }
        uint64_t begin_ns = free_ns(times, times->timed);
        times->begins_ns[times->timed] = arrived_ns > begin_ns ? arrived_ns : begin_ns;
        yoke_bucket_clock_run(&times->clock, times->timed, arrived_ns);
    }
    pthread_mutex_unlock(&times->mutex);
}

bool yoke_exchange_links_summed(const yoke_exchange *exchange, int bucket) {
    if (exchange->times == NULL) return true;
    time_buckets(exchange, bucket);
    return yoke_now_ns() >= exchange->times->clock.summed_ns[bucket];
}

void yoke_exchange_links_sleep(yoke_step *step, int lane, uint64_t until_ns,
                               yoke_link_bytes carried) {
    yoke_span span = yoke_wait_begin(YOKE_STAGE_COUNT, YOKE_NO_BUCKET);
    span.bytes = span.sent = carried.sent;
    span.received = carried.received;
    if (span.begin_ns < until_ns) yoke_links_await(until_ns);
    yoke_span_end(step, lane, &span);
}

void yoke_exchange_links_await(yoke_exchange *exchange, int lane, int bucket) {
    if (yoke_exchange_links_summed(exchange, bucket)) return;
    yoke_exchange_links_sleep(exchange->step, lane, exchange->times->clock.summed_ns[bucket],
                              (yoke_link_bytes){0});
}

/* The timeline's row of the lane's link: every bucket, and with clipping the weights behind them.
 */
static void record_travel(const yoke_exchange *exchange, int lane) {
    const yoke_step *step = exchange->step;
    const yoke_bucket_clock *clock = &exchange->times->clock;
    yoke_span span = {.step = step->steps,
                      .stage = clock->all_reduces ? YOKE_STAGE_ALL_REDUCE : YOKE_STAGE_EXCHANGE,
                      .track = YOKE_TRACK_LINK};
    int last = clock->count - 1;
    for (span.bucket = 0; span.bucket <= last; span.bucket++) {
        span.begin_ns = exchange->times->begins_ns[span.bucket];
        span.end_ns =
            clock->late ? clock->summed_ns[span.bucket] : clock->published_ns[span.bucket];
        span.bytes = clock->bytes[span.bucket];
        yoke_trace_past_span(step->watch.trace, lane, &span);
    }
    if (!clock->late || clock->all_reduces) return;
    span.bucket = YOKE_NO_BUCKET;
    span.begin_ns = clock->summed_ns[last];
    span.end_ns = clock->published_ns[last];
    yoke_trace_past_span(step->watch.trace, lane, &span);
}

void yoke_exchange_links_finish(yoke_exchange *exchange, int lane) {
    if (exchange->times == NULL) return;
    yoke_step *step = exchange->step;
    yoke_bucket_times *times = exchange->times;
    int last = step->flat->bucket_count - 1;
    time_buckets(exchange, last); /* of all buckets: the lane's link has carried what it will */
    pthread_mutex_lock(&times->mutex);
    yoke_link_bytes carried = yoke_links_take(step->watch.links, step->ranks.rank + lane);
    pthread_mutex_unlock(&times->mutex);
    record_travel(exchange, lane);
    yoke_exchange_links_sleep(step, lane, times->clock.published_ns[last], carried);
}
