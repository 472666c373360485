/* SPDX-License-Identifier: Apache-2.0 */
/* Reduce, update and publish over memory that every participant reaches: block by block, while a
 * block is in the cache. */
#include <math.h>
#include <string.h>

#include "parallel/exchange/exchange.h"

/* Floats summed, updated and published at a time: three such blocks stay in a worker's cache. A
 * thread of a team takes more, for which it is worth waking. */
#define BLOCK 8192
#define TEAM_BLOCK 32768

/* Before the first write to a weight. */
static void begin_change(yoke_exchange *exchange) {
    atomic_store_explicit(&exchange->change, YOKE_CHANGED_PART, memory_order_relaxed);
}

/* Where participants have shards that make several blocks each, or blocks of several sizes. */
static yoke_status sum_blocks(const yoke_exchange *exchange, int lane, float *to, size_t offset,
                              size_t elements) {
    const yoke_step *step = exchange->step;
    const float *from[YOKE_SHARDS_LIMIT];
    yoke_blocks blocks;
    yoke_shards_blocks(step, &blocks);
    for (int i = 0; i < blocks.count; i++) {
        int k = blocks.participants[i];
        size_t before = (size_t)blocks.buffers[i] * step->flat->trainable_elements;
        from[i] = offset + (blocks.buffers[i] < 0 ? exchange->gradients[k]
                                                  : exchange->accumulated[k] + before);
    }
    return yoke_device_sum_subtrees(step->lanes[lane].device, YOKE_STREAM_COMPUTE, to, from,
                                    blocks.sizes, blocks.count, elements);
}

/* In an all-reduce the transport adds the blocks. */
static bool adds_blocks(const yoke_exchange *exchange) {
    const yoke_step *step = exchange->step;
    return step->flight.by_shards && !step->shards.plain &&
           exchange->participants == yoke_deal_participants(step);
}

yoke_status yoke_exchange_sum(const yoke_exchange *exchange, int lane, float *to, size_t offset,
                              size_t elements) {
    const float *from[YOKE_DEVICES_LIMIT];
    const yoke_step *step = exchange->step;
    int count = 0, block = yoke_exchange_block(exchange);
    if (adds_blocks(exchange)) return sum_blocks(exchange, lane, to, offset, elements);
    for (int k = 0; k < step->flight.contributors; k += block)
        from[count++] = exchange->gradients[k] + offset;
    return yoke_device_sum(step->lanes[lane].device, YOKE_STREAM_COMPUTE, to, from, count,
                           elements);
}

int yoke_exchange_block(const yoke_exchange *exchange) {
    bool all = exchange->step->flight.contributors == exchange->participants;
    return exchange->block > 1 && all && !adds_blocks(exchange) ? exchange->block : 1;
}

bool yoke_exchange_publishes_to(const yoke_exchange *exchange, int lane, int to) {
    const yoke_lane *lanes = exchange->step->lanes;
    if (to % yoke_exchange_block(exchange) == 0) return true;
    return yoke_device_node(lanes[to].device) == yoke_device_node(lanes[lane].device);
}

/* New weights of a participant in bfloat16, where plans read such. */
static yoke_status round_weights(const yoke_exchange *exchange, int lane, int participant,
                                 const yoke_slice *slice) {
    uint16_t *shadow = exchange->shadows[participant];
    if (shadow == NULL) return YOKE_OK;
    return yoke_device_shadow(exchange->step->lanes[lane].device, shadow + slice->offset,
                              exchange->parameters[participant] + slice->offset, slice->elements);
}

/* Participant 0 gets all weights in float32, the others get them in the forms that plans read. Adds
 * the bytes written to *written. */
