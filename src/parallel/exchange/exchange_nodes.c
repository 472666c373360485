/* SPDX-License-Identifier: Apache-2.0 */
/* DataParallel where lanes share memory that lies on several nodes (NUMA): in the order of the
 * tree, so that the bits are those of exchange_threads.c, lanes first add the gradients of a block
 * of neighbours on their node, each a part of every bucket. Then a slice's sum reads one gradient
 * of each block, and its new weights go to one lane of each block of other nodes, from which the
 * others of the block copy them. docs/performance.md counts what crosses nodes. */
#include <stdlib.h>

#include "parallel/exchange/exchange.h"

typedef struct node_exchange {
    yoke_exchange base;
    uint32_t *complete; /* [blocks][buckets] lanes of the block whose gradients are */
    int *next;          /* [lanes] the bucket whose part it adds next */
} node_exchange;

static node_exchange *of(const yoke_exchange *exchange) {
    return (node_exchange *)exchange;
}

/* Blocks. */

static int node_of(const yoke_step *step, int lane) {
    return yoke_device_node(yoke_devices_at(step->devices, lane));
}

static bool block_fits(const yoke_step *step, int block) {
    if (step->count % block != 0) return false;
    for (int k = 0; k < step->count; k++)
        if (node_of(step, k) != node_of(step, k / block * block)) return false;
    return true;
}

/* A power of two: such blocks are subtrees of the tree over all lanes. Modelled links count copies
 * one by one, and in bfloat16 replicas get other values than the owner's. */
static int block_of(const yoke_step *step) {
    bool several = false;
    int block = 1;
    for (int k = 0; k < step->count; k++) {
        if (node_of(step, k) == YOKE_NO_NODE) return 1;
        several |= node_of(step, k) != node_of(step, 0);
    }
    if (!several || step->watch.links != NULL || step->options.precision != YOKE_FLOAT32) return 1;
    while (block_fits(step, 2 * block))
        block *= 2;
    return block;
}

static bool nodes_fit(const yoke_step *step) {
    return block_of(step) > 1;
}

/* Life. */

static yoke_status nodes_open(yoke_exchange *exchange) {
    const yoke_step *step = exchange->step;
    size_t buckets = (size_t)step->flat->bucket_count + 1, lanes = (size_t)step->count;
    node_exchange *own = of(exchange);
    own->complete = yoke_calloc(lanes * buckets, sizeof *own->complete);
    own->next = yoke_calloc(lanes, sizeof *own->next);
    if (own->complete != NULL && own->next != NULL) return YOKE_OK;
    return FAIL_MEMORY(lanes * buckets * sizeof *own->complete, "the exchange");
}

static void nodes_close(yoke_exchange *exchange) {
    yoke_free(of(exchange)->next);
    yoke_free(of(exchange)->complete);
}

static void nodes_begin(yoke_exchange *exchange) {
    const yoke_step *step = exchange->step;
    node_exchange *own = of(exchange);
    exchange->block = block_of(step);
    for (int i = 0; i < step->count * step->flat->bucket_count; i++)
        own->complete[i] = 0;
    for (int lane = 0; lane < step->count; lane++)
        own->next[lane] = 0;
}

/* Sums of blocks. */

static uint32_t *complete_of(const yoke_exchange *exchange, int lane, int bucket) {
    int block = lane / yoke_exchange_block(exchange);
    return &of(exchange)->complete[block * exchange->step->flat->bucket_count + bucket];
}

/* The lane's part of a bucket, from all lanes of its block to the first one's gradients. */
static yoke_status sum_part(yoke_step *step, int lane, yoke_span *span) {
    const yoke_exchange *exchange = step->exchange;
    const yoke_bucket *bucket = &step->flat->buckets[span->bucket];
    const float *from[YOKE_DEVICES_LIMIT];
    int block = yoke_exchange_block(exchange), first = lane / block * block;
    size_t begin = yoke_line_cut(bucket->elements, YOKE_LINE_FLOATS, block, lane - first);
    size_t end = yoke_line_cut(bucket->elements, YOKE_LINE_FLOATS, block, lane - first + 1);
    for (int k = 0; k < block; k++)
        from[k] = exchange->gradients[first + k] + bucket->offset + begin;
    span->bytes = (size_t)(block + 1) * (end - begin) * sizeof(float);
    return yoke_device_sum(step->lanes[lane].device, YOKE_STREAM_COMPUTE,
                           exchange->gradients[first] + bucket->offset + begin, from, block,
                           end - begin);
}

static const yoke_bar sum_bar = {.stage = YOKE_STAGE_EXCHANGE, .work = sum_part};

