/* SPDX-License-Identifier: Apache-2.0 */
/* The carriers: collectives of a device group or of a process group over ranges of the flat
 * buffers. */
#include "parallel/exchange/exchange_carrier.h"

#include "parallel/exchange/exchange_publish.h"

static yoke_range range_of(const yoke_exchange *exchange, float *const *buffers, int bucket) {
    yoke_bucket range = exchange->step->flat->buckets[bucket];
    return (yoke_range){.buffers = buffers, .offset = range.offset, .elements = range.elements};
}

static yoke_status reduce_bucket(yoke_exchange *exchange, yoke_device_group *group, int bucket) {
    yoke_range range = range_of(exchange, exchange->gradients, bucket);
    int contributors = exchange->step->flight.contributors;
    return exchange->owners > 1 ? yoke_device_group_reduce_scatter(group, &range, contributors)
                                : yoke_device_group_reduce(group, &range, contributors);
}

static yoke_status reduce_all_to_root(yoke_exchange *exchange, yoke_device_group *group) {
    yoke_step *step = exchange->step;
    if (step->flight.contributors < 2) return YOKE_OK;
    TRY(yoke_lanes_order(step, YOKE_STREAM_COMPUTE, YOKE_STREAM_COMMUNICATION));
    for (int bucket = 0; bucket < step->flat->bucket_count; bucket++) {
        yoke_range range = range_of(exchange, exchange->gradients, bucket);
        TRY(yoke_device_group_reduce(group, &range, step->flight.contributors));
    }
    return yoke_lanes_order(step, YOKE_STREAM_COMMUNICATION, YOKE_STREAM_COMPUTE);
}

static yoke_status all_reduce_ranks(yoke_exchange *exchange, yoke_device_group *group, int bucket) {
    (void)group;
    yoke_range range = range_of(exchange, exchange->gradients, bucket);
    return yoke_process_group_all_reduce_async(exchange->process_group,
                                               range.buffers[0] + range.offset, range.elements);
}

static yoke_status ask_ranks(yoke_exchange *exchange, yoke_gate *gate, yoke_gate_request *request) {
    yoke_gate_request own = {.losses = request->losses,
                             .loss_count = request->loss_count,
                             .closed = request->closed,
                             .stays_closed = request->stays_closed};
    TRY(yoke_device_gate(exchange->step->lanes[0].device, YOKE_STREAM_COMMUNICATION, gate, &own));
    request->found_nonfinite = &gate->found_nonfinite;
    return yoke_process_group_all_reduce_async(exchange->process_group, &gate->found_nonfinite, 1);
}

/* Detects a missing rank here; the host's later waits would hang. */
static yoke_status await_ranks(yoke_exchange *exchange) {
    return yoke_process_group_synchronize(exchange->process_group);
}

static yoke_status reduce_all_ranks(yoke_exchange *exchange, yoke_device_group *group) {
    (void)group;
    TRY(yoke_lanes_synchronize(exchange->step));
    return yoke_exchange_all_reduce_gradient(exchange);
}

static const yoke_carrier one_device = {.reduce = NULL};
static const yoke_carrier among_devices = {
    .reduce = reduce_bucket, .publish = yoke_publish_bucket, .reduce_all = reduce_all_to_root};
static const yoke_carrier among_ranks = {.reduce = all_reduce_ranks,
                                         .ask = ask_ranks,
                                         .finish = await_ranks,
                                         .reduce_all = reduce_all_ranks};

const yoke_carrier *yoke_carrier_for(const yoke_exchange *exchange) {
    if (exchange->process_group != NULL) return &among_ranks;
    return exchange->participants > 1 ? &among_devices : &one_device;
}
