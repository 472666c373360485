/* SPDX-License-Identifier: Apache-2.0 */
/* DistributedDataParallel on CPU devices: ranks all-reduce a finished bucket while backward goes
 * on, and each rank then updates its own weights: there is no root and nothing to publish. The loss
 * travels ahead of bucket 0, so that no rank updates in a step whose loss is not finite on any. All
 * ranks hold the same sums, so each finds for itself whether they are finite. */
#include <math.h>

#include "parallel/exchange/exchange.h"
#include "parallel/exchange/exchange_links.h"

typedef struct all_reduce_exchange {
    yoke_exchange base;
    float *found_nonfinite; /* 0, or NaN where a loss is not finite; summed over the ranks */
    yoke_rank_blocks blocks;
} all_reduce_exchange;

_Static_assert(YOKE_SHARDS_LIMIT <= YOKE_RANK_BLOCKS, "a shard is a block at most");

/* Whether ranks have sums that are no single subtree of the sum over all shards. */
static bool has_blocks(const yoke_step *step) {
    return step->options.shards > 0 && !step->shards.plain;
}

static void list_blocks(const yoke_exchange *exchange, yoke_rank_blocks *to) {
    const yoke_flat *flat = exchange->step->flat;
    yoke_blocks blocks;
    yoke_shards_blocks(exchange->step, &blocks);
    to->count = blocks.count;
    for (int i = 0; i < blocks.count; i++) {
        to->ranks[i] = blocks.participants[i];
        to->sizes[i] = blocks.sizes[i];
        to->offsets[i] = blocks.buffers[i] < 0 ? 0
                                               : flat->elements + (size_t)blocks.buffers[i] *
                                                                      flat->trainable_elements;
    }
}

/* Gradients lie in memory of the process group, where an all-reduce moves nothing twice; behind
 * them lie the rank's other sums, if it has some. */
static yoke_status all_reduce_place(yoke_exchange *exchange, size_t bytes, float **parameters,
                                    float **gradients) {
    const yoke_step *step = exchange->step;
    void *memory = NULL;
    size_t sums = has_blocks(step) ? yoke_exchange_sums_bytes(step) : 0;
    (void)parameters;
    TRY(yoke_process_group_allocate(exchange->process_group, bytes + sums, &memory));
    *gradients = memory;
    if (sums == 0) return YOKE_OK;
    exchange->step->shards.placed = *gradients + step->flat->elements;
    list_blocks(exchange, &((all_reduce_exchange *)exchange)->blocks);
    return YOKE_OK;
}

static yoke_status all_reduce_open(yoke_exchange *exchange) {
    void *memory = NULL;
    TRY(yoke_process_group_allocate(exchange->process_group, sizeof(float), &memory));
    ((all_reduce_exchange *)exchange)->found_nonfinite = memory;
    return YOKE_OK;
}

static yoke_status all_reduce_loss(yoke_exchange *exchange, double loss) {
    float *found_nonfinite = ((all_reduce_exchange *)exchange)->found_nonfinite;
    *found_nonfinite = isfinite(loss) ? 0 : NAN;
    return yoke_process_group_all_reduce_async(exchange->process_group, found_nonfinite, 1);
}

static size_t bytes_of(const yoke_step *step, size_t elements) {
    return 2 * (size_t)step->ranks.world * elements * sizeof(float);
}

static yoke_status start_all_reduce(yoke_step *step, int lane, yoke_span *span) {
    yoke_exchange *exchange = step->exchange;
    yoke_bucket bucket = step->flat->buckets[span->bucket];
    span->bytes = bytes_of(step, bucket.elements);
    float *gradients = exchange->gradients[lane] + bucket.offset;
    const yoke_rank_blocks *blocks = &((all_reduce_exchange *)exchange)->blocks;
    TRY(step->flight.by_shards && blocks->count > 0
            ? yoke_process_group_all_reduce_blocks(exchange->process_group, gradients,
                                                   bucket.elements, blocks)
            : yoke_process_group_all_reduce_async(exchange->process_group, gradients,
                                                  bucket.elements));
    return yoke_process_group_progress(exchange->process_group);
}

static const yoke_bar start_bar = {.stage = YOKE_STAGE_ALL_REDUCE, .work = start_all_reduce};

static yoke_status all_reduce_ready(yoke_exchange *exchange, int lane, int bucket) {
    return yoke_run_bar(exchange->step, &start_bar, lane, bucket);
}

static yoke_status all_reduce_finish(yoke_exchange *exchange, int lane) {
    int last = exchange->step->flat->bucket_count - 1;
    yoke_span wait = yoke_wait_begin(YOKE_STAGE_BACKWARD, last);
    TRY(yoke_process_group_wait(exchange->process_group));
    yoke_wait_end(exchange->step, lane, &wait);
    yoke_exchange_links_finish(exchange, lane);
    if (*((all_reduce_exchange *)exchange)->found_nonfinite != 0) return YOKE_OK;
    if (yoke_exchange_waits(exchange)) {
        TRY(yoke_exchange_sum_slices(lane, exchange));
        if (yoke_exchange_clips(exchange)) yoke_exchange_clip(exchange);
        if (yoke_exchange_first_bad(exchange) != YOKE_ALL_FINITE) return YOKE_OK;
    }
    return yoke_exchange_update_owned(lane, exchange);
}

/* By hand. */

static yoke_status all_reduce_whole(yoke_step *step, int lane, yoke_span *span) {
    span->bytes = bytes_of(step, step->flat->trainable_elements);
    return yoke_process_group_all_reduce(
        step->ranks.process_group, step->lanes[lane].memory->gradients,
        step->flat->trainable_elements, YOKE_ELEMENT_FLOAT32, YOKE_SUM);
}

static const yoke_bar whole_bar = {.stage = YOKE_STAGE_ALL_REDUCE, .work = all_reduce_whole};

yoke_status yoke_exchange_all_reduce_gradient(yoke_exchange *exchange) {
    return yoke_run_bar(exchange->step, &whole_bar, 0, YOKE_NO_BUCKET);
}

const yoke_exchange_kind yoke_exchange_all_reduce = {
    .bytes = sizeof(all_reduce_exchange),
    .place = all_reduce_place,
    .open = all_reduce_open,
    .loss = all_reduce_loss,
    .ready = all_reduce_ready,
    .finish = all_reduce_finish,
    .reduce = yoke_exchange_all_reduce_gradient,
    .update = yoke_exchange_update_root,
};