static yoke_status publish_forms(const yoke_exchange *exchange, int lane, const yoke_slice *part,
                                 unsigned forms, size_t *written) {
    yoke_device *device = exchange->step->lanes[lane].device;
    const float *weights = exchange->parameters[part->owner] + part->offset;
    const uint16_t *shadow = exchange->shadows[part->owner];
    size_t wide = part->elements * sizeof *weights, narrow = part->elements * sizeof *shadow;
    for (int k = 0; k < exchange->participants; k++) {
        if (k == part->owner || !yoke_exchange_publishes_to(exchange, lane, k)) continue;
        if (k == 0 || shadow == NULL || (forms & YOKE_FORM_FLOAT32) != 0) {
            TRY(yoke_device_copy(device, YOKE_STREAM_COMPUTE,
                                 exchange->parameters[k] + part->offset, device, weights, wide));
            *written += wide;
        }
        if (shadow != NULL && (forms & YOKE_FORM_BFLOAT16) != 0) {
            TRY(yoke_device_copy(device, YOKE_STREAM_COMPUTE, exchange->shadows[k] + part->offset,
                                 device, shadow + part->offset, narrow));
            *written += narrow;
        }
    }
    return YOKE_OK;
}

/* The owner's new weights of a slice go to the other participants. */
static yoke_status publish(const yoke_exchange *exchange, int lane, const yoke_slice *slice,
                           size_t *written) {
    const yoke_flat *flat = exchange->step->flat;
    size_t end = slice->offset + slice->elements;
    TRY(round_weights(exchange, lane, slice->owner, slice));
    if (exchange->shadows[slice->owner] != NULL) *written += slice->elements * sizeof(uint16_t);
    for (yoke_slice part = *slice; part.offset < end; part.offset += part.elements) {
        unsigned forms = 0;
        part.elements = yoke_flat_alike(flat, part.offset, end, &forms) - part.offset;
        TRY(publish_forms(exchange, lane, &part, forms, written));
    }
    return YOKE_OK;
}

/* How many gradients a sum reads. */
static size_t sum_terms(const yoke_exchange *exchange) {
    return (size_t)(exchange->step->flight.contributors / yoke_exchange_block(exchange));
}

/* Floats at a time. The threads of a device share a block, each as much as its cache keeps. */
static size_t block_elements(const yoke_exchange *exchange, int lane) {
    int threads = yoke_device_threads(exchange->step->lanes[lane].device);
    return threads > 1 ? (size_t)threads * TEAM_BLOCK : BLOCK;
}

/* Where every worker goes through its slice; by hand that is an update. floats: read or written for
 * an element of the slice. */
static void fill_span(const yoke_exchange *exchange, int lane, yoke_span *span, size_t floats) {
    yoke_slice slice = yoke_exchange_slice(exchange, exchange->first + lane, span->bucket);
    span->bytes = floats * slice.elements * sizeof(float);
    if (exchange->step->gradient.on_root) span->stage = YOKE_STAGE_UPDATE;
}

static yoke_status check_range(yoke_exchange *exchange, int lane, yoke_bucket range) {
    return yoke_device_check_finite(exchange->step->lanes[lane].device, YOKE_STREAM_COMPUTE,
                                    exchange->gradients[0] + range.offset, range.elements,
                                    range.offset, &exchange->first_bad[lane]);
}

/* The lane's parts of the norm. A double holds the sum of the squares of all finite floats: where a
 * sum is not finite, a gradient is not either. */
static yoke_status square_slice(yoke_exchange *exchange, int lane, int bucket) {
    const yoke_step *step = exchange->step;
    int buckets = step->flat->bucket_count, participant = exchange->first + lane;
    int end = yoke_exchange_norm_part(exchange, participant + 1);
    for (int part = yoke_exchange_norm_part(exchange, participant); part < end; part++) {
        yoke_bucket range = yoke_exchange_square_range(exchange, part, bucket);
        double *squares = &exchange->square_sums[part * buckets + bucket];
        TRY(yoke_device_square_sum(step->lanes[lane].device, YOKE_STREAM_COMPUTE,
                                   exchange->gradients[0] + range.offset, range.elements, squares));
        if (!isfinite(*squares)) TRY(check_range(exchange, lane, range));
    }
    return YOKE_OK;
}

/* Sums the lane's slice of a bucket to where participant 0's gradients were, unless the sum lies
 * there already. Checks each block while it is in the cache. */
