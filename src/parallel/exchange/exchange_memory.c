/* SPDX-License-Identifier: Apache-2.0 */
/* Reduce, update and publish over memory that every participant reaches: block by block, while a
 * block is in the cache. */
#include <float.h>
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

/* New weights of a participant in the compute precision, where plans read such. */
static yoke_status round_weights(const yoke_exchange *exchange, int lane, int participant,
                                 const yoke_slice *slice) {
    uint16_t *shadow = exchange->shadows[participant];
    if (shadow == NULL) return YOKE_OK;
    return yoke_device_shadow(exchange->step->lanes[lane].device, exchange->step->options.precision,
                              shadow + slice->offset,
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
        if (shadow != NULL && (forms & YOKE_FORM_SHADOW) != 0) {
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

/* A part of a slice whose gradients are summed in one way: all in memory, or all of one weight,
 * without the padding behind it. */
typedef struct gradient_part {
    size_t offset, elements;
    size_t weight;                                   /* where the weight begins */
    const yoke_factors *factors[YOKE_DEVICES_LIMIT]; /* the contributors'; [0] NULL: in memory */
} gradient_part;

/* The end of a weight whose gradient lanes keep as factors. 0: it lies in memory. */
static yoke_status find_factored_end(const yoke_exchange *exchange, int parameter, size_t *end) {
    const yoke_step *step = exchange->step;
    const yoke_parameter *weight = &step->flat->parameters[parameter];
    int factored = 0, contributors = step->flight.contributors;
    *end = 0;
    if (!step->flight.factors_only) return YOKE_OK;
    for (int k = 0; k < contributors; k++)
        factored += yoke_replica_factors(step->lanes[k].replica, parameter) != NULL;
    if (factored == contributors) *end = weight->offset + weight->layout.bytes / sizeof(float);
    if (factored == 0 || factored == contributors) return YOKE_OK;
    return FAIL(YOKE_ERROR_INTERNAL, "%d of %d lanes have factors of the gradient of %s", factored,
                contributors, yoke_exchange_parameter_at(exchange, weight->offset));
}

/* The part that begins at a flat element and ends at `end` at most. */
static yoke_status find_part(const yoke_exchange *exchange, size_t begin, size_t end,
                             gradient_part *part) {
    const yoke_step *step = exchange->step;
    const yoke_flat *flat = step->flat;
    int parameter = yoke_flat_at(flat, begin);
    size_t behind = 0, factored = 0;
    *part = (gradient_part){.offset = begin, .weight = flat->parameters[parameter].offset};
    TRY(find_factored_end(exchange, parameter, &behind));
    if (begin < behind) {
        for (int k = 0; k < step->flight.contributors; k++)
            part->factors[k] = yoke_replica_factors(step->lanes[k].replica, parameter);
    } else {
        for (behind = end; ++parameter < flat->parameter_count && behind == end;) {
            TRY(find_factored_end(exchange, parameter, &factored));
            if (factored > 0) behind = flat->parameters[parameter].offset;
        }
    }
    part->elements = (behind < end ? behind : end) - begin;
    return YOKE_OK;
}

/* The sum of a part of it. */
static yoke_status sum_of(const yoke_exchange *exchange, int lane, const gradient_part *part,
                          float *to, size_t offset, size_t elements) {
    const yoke_step *step = exchange->step;
    if (part->factors[0] == NULL) return yoke_exchange_sum(exchange, lane, to, offset, elements);
    return yoke_device_sum_factors(step->lanes[lane].device, part->factors,
                                   step->flight.contributors, offset - part->weight, elements, to);
}

/* Whether no sum can be infinite: then there is nothing to check, and each block is summed where it
 * is updated. Threads of a device share larger blocks than fit there. */
static bool is_bounded(const yoke_exchange *exchange, int lane, const gradient_part *part) {
    double bound = 0;
    if (part->factors[0] == NULL || yoke_exchange_clips(exchange) || exchange->sees_tensors ||
        yoke_device_threads(exchange->step->lanes[lane].device) > 1)
        return false;
    for (int k = 0; k < exchange->step->flight.contributors; k++)
        bound += part->factors[k]->bound;
    return bound < FLT_MAX / 2;
}

/* Elements of the block of at most `most` that begins at `offset`: whole lines of a weight. */
static size_t block_at(const gradient_part *part, size_t offset, size_t most) {
    size_t rest = part->offset + part->elements - offset;
    if (rest <= most) return rest;
    if (part->factors[0] == NULL) return most;
    size_t line = part->factors[0]->line, behind = (offset + most - part->weight) % line;
    return behind < most ? most - behind : most;
}

/* Bytes read to sum a part; of factors all, also where the part needs some of their columns. */
static size_t read_bytes(const yoke_exchange *exchange, const gradient_part *part) {
    size_t bytes = 0;
    int contributors = exchange->step->flight.contributors;
    if (part->factors[0] == NULL) return sum_terms(exchange) * part->elements * sizeof(float);
    for (int k = 0; k < contributors; k++)
        bytes += part->factors[k]->bytes;
    return bytes;
}

/* Floats at a time. The threads of a device share a block, each as much as its cache keeps. */
static size_t block_elements(const yoke_exchange *exchange, int lane) {
    int threads = yoke_device_threads(exchange->step->lanes[lane].device);
    return threads > 1 ? (size_t)threads * TEAM_BLOCK : BLOCK;
}

/* Where every worker goes through its slice; by hand that is an update. */
static void fill_span(const yoke_exchange *exchange, yoke_span *span, size_t bytes) {
    span->bytes = bytes;
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

/* Sums a part to where participant 0's gradients were, unless it is bounded. Checks each block
 * while it is in the cache. Adds the bytes read and written to *bytes. */
static yoke_status sum_part(yoke_exchange *exchange, int lane, const gradient_part *part,
                            size_t *bytes) {
    size_t end = part->offset + part->elements, most = block_elements(exchange, lane), count = 0;
    if (is_bounded(exchange, lane, part)) return YOKE_OK;
    for (size_t offset = part->offset; offset < end; offset += count) {
        count = block_at(part, offset, most);
        TRY(sum_of(exchange, lane, part, exchange->gradients[0] + offset, offset, count));
        if (!yoke_exchange_clips(exchange))
            TRY(check_range(exchange, lane, (yoke_bucket){offset, count}));
    }
    *bytes += read_bytes(exchange, part) + part->elements * sizeof(float);
    return YOKE_OK;
}

/* Sums and checks the lane's slice of a bucket; or the sum lies on participant 0 already. */
static yoke_status sum_slice(yoke_step *step, int lane, yoke_span *span) {
    yoke_exchange *exchange = step->exchange;
    bool is_summed = step->flight.contributors < 2 || step->gradient.on_root || exchange->summed;
    bool clips = yoke_exchange_clips(exchange);
    yoke_slice slice = yoke_exchange_slice(exchange, exchange->first + lane, span->bucket);
    size_t end = slice.offset + slice.elements;
    size_t bytes = is_summed ? slice.elements * sizeof(float) : 0;
    for (size_t offset = slice.offset; !is_summed && offset < end;) {
        gradient_part part;
        TRY(find_part(exchange, offset, end, &part));
        TRY(sum_part(exchange, lane, &part, &bytes));
        offset += part.elements;
    }
    if (clips) TRY(square_slice(exchange, lane, span->bucket));
    if (!clips && is_summed)
        TRY(check_range(exchange, lane, (yoke_bucket){slice.offset, slice.elements}));
    fill_span(exchange, span, bytes);
    return YOKE_OK;
}

static const yoke_bar sum_bar = {.stage = YOKE_STAGE_EXCHANGE, .work = sum_slice};

static bool sums_as_it_updates(const yoke_exchange *exchange, int lane, const gradient_part *part) {
    if (exchange->summed) return false;
    return (!yoke_exchange_waits(exchange) && exchange->step->flight.contributors > 1) ||
           is_bounded(exchange, lane, part);
}

/* New weights of a block; the old ones, if they are kept, go where participant 0's gradients were.
 */
static yoke_status update_block(const yoke_exchange *exchange, int lane, const yoke_slice *block,
                                const gradient_part *part, bool sums) {
    _Alignas(64) float summed[BLOCK], old[BLOCK];
    bool keeps = exchange->kind->kept != NULL;
    float *root_gradients = exchange->gradients[0] + block->offset;
    float *weights = exchange->parameters[block->owner] + block->offset;
    size_t bytes = block->elements * sizeof *weights;
    if (sums) TRY(sum_of(exchange, lane, part, summed, block->offset, block->elements));
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

/* The old weights of a block are kept before the new ones reach another participant. */
static yoke_status publish_block(yoke_exchange *exchange, int lane, const yoke_slice *block,
                                 int bucket, size_t *bytes) {
    if (exchange->kind->kept != NULL)
        exchange->kind->kept(exchange, bucket, block->offset + block->elements);
    return publish(exchange, lane, block, bytes);
}

/* A part of a slice, block by block while a block is in the cache: new weights from its gradients,
 * which a step that neither checks nor clips, or need not, sums in the same pass. */
static yoke_status update_part(yoke_exchange *exchange, int lane, const yoke_slice *slice,
                               const gradient_part *part, int bucket, size_t *bytes) {
    bool sums = sums_as_it_updates(exchange, lane, part);
    bool small = sums || exchange->kind->kept != NULL; /* sums or old weights lie on the stack */
    size_t end = part->offset + part->elements;
    yoke_slice block = *slice;
    for (block.offset = part->offset; block.offset < end; block.offset += block.elements) {
        block.elements =
            block_at(part, block.offset, small ? BLOCK : block_elements(exchange, lane));
        TRY(update_block(exchange, lane, &block, part, sums));
        TRY(publish_block(exchange, lane, &block, bucket, bytes));
    }
    *bytes += sums ? read_bytes(exchange, part) : part->elements * sizeof(float);
    return YOKE_OK;
}

static yoke_status update_slice(yoke_step *step, int lane, yoke_span *span) {
    yoke_exchange *exchange = step->exchange;
    const yoke_slice slice = yoke_exchange_slice(exchange, exchange->first + lane, span->bucket);
    size_t end = slice.offset + slice.elements, bytes = 4 * slice.elements * sizeof(float);
    if (exchange->sees_tensors && slice.elements > 0) {
        TRY(update_tensors(exchange, lane, &slice));
        TRY(publish_block(exchange, lane, &slice, span->bucket, &bytes));
        bytes += slice.elements * sizeof(float);
    }
    for (size_t offset = slice.offset; !exchange->sees_tensors && offset < end;) {
        gradient_part part;
        TRY(find_part(exchange, offset, end, &part));
        TRY(update_part(exchange, lane, &slice, &part, span->bucket, &bytes));
        offset += part.elements;
    }
    fill_span(exchange, span, bytes);
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
