/* SPDX-License-Identifier: Apache-2.0 */
/* When the collectives and copies of a step would be over on modelled links. */
#include "parallel/exchange_links.h"

#include <pthread.h>
#include <stdlib.h>

#include "parallel/engine.h"

struct yoke_bucket_times {
    pthread_mutex_t mutex; /* of the times and of the engine's links, while lanes run */
    uint64_t **arrived_ns; /* [devices] of [buckets]: the device's gradients are complete */
    uint64_t *own;         /* the lanes' arrivals; NULL: they lie in memory of all ranks */
    yoke_bucket_clock clock;
    size_t *bytes; /* the clock's */
    int timed;     /* buckets whose times are known */
};

static int device_count(const yoke_data_parallel *parallel) {
    return parallel->ranks.world > 1 ? parallel->ranks.world : parallel->count;
}

yoke_status yoke_engine_links_create(yoke_data_parallel *parallel) {
    yoke_link link;
    if (parallel->options.link == NULL) return YOKE_OK;
    TRY(yoke_link_parse(&link, parallel->options.link));
    if (parallel->queued)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "link %s: GPUs have links of their own; leave link out, or use CPU devices",
                    parallel->options.link);
    int devices = device_count(parallel);
    return devices > 1 ? yoke_links_create(&parallel->links, &link, devices) : YOKE_OK;
}

/* Stages of the root. */

bool yoke_links_carry(const yoke_data_parallel *parallel) {
    return parallel->links != NULL && parallel->ranks.world == 1;
}

static void trace_stage(const yoke_data_parallel *parallel, int lane, const yoke_root_stage *stage,
                        uint64_t begin_ns, uint64_t end_ns) {
    yoke_link_bytes carried = yoke_links_take(parallel->links, lane);
    yoke_span span = {.begin_ns = begin_ns,
                      .end_ns = end_ns,
                      .step = parallel->steps,
                      .bytes = stage->bytes[lane],
                      .sent = carried.sent,
                      .received = carried.received,
                      .stage = stage->stage,
                      .bucket = YOKE_NO_BUCKET};
    yoke_trace_past_span(parallel->trace, lane, &span);
}

/* Spans of a lane lie in each other or apart: a wait that began during the transfer, and would end
 * behind it, begins at its end. */
static void wait_behind(yoke_lane *lane, uint64_t begin_ns, uint64_t end_ns) {
    if (begin_ns <= lane->idle_ns && lane->idle_ns < end_ns) lane->idle_ns = end_ns;
}

/* NCCL has no scatter and no gather of outputs: those stay copies. */
static bool uses_chain(const yoke_data_parallel *parallel, const yoke_root_stage *stage) {
    return parallel->options.collectives == YOKE_COLLECTIVES_NCCL &&
           (stage->stage == YOKE_STAGE_REPLICATE || stage->stage == YOKE_STAGE_REDUCE);
}

/* All devices take part in a chain from its begin to its end. */
static uint64_t pass_chain(yoke_data_parallel *parallel, const yoke_root_stage *stage,
                           uint64_t *ends_ns) {
    size_t bytes = 0;
    for (int k = 1; k < parallel->count; k++)
        if (stage->bytes[k] > bytes) bytes = stage->bytes[k];
    if (bytes == 0) return stage->begin_ns;
    uint64_t end_ns = yoke_links_collective(parallel->links, YOKE_ROUTE_CHAIN,
                                            stage->to_root ? YOKE_HALF_SUM : YOKE_HALF_PUBLISH,
                                            bytes, stage->begin_ns);
    for (int k = 0; k < parallel->count; k++)
        ends_ns[k] = end_ns;
    return end_ns;
}

