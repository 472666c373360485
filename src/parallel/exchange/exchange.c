/* SPDX-License-Identifier: Apache-2.0 */
/* What every exchange shares: its participants, the optimizer's state, slices, clipping. */
#include "parallel/exchange/exchange.h"

#include <math.h>
#include <stdlib.h>

#include "parallel/exchange/exchange_links.h"

_Static_assert(YOKE_DEVICES_LIMIT <= YOKE_AGREE_RANKS, "arrays of ranks hold all devices, too");

/* Life. */

yoke_status yoke_exchange_create(yoke_step *step, const yoke_exchange_kind *kind) {
    if (kind->check != NULL) TRY(kind->check(step));
    yoke_exchange *exchange = yoke_calloc(1, kind->bytes);
    if (exchange == NULL) return FAIL_MEMORY(kind->bytes, "the exchange");
    exchange->kind = kind;
    exchange->step = step;
    exchange->process_group = step->ranks.process_group;
    exchange->participants = step->count;
    if (kind->joins_ranks) {
        exchange->participants = step->ranks.world;
        exchange->first = step->ranks.rank;
    }
    exchange->owners = step->options.schedule == YOKE_SCHEDULE_SHARDED ? exchange->participants : 1;
    exchange->norm_parts = step->queued ? exchange->owners : exchange->participants;
    if (step->options.shards > 0) exchange->norm_parts = step->options.shards;
    const yoke_optimizer_rule *rule = yoke_optimizer_rule_of(step->optimizer_options.kind);
    exchange->sees_tensors = rule->sees != YOKE_SEES_ELEMENTS;
    step->exchange = exchange;
    if (exchange->sees_tensors && step->queued && exchange->owners > 1)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%s needs whole tensors, which the sharded schedule divides among GPUs: take "
                    "another schedule",
                    rule->title);
    if (exchange->participants <= YOKE_DEVICES_LIMIT) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT, "%d ranks share the update: the sharded schedule takes %d",
                exchange->participants, YOKE_DEVICES_LIMIT);
}

static yoke_status create_optimizer(yoke_exchange *exchange, int lane, int bucket) {
    yoke_step *step = exchange->step;
    yoke_slice slice = yoke_exchange_owned(exchange, exchange->first + lane, bucket);
    int index = slice.owner * step->flat->bucket_count + bucket;
    TRY(yoke_optimizer_create(&exchange->optimizers[index], &step->optimizer_options,
                              yoke_groups_ranges(&step->groups), step->lanes[lane].device,
                              slice.offset, slice.elements));
    return exchange->keeps ? yoke_optimizer_keep(exchange->optimizers[index]) : YOKE_OK;
}

static yoke_status create_work(yoke_exchange *exchange, int lane) {
    const yoke_step *step = exchange->step;
    size_t bytes =
        yoke_optimizer_work_bytes(&step->optimizer_options, yoke_groups_ranges(&step->groups));
    if (bytes == 0) return YOKE_OK;
    return yoke_device_allocate(step->lanes[lane].device, bytes, "the optimizer's work",
                                &exchange->works[lane]);
}

/* By the lane's own worker, so that memory lies near its cores. */
static yoke_status create_optimizers(int lane, void *context) {
    yoke_exchange *exchange = context;
    yoke_step *step = exchange->step;
    int owner = exchange->first + lane;
    TRY(create_work(exchange, lane));
    if (owner >= exchange->owners) return YOKE_OK;
    for (int bucket = 0; bucket < step->flat->bucket_count; bucket++)
        TRY(yoke_memory_advice(
            create_optimizer(exchange, lane, bucket),
            "the optimizer's state does not fit, whatever the rows: the sharded schedule divides "
            "it among the devices, and SGD keeps less than AdamW"));
    return YOKE_OK;
}

