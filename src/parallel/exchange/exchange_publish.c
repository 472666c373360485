/* SPDX-License-Identifier: Apache-2.0 */
/* How new weights reach the other devices of a group: in float32, or of weights that plans read in
 * 16 bits alone as those 16 bits. */
#include "parallel/exchange/exchange_publish.h"

/* As buffers of a range: two elements are one float. */
static void find_shadows(const yoke_exchange *exchange, float **buffers) {
    for (int k = 0; k < exchange->participants; k++)
        buffers[k] = (float *)(void *)exchange->shadows[k];
}

yoke_status yoke_publish_group(const yoke_exchange *exchange, yoke_device_group **group) {
    const yoke_step *step = exchange->step;
    const yoke_flat *flat = step->flat;
    yoke_device *devices[YOKE_DEVICES_LIMIT];
    size_t largest = flat->buffer_elements;
    for (int bucket = 0; bucket < flat->bucket_count; bucket++)
        if (flat->buckets[bucket].elements > largest) largest = flat->buckets[bucket].elements;
    for (int lane = 0; lane < step->count; lane++)
        devices[lane] = step->lanes[lane].device;
    yoke_device_group_request request = {.devices = devices,
                                         .count = step->count,
                                         .kind = step->options.collectives,
                                         .scratch_elements = largest};
    float *shadows[YOKE_DEVICES_LIMIT];
    TRY(yoke_device_group_create(group, &request));
    find_shadows(exchange, shadows);
    if (exchange->publishes_shadow)
        yoke_device_group_register(*group, shadows, flat->elements * sizeof(uint16_t));
    if (!step->options.inference)
        yoke_device_group_register(*group, exchange->gradients, flat->elements * sizeof(float));
    yoke_device_group_register(*group, exchange->parameters, flat->elements * sizeof(float));
    return YOKE_OK;
}

/* A range of a bucket, in floats of `buffers`, of which every owner has its slice. `size`: bytes of
 * an element; two of 2 bytes travel as one float. */
static yoke_status move_range(const yoke_exchange *exchange, yoke_device_group *group, int bucket,
                              yoke_bucket moved, float *const *buffers, size_t size) {
    size_t cuts[YOKE_DEVICES_LIMIT + 1] = {0}, end = moved.offset + moved.elements;
    yoke_range range = {.buffers = buffers,
                        .offset = moved.offset * size / sizeof(float),
                        .elements = moved.elements * size / sizeof(float)};
    if (exchange->owners == 1) return yoke_device_group_broadcast(group, &range);
    for (int owner = 0; owner < exchange->owners; owner++) {
        yoke_slice slice = yoke_exchange_owned(exchange, owner, bucket);
        size_t behind = slice.offset + slice.elements;
        size_t last = behind < moved.offset ? moved.offset : behind < end ? behind : end;
        cuts[owner + 1] = (last - moved.offset) * size / sizeof(float);
    }
    if (moved.elements < exchange->step->flat->buckets[bucket].elements) range.cuts = cuts;
    return yoke_device_group_all_gather(group, &range);
}

/* The part of a bucket that plans read in 16 bits alone, which comes first. */
static size_t narrow_elements(const yoke_exchange *exchange, int bucket) {
    const yoke_flat *flat = exchange->step->flat;
    yoke_bucket range = flat->buckets[bucket];
    unsigned forms;
    if (!exchange->publishes_shadow) return 0;
    size_t end = yoke_flat_alike(flat, range.offset, range.offset + range.elements, &forms);
    return forms == YOKE_FORM_SHADOW ? end - range.offset : 0;
}

yoke_status yoke_publish_bucket(yoke_exchange *exchange, yoke_device_group *group, int bucket) {
    yoke_bucket range = exchange->step->flat->buckets[bucket];
    size_t narrow = narrow_elements(exchange, bucket);
    yoke_bucket first = {range.offset, narrow};
    yoke_bucket rest = {range.offset + narrow, range.elements - narrow};
    float *shadows[YOKE_DEVICES_LIMIT];
    /* Equal parts are one all-gather, for a few bytes more. */
    if (exchange->owners > 1 && rest.elements <= range.elements / 8)
        first.elements = range.elements;
    find_shadows(exchange, shadows);
    if (narrow > 0) {
        TRY(move_range(exchange, group, bucket, first, shadows, sizeof(uint16_t)));
        exchange->root_is_behind = exchange->owners > 1;
    }
    if (rest.elements == 0) return YOKE_OK;
    return move_range(exchange, group, bucket, rest, exchange->parameters, sizeof(float));
}