static yoke_status sum_next(yoke_exchange *exchange, int lane) {
    int bucket = of(exchange)->next[lane]++;
    TRY(yoke_run_bar(exchange->step, &sum_bar, lane, bucket));
    return yoke_exchange_threads.ready(exchange, lane, bucket);
}

/* A bucket is ready for the sum over blocks once every lane has added its part. */
static yoke_status nodes_ready(yoke_exchange *exchange, int lane, int bucket) {
    yoke_step *step = exchange->step;
    int block = yoke_exchange_block(exchange);
    if (block == 1) return yoke_exchange_threads.ready(exchange, lane, bucket);
    yoke_workers_signal(step->workers, complete_of(exchange, lane, bucket));
    for (int *next = &of(exchange)->next[lane]; *next <= bucket;) {
        const uint32_t *complete = complete_of(exchange, lane, *next);
        if (!yoke_workers_reached(complete, (uint32_t)block)) return YOKE_OK;
        TRY(sum_next(exchange, lane));
    }
    return YOKE_OK;
}

static bool nodes_is_complete(const yoke_exchange *exchange, int bucket) {
    return yoke_exchange_threads.is_complete(exchange, bucket);
}

/* New weights. */

/* From the first lane of its block, what lanes of other nodes have updated. */
static yoke_status copy_bucket(yoke_step *step, int lane, yoke_span *span) {
    const yoke_exchange *exchange = step->exchange;
    int first = lane - lane % yoke_exchange_block(exchange);
    yoke_device *device = step->lanes[lane].device;
    for (int k = 0; k < step->count; k++) {
        yoke_slice slice = yoke_exchange_slice(exchange, k, span->bucket);
        size_t bytes = slice.elements * sizeof(float);
        if (node_of(step, k) == node_of(step, lane)) continue;
        TRY(yoke_device_copy(device, YOKE_STREAM_COMPUTE, exchange->parameters[lane] + slice.offset,
                             device, exchange->parameters[first] + slice.offset, bytes));
        span->bytes += 2 * bytes;
    }
    return YOKE_OK;
}

static const yoke_bar copy_bar = {.stage = YOKE_STAGE_EXCHANGE, .work = copy_bucket};

static yoke_status copy_from_block(yoke_exchange *exchange, int lane) {
    yoke_step *step = exchange->step;
    yoke_span wait = yoke_wait_begin(YOKE_STAGE_EXCHANGE, YOKE_NO_BUCKET);
    TRY(yoke_workers_barrier(step->workers)); /* all slices are published */
    yoke_wait_end(step, lane, &wait);
    bool is_first = lane % yoke_exchange_block(exchange) == 0;
    for (int bucket = 0; !is_first && bucket < step->flat->bucket_count; bucket++)
        TRY(yoke_run_bar(step, &copy_bar, lane, bucket));
    return YOKE_OK;
}

static yoke_status nodes_finish(yoke_exchange *exchange, int lane) {
    yoke_step *step = exchange->step;
    int block = yoke_exchange_block(exchange);
    while (block > 1 && of(exchange)->next[lane] < step->flat->bucket_count) {
        int bucket = of(exchange)->next[lane];
        yoke_span wait = yoke_wait_begin(YOKE_STAGE_BACKWARD, bucket);
        TRY(yoke_workers_await(step->workers, complete_of(exchange, lane, bucket),
                               (uint32_t)block));
        yoke_wait_end(step, lane, &wait);
        TRY(sum_next(exchange, lane));
    }
    TRY(yoke_exchange_threads.finish(exchange, lane));
    if (block == 1 || !yoke_flight_is_finite(step)) return YOKE_OK;
    return yoke_exchange_first_bad(exchange) == YOKE_ALL_FINITE ? copy_from_block(exchange, lane)
                                                                : YOKE_OK;
}

/* By hand: no block is summed. */

static yoke_status nodes_reduce(yoke_exchange *exchange) {
    exchange->block = 1;
    return yoke_exchange_threads.reduce(exchange);
}

static yoke_status nodes_replicate(yoke_exchange *exchange) {
    return yoke_exchange_threads.replicate(exchange);
}

const yoke_exchange_kind yoke_exchange_nodes = {
    .bytes = sizeof(node_exchange),
    .fits = nodes_fit,
    .open = nodes_open,
    .close = nodes_close,
    .begin = nodes_begin,
    .ready = nodes_ready,
    .is_complete = nodes_is_complete,
    .finish = nodes_finish,
    .reduce = nodes_reduce,
    .update = yoke_exchange_update_root,
    .replicate = nodes_replicate,
};