void yoke_links_run(yoke_data_parallel *parallel, const yoke_root_stage *stage) {
    uint64_t ends_ns[YOKE_DEVICES_LIMIT];
    if (!yoke_links_carry(parallel)) return;
    bool chain = uses_chain(parallel, stage);
    uint64_t last_ns = chain ? pass_chain(parallel, stage, ends_ns)
                             : yoke_links_root_stage(parallel->links, stage->to_root, stage->bytes,
                                                     stage->begin_ns, ends_ns);
    for (int k = 1; k < parallel->count; k++)
        if (stage->bytes[k] > 0) {
            uint64_t span_ns = yoke_links_span(parallel->links, stage->bytes[k]);
            uint64_t begin_ns = chain ? stage->begin_ns : ends_ns[k] - span_ns;
            trace_stage(parallel, k, stage, begin_ns, ends_ns[k]);
            wait_behind(&parallel->lanes[k], begin_ns, ends_ns[k]);
        }
    if (last_ns > yoke_trace_now()) yoke_links_await(last_ns);
    trace_stage(parallel, 0, stage, stage->begin_ns, yoke_trace_now());
}

/* Buckets. */

static yoke_status find_arrivals(yoke_exchange *exchange) {
    yoke_bucket_times *times = exchange->times;
    yoke_process_group *group = exchange->process_group;
    size_t buckets = (size_t)exchange->parallel->flat->bucket_count;
    size_t bytes = buckets * sizeof(uint64_t);
    void *memory = NULL;
    if (group != NULL) {
        TRY(yoke_process_group_allocate(group, bytes, &memory));
        yoke_status status = yoke_process_group_peers(group, memory, (void **)times->arrived_ns);
        if (status != YOKE_OK) yoke_error_prefix("link %s", exchange->parallel->options.link);
        return status;
    }
    size_t lanes = (size_t)exchange->parallel->count;
    times->own = calloc(lanes, bytes);
    if (times->own == NULL) return FAIL_MEMORY(lanes * bytes, "times of buckets");
    for (size_t k = 0; k < lanes; k++)
        times->arrived_ns[k] = times->own + k * buckets;
    return YOKE_OK;
}

static bool is_sharded(const yoke_exchange *exchange) {
    return exchange->parallel->options.schedule == YOKE_SCHEDULE_SHARDED;
}

static bool uses_ring(const yoke_exchange *exchange) {
    return is_sharded(exchange) || exchange->process_group != NULL;
}

static yoke_status create_clock(const yoke_exchange *exchange, yoke_bucket_times *times) {
    const yoke_flat *flat = exchange->parallel->flat;
    size_t buckets = (size_t)flat->bucket_count;
    yoke_bucket_clock *clock = &times->clock;
    *clock =
        (yoke_bucket_clock){.links = exchange->parallel->links,
                            .route = uses_ring(exchange) ? YOKE_ROUTE_RING : YOKE_ROUTE_CHAIN,
                            .all_reduces = exchange->process_group != NULL && !is_sharded(exchange),
                            .late = yoke_exchange_clips(exchange),
                            .count = flat->bucket_count,
                            .summed_ns = calloc(buckets, sizeof *clock->summed_ns),
                            .published_ns = calloc(buckets, sizeof *clock->published_ns)};
    clock->bytes = times->bytes = calloc(buckets, sizeof *times->bytes);
    if (clock->summed_ns == NULL || clock->published_ns == NULL || times->bytes == NULL)
        return FAIL_MEMORY(3 * buckets * sizeof(uint64_t), "times of buckets");
    for (size_t b = 0; b < buckets; b++)
        times->bytes[b] = flat->buckets[b].elements * sizeof(float);
    return YOKE_OK;
}

yoke_status yoke_exchange_links_open(yoke_exchange *exchange) {
    if (exchange->parallel->links == NULL) return YOKE_OK;
    size_t devices = (size_t)device_count(exchange->parallel);
    yoke_bucket_times *times = exchange->times = calloc(1, sizeof *times);
    if (times == NULL) return FAIL_MEMORY(sizeof *times, "times of buckets");
    pthread_mutex_init(&times->mutex, NULL);
    times->arrived_ns = calloc(devices, sizeof *times->arrived_ns);
    if (times->arrived_ns == NULL)
        return FAIL_MEMORY(devices * sizeof *times->arrived_ns, "times of buckets");
    TRY(create_clock(exchange, times));
    return find_arrivals(exchange);
}