yoke_status yoke_exchange_open(yoke_exchange *exchange) {
    yoke_step *step = exchange->step;
    size_t participants = (size_t)exchange->participants, lanes = (size_t)step->count;
    size_t buckets = (size_t)step->flat->bucket_count + 1; /* none: nothing trains */
    exchange->gradients = yoke_calloc(participants, sizeof *exchange->gradients);
    exchange->parameters = yoke_calloc(participants, sizeof *exchange->parameters);
    exchange->shadows = yoke_calloc(participants, sizeof *exchange->shadows);
    exchange->accumulated = yoke_calloc(participants, sizeof *exchange->accumulated);
    exchange->optimizers =
        yoke_calloc((size_t)exchange->owners * buckets, sizeof *exchange->optimizers);
    exchange->arrivals = yoke_calloc(buckets, sizeof *exchange->arrivals);
    exchange->next = yoke_calloc(lanes, sizeof *exchange->next);
    exchange->square_sums =
        yoke_calloc((size_t)exchange->norm_parts * buckets, sizeof *exchange->square_sums);
    exchange->first_bad = yoke_calloc(lanes, sizeof *exchange->first_bad);
    exchange->works = yoke_calloc(lanes, sizeof *exchange->works);
    if (!exchange->gradients || !exchange->parameters || !exchange->shadows ||
        !exchange->accumulated || !exchange->optimizers || !exchange->arrivals || !exchange->next ||
        !exchange->square_sums || !exchange->first_bad || !exchange->works)
        return FAIL_MEMORY((participants + buckets) * sizeof(void *), "the exchange");
    for (int k = 0; k < step->count; k++) {
        exchange->gradients[k] = step->lanes[k].memory->gradients;
        exchange->parameters[k] = step->lanes[k].memory->parameters;
        exchange->accumulated[k] = step->lanes[k].accumulated;
        if (exchange->publishes_shadow || (!step->queued && !exchange->kind->joins_ranks))
            exchange->shadows[k] = step->lanes[k].memory->shadow;
    }
    if (exchange->kind->open != NULL) TRY(exchange->kind->open(exchange));
    TRY(yoke_exchange_links_open(exchange));
    return yoke_apply(step, step->count, "create", create_optimizers, exchange);
}

void yoke_exchange_destroy(yoke_exchange *exchange) {
    if (exchange == NULL) return;
    yoke_exchange_links_close(exchange);
    if (exchange->kind->close != NULL) exchange->kind->close(exchange);
    const yoke_flat *flat = exchange->step->flat;
    for (int i = 0; exchange->optimizers && i < exchange->owners * flat->bucket_count; i++)
        yoke_optimizer_destroy(exchange->optimizers[i]);
    for (int lane = 0; exchange->works != NULL && lane < exchange->step->count; lane++)
        yoke_device_free(exchange->step->lanes[lane].device, exchange->works[lane]);
    yoke_free(exchange->works);
    yoke_free(exchange->first_bad);
    yoke_free(exchange->square_sums);
    yoke_free(exchange->next);
    yoke_free(exchange->arrivals);
    yoke_free(exchange->optimizers);
    yoke_free(exchange->accumulated);
    yoke_free(exchange->shadows);
    yoke_free(exchange->parameters);
    yoke_free(exchange->gradients);
    yoke_free(exchange);
}

size_t yoke_exchange_sums_bytes(const yoke_step *step) {
    return (size_t)yoke_lane_sums(step) * step->flat->trainable_elements * sizeof(float);
}

size_t yoke_exchange_optimizer_bytes(const yoke_exchange *exchange, int lane) {
    size_t bytes = 0;
    int buckets = exchange->step->flat->bucket_count, owner = exchange->first + lane;
    for (int bucket = 0; owner < exchange->owners && bucket < buckets; bucket++)
        bytes += yoke_optimizer_bytes(exchange->optimizers[owner * buckets + bucket]);
    return bytes;
}

yoke_status yoke_exchange_set_rate(yoke_exchange *exchange, double learning_rate) {
    yoke_step *step = exchange->step;
    if (!isfinite(learning_rate))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "learning_rate is %g: it must be finite; a negative number means the "
                    "optimizer's own",
                    learning_rate);
    exchange->update = (yoke_optimizer_step){
        .step = yoke_updates_of(step),
        .learning_rate = learning_rate >= 0 ? learning_rate : step->optimizer_options.learning_rate,
        .gradient_scale = (float)(1 / step->gradient.factor),
        .unreached = yoke_reach_use(&step->reach),
        .model = step->model_index,
        .model_steps = exchange->model_steps,
    };
    for (int i = 0; i < step->model_count; i++)
        exchange->model_steps[i] = step->models[i].steps;
    yoke_exchange_forget(exchange);
    return YOKE_OK;
}

/* The stages of a step. */

static void rewind_buckets(yoke_exchange *exchange) {
    for (int bucket = 0; bucket < exchange->step->flat->bucket_count; bucket++)
        exchange->arrivals[bucket] = 0;
    for (int lane = 0; lane < exchange->step->count; lane++)
        exchange->next[lane] = 0;
}

/* What recordings read in place of `update`. */
static void set_scalars(yoke_exchange *exchange) {
    yoke_step *step = exchange->step;
    yoke_optimizer_slot_scalars(&step->optimizer_options, yoke_groups_ranges(&step->groups),
                                &exchange->update, exchange->scalars);
    if (step->average.values != NULL)
        exchange->scalars[exchange->slots - 1] = yoke_average_scalars(step);
    step->flight.scalars = exchange->scalars;
    step->flight.scalar_count = exchange->slots;
}