/* Rare: the host waits. */
yoke_status yoke_publish_collect(yoke_exchange *exchange) {
    yoke_step *step = exchange->step;
    TRY(yoke_lanes_synchronize(step));
    for (int bucket = 0; bucket < step->flat->bucket_count; bucket++)
        for (int owner = 1; owner < exchange->owners; owner++) {
            yoke_slice slice = yoke_exchange_owned(exchange, owner, bucket);
            TRY(yoke_device_copy(step->lanes[0].device, YOKE_STREAM_COMPUTE,
                                 exchange->parameters[0] + slice.offset, step->lanes[owner].device,
                                 exchange->parameters[owner] + slice.offset,
                                 slice.elements * sizeof(float)));
        }
    TRY(yoke_device_use(step->lanes[0].device));
    return yoke_device_synchronize(step->lanes[0].device);
}

/* Several owners need their weights in float32. */
static bool all_go_narrow(const yoke_exchange *exchange) {
    const yoke_step *step = exchange->step;
    return exchange->publishes_shadow && exchange->owners == 1 &&
           exchange->stale.weights == step->flat->trainable_elements &&
           yoke_replica_has_shadow(step->lanes[0].replica);
}

static yoke_status send_buckets(yoke_exchange *exchange, yoke_device_group *group, size_t *bytes) {
    const yoke_flat *flat = exchange->step->flat;
    for (int bucket = 0; bucket < flat->bucket_count; bucket++) {
        TRY(yoke_publish_bucket(exchange, group, bucket));
        *bytes += flat->buckets[bucket].elements * sizeof(float) -
                  narrow_elements(exchange, bucket) * sizeof(uint16_t);
    }
    return YOKE_OK;
}

/* Rounds the weights that replicas got in float32, where their forward does not round them. */
static yoke_status round_on_lanes(yoke_exchange *exchange) {
    yoke_step *step = exchange->step;
    if (!exchange->publishes_shadow || exchange->stale.weights == 0) return YOKE_OK;
    for (int k = 1; k < step->count; k++) {
        TRY(yoke_device_shadow(step->lanes[k].device, step->options.precision, exchange->shadows[k],
                               exchange->parameters[k], exchange->stale.weights));
        yoke_replica_wrote_shadow(step->lanes[k].replica);
    }
    return yoke_device_use(step->lanes[0].device);
}

yoke_status yoke_publish_stale(yoke_exchange *exchange, yoke_device_group *group, size_t *bytes) {
    yoke_step *step = exchange->step;
    float *statistics[YOKE_DEVICES_LIMIT];
    size_t moved = 0;
    for (int k = 0; k < step->count; k++)
        statistics[k] = step->lanes[k].memory->buffers;
    yoke_range weights = {.buffers = exchange->parameters, .elements = exchange->stale.weights};
    yoke_range buffers = {.buffers = statistics,
                          .elements = exchange->stale.buffers ? step->flat->buffer_elements : 0};
    bool narrow = all_go_narrow(exchange);
    if (exchange->stale.weights > 0) TRY(yoke_exchange_collect(exchange));
    TRY(yoke_lanes_order(step, YOKE_STREAM_COMPUTE, YOKE_STREAM_COMMUNICATION));
    TRY(narrow ? send_buckets(exchange, group, &moved)
               : yoke_device_group_broadcast(group, &weights));
    TRY(yoke_device_group_broadcast(group, &buffers));
    TRY(yoke_lanes_order(step, YOKE_STREAM_COMMUNICATION, YOKE_STREAM_COMPUTE));
    if (!narrow) moved = weights.elements * sizeof(float);
    *bytes = 2 * (size_t)(step->count - 1) * (moved + buffers.elements * sizeof(float));
    return narrow ? YOKE_OK : round_on_lanes(exchange);
}