static yoke_status sum_slice(yoke_step *step, int lane, yoke_span *span) {
    yoke_exchange *exchange = step->exchange;
    int bucket = span->bucket;
    bool is_summed = step->flight.contributors < 2 || step->gradient.on_root;
    bool clips = yoke_exchange_clips(exchange);
    yoke_slice slice = yoke_exchange_slice(exchange, exchange->first + lane, bucket);
    size_t end = slice.offset + slice.elements, most = block_elements(exchange, lane);
    for (yoke_slice block = slice; !is_summed && block.offset < end; block.offset += most) {
        float *to = exchange->gradients[0] + block.offset;
        block.elements = end - block.offset < most ? end - block.offset : most;
        TRY(yoke_exchange_sum(exchange, lane, to, block.offset, block.elements));
        if (!clips) TRY(check_range(exchange, lane, (yoke_bucket){block.offset, block.elements}));
    }
    if (clips) TRY(square_slice(exchange, lane, bucket));
    if (!clips && is_summed)
        TRY(check_range(exchange, lane, (yoke_bucket){slice.offset, slice.elements}));
    fill_span(exchange, lane, span, 1 + (is_summed ? 0 : sum_terms(exchange)));
    return YOKE_OK;
}

static const yoke_bar sum_bar = {.stage = YOKE_STAGE_EXCHANGE, .work = sum_slice};

static bool sums_as_it_updates(const yoke_exchange *exchange) {
    return !yoke_exchange_waits(exchange) && exchange->step->flight.contributors > 1;
}

/* Whether sums or old weights of a block lie in memory of its own. */
static bool keeps_blocks(const yoke_exchange *exchange) {
    return sums_as_it_updates(exchange) || exchange->kind->kept != NULL;
}

/* New weights of a block; the old ones, if they are kept, go where participant 0's gradients were.
 */
static yoke_status update_block(const yoke_exchange *exchange, int lane, const yoke_slice *block) {
    _Alignas(64) float summed[BLOCK], old[BLOCK];
    bool sums = sums_as_it_updates(exchange), keeps = exchange->kind->kept != NULL;
    float *root_gradients = exchange->gradients[0] + block->offset;
    float *weights = exchange->parameters[block->owner] + block->offset;
    size_t bytes = block->elements * sizeof *weights;
    if (sums) TRY(yoke_exchange_sum(exchange, lane, summed, block->offset, block->elements));
    if (keeps) memcpy(old, weights, bytes);
    TRY(yoke_optimizer_update(block->optimizer, &exchange->update,
                              exchange->step->lanes[lane].device, block->offset, block->elements,
                              weights, sums ? summed : root_gradients));
    if (keeps) memcpy(root_gradients, old, bytes);
    return YOKE_OK;
}

/* The same of whole tensors. */
static yoke_status update_tensors(const yoke_exchange *exchange, int lane,
                                  const yoke_slice *slice) {
    float *root_gradients = exchange->gradients[0] + slice->offset;
    yoke_optimizer_step update = exchange->update;
    update.work = exchange->works[lane];
    if (exchange->kind->kept != NULL) update.kept = root_gradients;
    return yoke_optimizer_update(
        slice->optimizer, &update, exchange->step->lanes[lane].device, slice->offset,
        slice->elements, exchange->parameters[slice->owner] + slice->offset, root_gradients);
}

/* The lane's slice of a bucket, block by block while a block is in the cache: new weights from its
 * gradients, which a step that neither checks nor clips sums in the same pass. The old weights are
 * kept before the new ones reach another participant. */
static yoke_status update_slice(yoke_step *step, int lane, yoke_span *span) {
    yoke_exchange *exchange = step->exchange;
    yoke_slice slice = yoke_exchange_slice(exchange, exchange->first + lane, span->bucket);
    size_t end = slice.offset + slice.elements, written = 0;
    size_t most = keeps_blocks(exchange) ? BLOCK : block_elements(exchange, lane);
    if (exchange->sees_tensors) most = slice.elements;
    for (yoke_slice block = slice; block.offset < end; block.offset += most) {
        block.elements = end - block.offset < most ? end - block.offset : most;
        TRY(exchange->sees_tensors ? update_tensors(exchange, lane, &block)
                                   : update_block(exchange, lane, &block));
        if (exchange->kind->kept != NULL)
            exchange->kind->kept(exchange, span->bucket, block.offset + block.elements);
        TRY(publish(exchange, lane, &block, &written));
    }
    bool sums = sums_as_it_updates(exchange);
    fill_span(exchange, lane, span, (sums ? sum_terms(exchange) : 1) + 4);
    span->bytes += written;
    return YOKE_OK;
}