/* The average of the weights has one behind those of the optimizer. */
int yoke_exchange_slots(yoke_step *step) {
    yoke_optimizer_ranges *ranges = &step->groups.ranges;
    int slots = yoke_optimizer_number_slots(&step->optimizer_options,
                                            ranges->items != NULL ? ranges : NULL);
    if (slots == 0 || step->options.ema_decay == 0) return slots;
    return slots < YOKE_UPDATE_SLOTS ? slots + 1 : 0;
}

yoke_status yoke_exchange_record(yoke_exchange *exchange) {
    yoke_optimizer_step in_flight = exchange->update;
    exchange->update = (yoke_optimizer_step){.model = exchange->step->model_index,
                                             .model_steps = exchange->model_steps};
    yoke_status status = YOKE_OK;
    exchange->replayed = false;
    rewind_buckets(exchange);
    for (int bucket = 0; status == YOKE_OK && bucket < exchange->step->flat->bucket_count; bucket++)
        status = exchange->kind->ready(exchange, 0, bucket);
    if (status == YOKE_OK) status = exchange->kind->finish(exchange, 0);
    rewind_buckets(exchange);
    exchange->update = in_flight;
    return status;
}

yoke_status yoke_exchange_begin(yoke_exchange *exchange, double learning_rate) {
    yoke_step *step = exchange->step;
    TRY(yoke_exchange_set_rate(exchange, learning_rate));
    rewind_buckets(exchange);
    exchange->replayed = false;
    if (exchange->slots > 0) set_scalars(exchange);
    step->gradient.on_root = false;
    yoke_exchange_links_begin(exchange);
    if (exchange->kind->begin != NULL) exchange->kind->begin(exchange);
    return YOKE_OK;
}

yoke_status yoke_exchange_loss(yoke_exchange *exchange, int index) {
    if (exchange == NULL || exchange->kind->loss == NULL) return YOKE_OK;
    const yoke_lane *lane = &exchange->step->lanes[index];
    double loss = exchange->step->flight.result.loss;
    loss += lane->done.loss;
    if (lane->shard.rows > 0) loss += lane->memory->on_host->loss_sum;
    return exchange->kind->loss(exchange, loss);
}

bool yoke_exchange_takes_factors(const yoke_exchange *exchange) {
    const yoke_step *step = exchange->step;
    const yoke_flight *flight = &step->flight;
    return exchange->kind->takes_factors && flight->contributors > 1 && flight->micros == 1 &&
           !flight->by_shards && step->watch.links == NULL && step->watch.faults == NULL;
}

yoke_status yoke_exchange_ready(yoke_exchange *exchange, int lane, int bucket) {
    yoke_exchange_links_arrive(exchange, lane, bucket);
    TRY(exchange->kind->ready(exchange, lane, bucket));
    return exchange->kind->is_complete != NULL ? yoke_exchange_advance(exchange, lane) : YOKE_OK;
}

const char *yoke_exchange_parameter_at(const yoke_exchange *exchange, uint64_t element) {
    const yoke_flat *flat = exchange->step->flat;
    yoke_tensor_info info = {.struct_size = sizeof info};
    int at = 0;
    while (at < flat->parameter_count - 1 && flat->parameters[at + 1].offset <= element)
        at++;
    if (yoke_model_tensor(exchange->step->model, flat->parameters[at].tensor, &info) != YOKE_OK)
        return "a parameter";
    return info.name;
}

yoke_status yoke_exchange_check_gradient(const yoke_exchange *exchange) {
    uint64_t bad = yoke_exchange_first_bad(exchange);
    if (bad == YOKE_ALL_FINITE) return YOKE_OK;
    return FAIL(YOKE_ERROR_NUMERIC,
                "the gradient of %s is not finite; the weights are those before the update",
                yoke_exchange_parameter_at(exchange, bad));
}

yoke_status yoke_exchange_check(yoke_exchange *exchange) {
    if (exchange->kind->norm != NULL) TRY(exchange->kind->norm(exchange));
    return yoke_exchange_check_gradient(exchange);
}

yoke_status yoke_exchange_settle(yoke_exchange *exchange, uint64_t step, uint64_t *bad) {
    return exchange->kind->settle != NULL ? exchange->kind->settle(exchange, step, bad) : YOKE_OK;
}

yoke_status yoke_exchange_collect(yoke_exchange *exchange) {
    if (!exchange->root_is_behind) return YOKE_OK;
    TRY(exchange->kind->collect(exchange));
    exchange->root_is_behind = false;
    return YOKE_OK;
}