void yoke_exchange_links_close(yoke_exchange *exchange) {
    yoke_bucket_times *times = exchange->times;
    if (times == NULL) return;
    free(times->own);
    free(times->bytes);
    free(times->clock.published_ns);
    free(times->clock.summed_ns);
    free(times->arrived_ns);
    pthread_mutex_destroy(&times->mutex);
    free(times);
}

/* A step that failed may have left bytes. */
void yoke_exchange_links_begin(yoke_exchange *exchange) {
    if (exchange->times == NULL) return;
    exchange->times->timed = 0;
    for (int k = 0; k < device_count(exchange->parallel); k++)
        (void)yoke_links_take(exchange->parallel->links, k);
}

void yoke_exchange_links_arrive(yoke_exchange *exchange, int lane, int bucket) {
    if (exchange->times == NULL) return;
    exchange->times->arrived_ns[exchange->parallel->ranks.rank + lane][bucket] = yoke_now_ns();
}

/* The bucket travels when the last device has computed it. */
static void time_bucket(const yoke_exchange *exchange, int bucket) {
    const yoke_bucket_times *times = exchange->times;
    uint64_t arrived_ns = 0;
    for (int k = 0; k < device_count(exchange->parallel); k++)
        if (times->arrived_ns[k][bucket] > arrived_ns) arrived_ns = times->arrived_ns[k][bucket];
    yoke_bucket_clock_run(&times->clock, bucket, arrived_ns);
}

static void time_buckets(const yoke_exchange *exchange, int last) {
    yoke_bucket_times *times = exchange->times;
    pthread_mutex_lock(&times->mutex);
    for (; times->timed <= last; times->timed++)
        time_bucket(exchange, times->timed);
    pthread_mutex_unlock(&times->mutex);
}

bool yoke_exchange_links_summed(const yoke_exchange *exchange, int bucket) {
    if (exchange->times == NULL) return true;
    time_buckets(exchange, bucket);
    return yoke_now_ns() >= exchange->times->clock.summed_ns[bucket];
}

static void await(const yoke_exchange *exchange, int lane, uint64_t until_ns,
                  yoke_link_bytes carried) {
    const yoke_data_parallel *parallel = exchange->parallel;
    uint64_t begin = yoke_trace_now();
    if (begin < until_ns) yoke_links_await(until_ns);
    yoke_trace_end_span(parallel->trace, lane,
                        &(yoke_span){.begin_ns = begin,
                                     .step = parallel->steps,
                                     .bytes = carried.sent,
                                     .sent = carried.sent,
                                     .received = carried.received,
                                     .stage = YOKE_STAGE_WAIT,
                                     .bucket = YOKE_NO_BUCKET,
                                     .awaits = YOKE_STAGE_COUNT});
}

void yoke_exchange_links_await(const yoke_exchange *exchange, int lane, int bucket) {
    if (yoke_exchange_links_summed(exchange, bucket)) return;
    await(exchange, lane, exchange->times->clock.summed_ns[bucket], (yoke_link_bytes){0});
}

/* What the lane's link has carried in the step: all buckets have their times. */
static yoke_link_bytes take_bytes(const yoke_exchange *exchange, int lane) {
    const yoke_data_parallel *parallel = exchange->parallel;
    pthread_mutex_lock(&exchange->times->mutex);
    yoke_link_bytes carried = yoke_links_take(parallel->links, parallel->ranks.rank + lane);
    pthread_mutex_unlock(&exchange->times->mutex);
    return carried;
}

void yoke_exchange_links_finish(const yoke_exchange *exchange, int lane) {
    if (exchange->times == NULL) return;
    int last = exchange->parallel->flat->bucket_count - 1;
    time_buckets(exchange, last);
    await(exchange, lane, exchange->times->clock.published_ns[last], take_bytes(exchange, lane));
}