static const yoke_bar update_bar = {.stage = YOKE_STAGE_EXCHANGE, .work = update_slice};

yoke_status yoke_exchange_advance(yoke_exchange *exchange, int lane) {
    yoke_step *step = exchange->step;
    bool waits = yoke_exchange_waits(exchange);
    for (int *next = &exchange->next[lane]; *next < step->flat->bucket_count; ++*next) {
        if (!exchange->kind->is_complete(exchange, *next)) return YOKE_OK;
        if (!waits) begin_change(exchange);
        TRY(yoke_run_bar(step, waits ? &sum_bar : &update_bar, lane, *next));
    }
    return YOKE_OK;
}

yoke_status yoke_exchange_sum_slices(int lane, void *context) {
    yoke_step *step = ((yoke_exchange *)context)->step;
    for (int bucket = 0; bucket < step->flat->bucket_count; bucket++)
        TRY(yoke_run_bar(step, &sum_bar, lane, bucket));
    return YOKE_OK;
}

/* The last bucket first: its gradients and weights are those that the cache still holds. */
yoke_status yoke_exchange_update_slices(yoke_exchange *exchange, int lane) {
    yoke_step *step = exchange->step;
    if (yoke_exchange_first_bad(exchange) != YOKE_ALL_FINITE) return YOKE_OK;
    begin_change(exchange);
    for (int bucket = step->flat->bucket_count - 1; bucket >= 0; bucket--)
        TRY(yoke_run_bar(step, &update_bar, lane, bucket));
    return YOKE_OK;
}

/* The owner's worker updates the root's weights with the optimizer's state it holds. */
static yoke_status update_owned(yoke_step *step, int owner, yoke_span *span) {
    yoke_exchange *exchange = step->exchange;
    yoke_slice slice = yoke_exchange_owned(exchange, owner, span->bucket);
    yoke_optimizer_step update = exchange->update;
    update.work = exchange->works[owner];
    size_t end = slice.offset + slice.elements, most = block_elements(exchange, owner);
    if (exchange->sees_tensors) most = slice.elements;
    span->bytes = 5 * slice.elements * sizeof(float);
    for (yoke_slice block = slice; block.offset < end; block.offset += most) {
        block.elements = end - block.offset < most ? end - block.offset : most;
        TRY(yoke_optimizer_update(block.optimizer, &update, step->lanes[owner].device, block.offset,
                                  block.elements, exchange->parameters[0] + block.offset,
                                  exchange->gradients[0] + block.offset));
        TRY(round_weights(exchange, owner, 0, &block));
    }
    return YOKE_OK;
}

static const yoke_bar owned_bar = {.stage = YOKE_STAGE_UPDATE, .work = update_owned};

yoke_status yoke_exchange_update_owned(int owner, void *context) {
    yoke_exchange *exchange = context;
    yoke_step *step = exchange->step;
    begin_change(exchange);
    for (int bucket = 0; owner < exchange->owners && bucket < step->flat->bucket_count; bucket++)
        TRY(yoke_run_bar(step, &owned_bar, owner, bucket));
    return YOKE_OK;
}

yoke_status yoke_exchange_update_root(yoke_exchange *exchange) {
    yoke_step *step = exchange->step;
    if (yoke_exchange_waits(exchange)) {
        TRY(yoke_apply(step, step->count, "update", yoke_exchange_sum_slices, exchange));
        if (yoke_exchange_clips(exchange)) yoke_exchange_clip(exchange);
        TRY(yoke_exchange_check_gradient(exchange));
    }
    return yoke_apply(step, step->count, "update", yoke_exchange_update_owned, exchange);
}