void yoke_exchange_complete(yoke_exchange *exchange) {
    yoke_change change = YOKE_CHANGED_PART;
    atomic_compare_exchange_strong(&exchange->change, &change, YOKE_CHANGED_ALL);
}

yoke_change yoke_exchange_recover(yoke_exchange *exchange) {
    return exchange->kind->recover != NULL ? exchange->kind->recover(exchange)
                                           : atomic_load(&exchange->change);
}

/* Slices. */

/* The first element of the bucket from `begin` on at which a tensor begins, or the bucket's end. */
static size_t next_tensor(const yoke_flat *flat, yoke_bucket bucket, size_t begin) {
    int low = 0, high = flat->trainable_count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (flat->parameters[middle].offset < bucket.offset + begin)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == flat->trainable_count) return bucket.elements;
    size_t at = flat->parameters[low].offset - bucket.offset;
    return at < bucket.elements ? at : bucket.elements;
}

/* Where part `part` of `parts` of a bucket begins; the next one begins where it ends. */
static size_t cut(const yoke_exchange *exchange, int parts, int part, int bucket) {
    const yoke_flat *flat = exchange->step->flat;
    size_t at = yoke_line_cut(flat->buckets[bucket].elements, YOKE_LINE_FLOATS, parts, part);
    return exchange->sees_tensors ? next_tensor(flat, flat->buckets[bucket], at) : at;
}

/* Parts first .. end - 1 of `parts`, updated by `owner`. */
static yoke_slice slice_of(const yoke_exchange *exchange, int parts, int first, int end, int owner,
                           int bucket) {
    const yoke_flat *flat = exchange->step->flat;
    size_t begin = cut(exchange, parts, first, bucket);
    return (yoke_slice){.owner = owner,
                        .offset = flat->buckets[bucket].offset + begin,
                        .elements = cut(exchange, parts, end, bucket) - begin,
                        .optimizer = exchange->optimizers[owner * flat->bucket_count + bucket]};
}

/* Where participants square their slices, a slice is whole parts of the norm. */
yoke_slice yoke_exchange_slice(const yoke_exchange *exchange, int participant, int bucket) {
    int owner = participant % exchange->owners;
    if (exchange->step->queued)
        return slice_of(exchange, exchange->participants, participant, participant + 1, owner,
                        bucket);
    return slice_of(exchange, exchange->norm_parts, yoke_exchange_norm_part(exchange, participant),
                    yoke_exchange_norm_part(exchange, participant + 1), owner, bucket);
}

yoke_slice yoke_exchange_owned(const yoke_exchange *exchange, int owner, int bucket) {
    if (exchange->owners == exchange->participants)
        return yoke_exchange_slice(exchange, owner, bucket);
    return slice_of(exchange, exchange->owners, owner, owner + 1, owner, bucket);
}

yoke_bucket yoke_exchange_square_range(const yoke_exchange *exchange, int part, int bucket) {
    yoke_slice slice = slice_of(exchange, exchange->norm_parts, part, part + 1, 0, bucket);
    return (yoke_bucket){.offset = slice.offset, .elements = slice.elements};
}

/* Clipping. */

int yoke_exchange_norm_part(const yoke_exchange *exchange, int participant) {
    return exchange->norm_parts * participant / exchange->participants;
}

bool yoke_exchange_clips(const yoke_exchange *exchange) {
    return exchange->step->optimizer_options.clip_norm > 0;
}

void yoke_exchange_clip(yoke_exchange *exchange) {
    yoke_step *step = exchange->step;
    double squares = 0;
    for (int i = 0; i < exchange->norm_parts * step->flat->bucket_count; i++)
        squares += exchange->square_sums[i];
    step->flight.gradient_norm = sqrt(squares) / step->gradient.factor;
    exchange->update.gradient_scale =
        yoke_clip_scale(step->optimizer_options.clip_norm, step->flight.gradient_norm) /
        (float)step->gradient.factor;
}

/* The check. */

bool yoke_exchange_waits(const yoke_exchange *exchange) {
    return !exchange->step->options.skip_finite_check || yoke_exchange_clips(exchange) ||
           (exchange->sees_tensors && !exchange->step->queued);
}

void yoke_exchange_forget(yoke_exchange *exchange) {
    for (int lane = 0; lane < exchange->step->count; lane++)
        exchange->first_bad[lane] = YOKE_ALL_FINITE;
}

uint64_t yoke_exchange_first_bad(const yoke_exchange *exchange) {
    uint64_t first = YOKE_ALL_FINITE;
    for (int lane = 0; lane < exchange->step->count; lane++)
        if (exchange->first_bad[lane] < first) first = exchange->first_bad[lane];
    return first;
}
