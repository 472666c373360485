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
} all_reduce_exchange;

/* Gradients lie in memory of the process group, where an all-reduce moves nothing twice. */
static yoke_status all_reduce_place(yoke_exchange *exchange, size_t bytes, float **parameters,
                                    float **gradients) {
    void *memory = NULL;
    (void)parameters;
    TRY(yoke_process_group_allocate(exchange->process_group, bytes, &memory));
    *gradients = memory;
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
    TRY(yoke_process_group_all_reduce_async(
        exchange->process_group, exchange->gradients[lane] + bucket.offset, bucket.elements));
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
