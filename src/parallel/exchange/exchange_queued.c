/* SPDX-License-Identifier: Apache-2.0 */
/* Devices that queue: the root's worker queues reduce, update and publish of a bucket on the
 * communication streams, behind the bucket's events, while the compute streams run backward. The
 * host waits for the norm when clipping, and in DDP for missing ranks; gates on the devices keep a
 * bad step from the weights: an update behind a gate on the losses, which keeps what it overwrites
 * where its gradients were, and after the last bucket an undo behind the gate on the whole
 * gradient. A carrier moves the data: a device group, or the process group. A device alone has
 * nobody to wait for: it does all of this on its compute stream, and its recording of a step holds
 * it. */
#include <stdlib.h>

#include "parallel/exchange/exchange_carrier.h"
#include "parallel/exchange/exchange_publish.h"

/* Device memory of a lane; those that own no slice use the gate alone. */
typedef struct lane_memory {
    yoke_gate *gate;
    double *losses;      /* [lanes]; used on the root */
    double *square_sums; /* [norm parts x buckets] on the root; others use those of their parts */
    double *work;        /* of one square sum */
    uint64_t *first_bad; /* [lanes] on the root; others use the first; then YOKE_ALL_FINITE */
} lane_memory;

/* The root's gate of a step as the host reads it, later than the step answers. */
typedef struct host_gate {
    yoke_gate *gate;            /* pinned copy */
    yoke_device_event *event;   /* it has arrived */
    uint64_t step, losses_seen; /* losses_seen: when it was queued */
    bool is_unread;
} host_gate;

typedef struct queued_exchange {
    yoke_exchange base;
    const yoke_carrier *carrier;
    yoke_device_group *group;          /* NULL for one device */
    lane_memory *memory;               /* [lanes] */
    yoke_device_event *gated;          /* the root's gate is made */
    host_gate host_gates[YOKE_GUARDS]; /* step s has gate s % 2 */
} queued_exchange;

static queued_exchange *queued_of(yoke_exchange *exchange) {
    return (queued_exchange *)exchange;
}

static yoke_lane *lane_of(const queued_exchange *queued, int lane) {
    return &queued->base.step->lanes[lane];
}

static yoke_stream stream_of(const queued_exchange *queued) {
    return queued->base.step->exchange_stream;
}

/* Life. */

/* One allocation: gate, losses, what checks find and, for clipping, the sums of squares and their
 * workspace. */
static yoke_status open_memory(queued_exchange *queued, int lane) {
    const yoke_step *step = queued->base.step;
    lane_memory *memory = &queued->memory[lane];
    size_t losses = (size_t)step->count;
    size_t sums = (size_t)queued->base.norm_parts * (size_t)step->flat->bucket_count;
    size_t doubles = losses;
    if (yoke_exchange_clips(&queued->base))
        doubles += sums + yoke_square_sum_doubles(step->flat->elements);
    size_t words = losses + 1, bytes = sizeof *memory->gate + words * sizeof *memory->first_bad;
    uint64_t all_finite = YOKE_ALL_FINITE;
    yoke_device *device = lane_of(queued, lane)->device;
    TRY(yoke_device_allocate(device, bytes + doubles * sizeof(double), "a gate",
                             (void **)&memory->gate));
    memory->first_bad = (uint64_t *)(memory->gate + 1);
    memory->losses = (double *)(memory->first_bad + words);
    memory->square_sums = memory->losses + losses;
    memory->work = memory->square_sums + sums;
    return yoke_device_upload(device, stream_of(queued), memory->first_bad + losses, &all_finite,
                              sizeof all_finite);
}

static bool is_alone(const queued_exchange *queued) {
    return queued->base.participants == 1 && queued->base.process_group == NULL;
}

static yoke_status queued_open(yoke_exchange *exchange) {
    queued_exchange *queued = queued_of(exchange);
    size_t lanes = (size_t)exchange->step->count;
    yoke_device *root = lane_of(queued, 0)->device;
    queued->carrier = yoke_carrier_for(exchange);
    exchange->step->exchange_stream =
        is_alone(queued) ? YOKE_STREAM_COMPUTE : YOKE_STREAM_COMMUNICATION;
    if (is_alone(queued)) exchange->slots = yoke_exchange_slots(exchange->step);
    exchange->keeps = !exchange->step->options.skip_finite_check &&
                      !yoke_exchange_clips(exchange) && !yoke_steps_by_phases(exchange->step);
    queued->memory = yoke_calloc(lanes, sizeof *queued->memory);
    if (queued->memory == NULL) return FAIL_MEMORY(lanes * sizeof *queued->memory, "the exchange");
    for (int lane = 0; lane < exchange->step->count; lane++)
        TRY(open_memory(queued, lane));
    TRY(yoke_device_event_create(&queued->gated, root));
    for (int i = 0; i < YOKE_GUARDS; i++) {
        host_gate *host = &queued->host_gates[i];
        TRY(yoke_device_event_create(&host->event, root));
        TRY(yoke_device_allocate_host(root, sizeof *host->gate, "a gate", (void **)&host->gate));
    }
    if (exchange->process_group != NULL && !exchange->step->options.inference)
        yoke_process_group_expect(exchange->process_group, exchange->gradients[0],
                                  exchange->step->flat->elements * sizeof(float));
    return exchange->participants > 1 ? yoke_publish_group(exchange, &queued->group) : YOKE_OK;
}

static void queued_close(yoke_exchange *exchange) {
    queued_exchange *queued = queued_of(exchange);
    if (exchange->process_group != NULL && exchange->gradients != NULL)
        yoke_process_group_forget(exchange->process_group, exchange->gradients[0]);
    yoke_device_group_destroy(queued->group);
    yoke_device_event_destroy(queued->gated);
    for (int i = 0; i < YOKE_GUARDS; i++) {
        yoke_device_event_destroy(queued->host_gates[i].event);
        yoke_device_free_host(lane_of(queued, 0)->device, queued->host_gates[i].gate);
    }
    for (int lane = 0; queued->memory != NULL && lane < exchange->step->count; lane++)
        yoke_device_free(lane_of(queued, lane)->device, queued->memory[lane].gate);
    yoke_free(queued->memory);
}

/* Gates. */

static yoke_status copy_between(queued_exchange *queued, int to, void *to_memory, int from,
                                const void *from_memory, size_t bytes) {
    return yoke_device_copy(lane_of(queued, to)->device, stream_of(queued), to_memory,
                            lane_of(queued, from)->device, from_memory, bytes);
}

/* Work queued later on `to`'s communication stream waits for all work queued on `from`'s. */
static yoke_status wait_for(queued_exchange *queued, int to, int from) {
    yoke_device_event *passed = lane_of(queued, from)->events.published;
    TRY(yoke_device_event_record(passed, stream_of(queued)));
    return yoke_device_event_wait(passed, lane_of(queued, to)->device, stream_of(queued));
}

static void queued_begin(yoke_exchange *exchange) {
    const host_gate *gates = queued_of(exchange)->host_gates;
    exchange->step->flight.settled = !gates[0].is_unread && !gates[1].is_unread;
}

static yoke_status gather_losses(queued_exchange *queued, yoke_gate_request *request) {
    double *losses = queued->memory[0].losses;
    if (is_alone(queued)) {
        request->losses = &lane_of(queued, 0)->memory->scalars->loss_sum;
        request->loss_count = lane_of(queued, 0)->shard.rows > 0;
        return YOKE_OK;
    }
    request->losses = losses;
    for (int k = 0; k < queued->base.step->count; k++) {
        const yoke_lane *lane = lane_of(queued, k);
        if (lane->shard.rows == 0) continue;
        TRY(yoke_device_event_wait(lane->events.losses, lane_of(queued, 0)->device,
                                   stream_of(queued)));
        TRY(copy_between(queued, 0, losses + request->loss_count++, k,
                         &lane->memory->scalars->loss_sum, sizeof(double)));
    }
    if (queued->carrier->ask == NULL) return YOKE_OK;
    return queued->carrier->ask(&queued->base, queued->memory[0].gate, request);
}

static host_gate *host_gate_of(queued_exchange *queued) {
    return &queued->host_gates[queued->base.step->guard];
}

/* The root decides for the first `lanes` lanes, which copy its gate. It waits until they have. */
static yoke_status share_gate(queued_exchange *queued, int lanes) {
    const yoke_gate *gate = queued->memory[0].gate;
    TRY(yoke_device_event_record(queued->gated, stream_of(queued)));
    for (int lane = 1; lane < lanes; lane++) {
        TRY(yoke_device_event_wait(queued->gated, lane_of(queued, lane)->device,
                                   stream_of(queued)));
        TRY(copy_between(queued, lane, queued->memory[lane].gate, 0, gate, sizeof *gate));
        TRY(wait_for(queued, 0, lane));
    }
    return YOKE_OK;
}

/* The host reads the gate when it waits for the devices anyway. */
static yoke_status send_to_host(queued_exchange *queued) {
    const host_gate *host = host_gate_of(queued);
    TRY(yoke_device_download(lane_of(queued, 0)->device, stream_of(queued), host->gate,
                             queued->memory[0].gate, sizeof *host->gate));
    return yoke_device_event_record(host->event, stream_of(queued));
}

static void expect_gate(queued_exchange *queued) {
    host_gate *host = host_gate_of(queued);
    host->step = queued->base.step->steps;
    host->losses_seen = queued->base.step->losses_seen;
    host->is_unread = true;
}

/* A step's first gate: on its losses. A gate that the host has yet to read may be closed: then this
 * step changes nothing. */
static yoke_status gate_losses(queued_exchange *queued) {
    const yoke_flight *flight = &queued->base.step->flight;
    bool recording = yoke_device_is_recording(lane_of(queued, 0)->device);
    yoke_gate_request request = {.stays_closed = recording || !flight->settled,
                                 .unless_settled = true,
                                 .closed = !recording && !yoke_flight_is_finite_so_far(flight),
                                 .unscale = 1 / queued->base.step->gradient.factor};
    TRY(gather_losses(queued, &request));
    TRY(yoke_device_gate(lane_of(queued, 0)->device, stream_of(queued), queued->memory[0].gate,
                         &request));
    for (int owner = 0; owner < queued->base.owners; owner++) {
        uint64_t *first_bad = queued->memory[owner].first_bad;
        TRY(copy_between(queued, owner, first_bad, owner, first_bad + queued->base.step->count,
                         sizeof *first_bad));
    }
    return yoke_exchange_clips(&queued->base) ? YOKE_OK : share_gate(queued, queued->base.owners);
}

static size_t parts_of_owner(const queued_exchange *queued) {
    return (size_t)(queued->base.norm_parts / queued->base.owners);
}

/* What the other owners found in their slices goes to the root. */
static yoke_status gather_findings(queued_exchange *queued) {
    size_t count = parts_of_owner(queued) * (size_t)queued->base.step->flat->bucket_count;
    lane_memory *root = &queued->memory[0];
    for (int owner = 1; owner < queued->base.owners; owner++) {
        const lane_memory *from = &queued->memory[owner];
        TRY(wait_for(queued, 0, owner));
        TRY(copy_between(queued, 0, root->first_bad + owner, owner, from->first_bad,
                         sizeof *from->first_bad));
        if (yoke_exchange_clips(&queued->base))
            TRY(copy_between(queued, 0, root->square_sums + (size_t)owner * count, owner,
                             from->square_sums + (size_t)owner * count, count * sizeof(double)));
    }
    return YOKE_OK;
}

/* Every lane keeps and undoes what the others publish to it. Where shadows are published, those of
 * an undone step stay until the host knows of it and replicates the root's weights. */
static bool all_undo(const queued_exchange *queued) {
    return queued->base.keeps && !queued->base.publishes_shadow;
}

/* The gate of the whole gradient, which `owners` have checked and, when clipping, squared. `given`:
 * a first gate, on the losses, which this one keeps closed. It goes to all lanes that may undo. */
static yoke_status gate_gradient(queued_exchange *queued, int owners, bool given) {
    const yoke_step *step = queued->base.step;
    const lane_memory *root = &queued->memory[0];
    yoke_gate_request request = {.first_bad = root->first_bad,
                                 .first_bad_count = owners,
                                 .stays_closed = given,
                                 .losses = root->losses,
                                 .square_sums = root->square_sums,
                                 .clip_norm = step->optimizer_options.clip_norm,
                                 .unscale = 1 / step->gradient.factor};
    if (request.clip_norm > 0)
        request.square_sum_count = queued->base.norm_parts * step->flat->bucket_count;
    TRY(yoke_device_gate(lane_of(queued, 0)->device, stream_of(queued), root->gate, &request));
    TRY(send_to_host(queued));
    return share_gate(queued, all_undo(queued) ? step->count : queued->base.owners);
}

/* One bucket. */

/* Part `part` of a bucket's norm, by an owner that holds its gradients. */
static yoke_status square_part(queued_exchange *queued, int owner, int part, int bucket) {
    const lane_memory *memory = &queued->memory[owner];
    yoke_bucket range = yoke_exchange_square_range(&queued->base, part, bucket);
    int sum = part * queued->base.step->flat->bucket_count + bucket;
    TRY(yoke_device_square_sum(lane_of(queued, owner)->device, stream_of(queued),
                               queued->base.gradients[owner] + range.offset, range.elements,
                               memory->work));
    return copy_between(queued, owner, memory->square_sums + sum, owner, memory->work,
                        sizeof(double));
}

static yoke_status check_range(queued_exchange *queued, int owner, yoke_bucket range) {
    return yoke_device_check_finite(lane_of(queued, owner)->device, stream_of(queued),
                                    queued->base.gradients[owner] + range.offset, range.elements,
                                    range.offset, queued->memory[owner].first_bad);
}

static yoke_status check_bucket(queued_exchange *queued, int bucket) {
    int each = (int)parts_of_owner(queued), parts = queued->base.norm_parts;
    for (int owner = 0; owner < queued->base.owners; owner++) {
        yoke_slice slice = yoke_exchange_owned(&queued->base, owner, bucket);
        TRY(check_range(queued, owner, (yoke_bucket){slice.offset, slice.elements}));
    }
    for (int part = 0; yoke_exchange_clips(&queued->base) && part < parts; part++)
        TRY(square_part(queued, part / each, part, bucket));
    return YOKE_OK;
}

/* shadowed: the root's update may write the shadow, too. */
static yoke_status update_slice(queued_exchange *queued, int owner, int bucket, bool keeps,
                                bool shadowed) {
    yoke_exchange *exchange = &queued->base;
    yoke_slice slice = yoke_exchange_owned(exchange, owner, bucket);
    float *gradients = exchange->gradients[owner] + slice.offset;
    uint16_t *shadow = lane_of(queued, owner)->memory->shadow;
    yoke_optimizer_step step = exchange->update;
    step.stream = exchange->step->exchange_stream;
    step.gate = queued->memory[owner].gate;
    step.gradient_scale = 1; /* the gate has the factor */
    step.kept = keeps ? gradients : NULL;
    step.work = exchange->works[owner];
    step.shadow_precision = exchange->step->options.precision;
    if (shadowed && exchange->writes_shadow && shadow != NULL) step.shadow = shadow + slice.offset;
    return yoke_optimizer_update(slice.optimizer, &step, lane_of(queued, owner)->device,
                                 slice.offset, slice.elements,
                                 exchange->parameters[owner] + slice.offset, gradients);
}

/* The lane's weights from flat element `begin` to `end` go where its gradients were. */
static yoke_status keep_range(queued_exchange *queued, int lane, size_t begin, size_t end) {
    if (begin == end) return YOKE_OK;
    return copy_between(queued, lane, queued->base.gradients[lane] + begin, lane,
                        queued->base.parameters[lane] + begin, (end - begin) * sizeof(float));
}

static yoke_status update_and_publish(queued_exchange *queued, int bucket) {
    bool keeps = queued->base.keeps;
    yoke_bucket range = queued->base.step->flat->buckets[bucket];
    /* Others publish their slices to a lane; the update keeps its own. */
    for (int lane = 0; all_undo(queued) && lane < queued->base.step->count; lane++) {
        yoke_slice own = {.offset = range.offset};
        if (lane < queued->base.owners) own = yoke_exchange_owned(&queued->base, lane, bucket);
        TRY(keep_range(queued, lane, range.offset, own.offset));
        TRY(keep_range(queued, lane, own.offset + own.elements, range.offset + range.elements));
    }
    for (int owner = 0; owner < queued->base.owners; owner++)
        TRY(update_slice(queued, owner, bucket, keeps, true));
    if (queued->carrier->publish == NULL) return YOKE_OK;
    return queued->carrier->publish(&queued->base, queued->group, bucket);
}

/* When clipping, the update waits for the norm: a bucket is reduced, checked and squared until
 * then. */
static yoke_status queue_bucket(yoke_step *step, int lane, yoke_span *span) {
    queued_exchange *queued = queued_of(step->exchange);
    int bucket = span->bucket;
    (void)lane;
    if (bucket == 0) TRY(gate_losses(queued));
    if (queued->carrier->reduce != NULL)
        TRY(queued->carrier->reduce(&queued->base, queued->group, bucket));
    if (yoke_exchange_waits(&queued->base)) TRY(check_bucket(queued, bucket));
    return yoke_exchange_clips(&queued->base) ? YOKE_OK : update_and_publish(queued, bucket);
}

static const yoke_bar bucket_bar = {
    .stage = YOKE_STAGE_EXCHANGE, .on_stream = true, .work = queue_bucket};

/* The root's worker queued on other devices: it makes its own the current one again. */
static yoke_status use_root(const queued_exchange *queued, yoke_status status) {
    yoke_status back = yoke_device_use(lane_of(queued, 0)->device);
    return status != YOKE_OK ? status : back;
}

static yoke_status advance(queued_exchange *queued) {
    yoke_step *step = queued->base.step;
    int *next = &queued->base.next[0];
    yoke_status status = YOKE_OK;
    while (status == YOKE_OK && *next < step->flat->bucket_count &&
           yoke_workers_reached(&queued->base.arrivals[*next], (uint32_t)step->count)) {
        for (int k = 0; k < step->count && !is_alone(queued) && status == YOKE_OK; k++)
            status = yoke_device_event_wait(step->lanes[k].events.buckets[*next],
                                            step->lanes[k].device, stream_of(queued));
        if (status == YOKE_OK) status = yoke_run_bar(step, &bucket_bar, 0, *next);
        ++*next;
    }
    return use_root(queued, status);
}

static yoke_status queued_ready(yoke_exchange *exchange, int lane, int bucket) {
    if (exchange->replayed) return YOKE_OK;
    yoke_workers_signal(exchange->step->workers, &exchange->arrivals[bucket]);
    return lane == 0 ? advance(queued_of(exchange)) : YOKE_OK;
}

static yoke_status undo_range(queued_exchange *queued, int lane, yoke_bucket range) {
    return yoke_device_undo(lane_of(queued, lane)->device, stream_of(queued),
                            queued->memory[lane].gate, queued->base.parameters[lane] + range.offset,
                            queued->base.gradients[lane] + range.offset, range.elements);
}

/* A lane restores its weights, and an owner its state too, if the gate is closed. */
static yoke_status undo_lane(queued_exchange *queued, int lane) {
    const yoke_exchange *exchange = &queued->base;
    const yoke_flat *flat = exchange->step->flat;
    bool whole = all_undo(queued) || exchange->owners == 1;
    if (whole) TRY(undo_range(queued, lane, (yoke_bucket){0, flat->trainable_elements}));
    for (int bucket = 0; lane < exchange->owners && bucket < flat->bucket_count; bucket++) {
        yoke_slice slice = yoke_exchange_owned(exchange, lane, bucket);
        if (!whole) TRY(undo_range(queued, lane, (yoke_bucket){slice.offset, slice.elements}));
        TRY(yoke_optimizer_undo(slice.optimizer, stream_of(queued), queued->memory[lane].gate));
    }
    return YOKE_OK;
}

static yoke_status finish(queued_exchange *queued) {
    const yoke_exchange *exchange = &queued->base;
    yoke_step *step = exchange->step;
    if (yoke_exchange_waits(exchange)) {
        TRY(gather_findings(queued));
        TRY(gate_gradient(queued, exchange->owners, true));
    }
    int undoing = all_undo(queued) ? step->count : exchange->owners;
    for (int lane = 0; exchange->keeps && lane < undoing; lane++)
        TRY(undo_lane(queued, lane));
    for (int bucket = 0; yoke_exchange_clips(exchange) && bucket < step->flat->bucket_count;
         bucket++)
        TRY(update_and_publish(queued, bucket));
    TRY(yoke_average_queue(step, queued->memory[0].gate, queued->base.slots));
    TRY(yoke_lanes_order(step, exchange->step->exchange_stream, YOKE_STREAM_COMPUTE));
    return queued->carrier->finish != NULL ? queued->carrier->finish(&queued->base) : YOKE_OK;
}

/* What the host does of a finish. */
static void queued_replayed(yoke_exchange *exchange) {
    yoke_step *step = exchange->step;
    if (yoke_exchange_waits(exchange)) expect_gate(queued_of(exchange));
    for (int bucket = 0; exchange->replayed && bucket < step->flat->bucket_count; bucket++)
        yoke_replay_bar(step, &bucket_bar, 0, bucket);
    yoke_average_count(step, step->steps);
}

static yoke_status queued_finish(yoke_exchange *exchange, int lane) {
    queued_exchange *queued = queued_of(exchange);
    yoke_step *step = exchange->step;
    if (lane > 0 || exchange->replayed) return YOKE_OK;
    while (exchange->next[0] < step->flat->bucket_count) {
        TRY(yoke_workers_await(step->workers, &exchange->arrivals[exchange->next[0]],
                               (uint32_t)step->count));
        TRY(advance(queued));
    }
    TRY(use_root(queued, finish(queued)));
    if (!yoke_device_is_recording(step->lanes[0].device)) queued_replayed(exchange);
    return YOKE_OK;
}

/* Waits until the gate is on the host. It is there where the host has the loss of its own step,
 * which the root computed before, and then one more: that comes behind the gate. */
static yoke_status read_gate(queued_exchange *queued, host_gate *host) {
    yoke_exchange *exchange = &queued->base;
    host->is_unread = false;
    if (exchange->step->losses_seen < host->losses_seen + 2)
        TRY(yoke_device_event_synchronize(host->event));
    exchange->first_bad[0] = host->gate->first_bad;
    if (yoke_exchange_clips(exchange)) exchange->step->flight.gradient_norm = host->gate->norm;
    return YOKE_OK;
}

static void queued_drop(yoke_exchange *exchange) {
    host_gate_of(queued_of(exchange))->is_unread = false;
}

/* Ranks fail in the same step: a rank that settled alone, in a call that only it makes, would be a
 * step behind the others. Their host has waited for the all-reduces in any case. */
static yoke_status queued_norm(yoke_exchange *exchange) {
    queued_exchange *queued = queued_of(exchange);
    host_gate *host = host_gate_of(queued);
    bool now = yoke_exchange_clips(exchange) || exchange->process_group != NULL;
    return now && host->is_unread ? read_gate(queued, host) : YOKE_OK;
}

/* A later step, whose gate stayed closed, is undone with the first bad one. */
static yoke_status queued_settle(yoke_exchange *exchange, uint64_t step, uint64_t *bad) {
    queued_exchange *queued = queued_of(exchange);
    for (int i = 0; i < YOKE_GUARDS; i++) {
        host_gate *host = &queued->host_gates[i];
        if (!host->is_unread || host->step >= step) continue;
        TRY(read_gate(queued, host));
        if (!host->gate->closed) continue;
        queued->host_gates[(i + 1) % YOKE_GUARDS].is_unread = false;
        queued->base.step->guard = i;
        *bad = host->step;
        return YOKE_OK;
    }
    return YOKE_OK;
}

/* Updates are queued before the host knows of the failure, behind sums that may be half done. */
static yoke_change queued_recover(yoke_exchange *exchange) {
    (void)exchange;
    return YOKE_CHANGED_PART;
}

/* By hand. */

static yoke_status queued_reduce(yoke_exchange *exchange) {
    const queued_exchange *queued = queued_of(exchange);
    if (queued->carrier->reduce_all == NULL) return YOKE_OK;
    return queued->carrier->reduce_all(exchange, queued->group);
}

/* By hand the caller decides about losses. */
static yoke_status gate_root(queued_exchange *queued) {
    const yoke_step *step = queued->base.step;
    uint64_t *first_bad = queued->memory[0].first_bad;
    int parts = yoke_exchange_clips(&queued->base) ? queued->base.norm_parts : 0;
    TRY(copy_between(queued, 0, first_bad, 0, first_bad + step->count, sizeof *first_bad));
    for (int bucket = 0; bucket < step->flat->bucket_count; bucket++) {
        if (yoke_exchange_waits(&queued->base))
            TRY(check_range(queued, 0, step->flat->buckets[bucket]));
        for (int part = 0; part < parts; part++)
            TRY(square_part(queued, 0, part, bucket));
    }
    return gate_gradient(queued, 1, false);
}

/* Another owner's slice: the root's values go to the owner, who has the optimizer's state, and
 * back. */
static yoke_status update_on_owner(queued_exchange *queued, int owner, int bucket) {
    yoke_exchange *exchange = &queued->base;
    yoke_slice slice = yoke_exchange_owned(exchange, owner, bucket);
    size_t bytes = slice.elements * sizeof(float);
    float *weights = exchange->parameters[owner] + slice.offset;
    TRY(copy_between(queued, owner, exchange->gradients[owner] + slice.offset, 0,
                     exchange->gradients[0] + slice.offset, bytes));
    TRY(copy_between(queued, owner, weights, 0, exchange->parameters[0] + slice.offset, bytes));
    TRY(update_slice(queued, owner, bucket, false, false));
    TRY(wait_for(queued, 0, owner));
    return copy_between(queued, 0, exchange->parameters[0] + slice.offset, owner, weights, bytes);
}

/* A batch in flight whose backward is still to come reads the shadow that its forward read. */
static yoke_status update_root(queued_exchange *queued) {
    yoke_step *step = queued->base.step;
    const yoke_flight *flight = &step->flight;
    bool shadowed = !flight->training ||
                    (flight->progress != YOKE_STAGE_FORWARD && flight->progress != YOKE_STAGE_LOSS);
    if (!shadowed) yoke_replica_renew_shadow(step->lanes[0].replica);
    TRY(yoke_lanes_order(step, YOKE_STREAM_COMPUTE, stream_of(queued)));
    TRY(gate_root(queued));
    if (yoke_exchange_waits(&queued->base)) expect_gate(queued);
    for (int bucket = 0; bucket < step->flat->bucket_count; bucket++) {
        TRY(update_slice(queued, 0, bucket, false, shadowed));
        for (int owner = 1; owner < queued->base.owners; owner++)
            TRY(update_on_owner(queued, owner, bucket));
    }
    TRY(yoke_average_queue(step, queued->memory[0].gate, queued->base.slots));
    return yoke_lanes_order(step, stream_of(queued), YOKE_STREAM_COMPUTE);
}

static yoke_status queued_update(yoke_exchange *exchange) {
    TRY(yoke_exchange_collect(exchange));
    TRY(use_root(queued_of(exchange), update_root(queued_of(exchange))));
    if (yoke_exchange_waits(exchange))
        TRY(read_gate(queued_of(exchange), host_gate_of(queued_of(exchange))));
    else
        queued_drop(exchange);
    TRY(yoke_exchange_check_gradient(exchange));
    yoke_average_count(exchange->step, exchange->step->steps);
    return YOKE_OK;
}

static yoke_status broadcast_stale(yoke_step *step, int lane, yoke_span *span) {
    (void)lane;
    return yoke_publish_stale(step->exchange, queued_of(step->exchange)->group, &span->bytes);
}

static const yoke_bar replicate_bar = {.stage = YOKE_STAGE_REPLICATE, .work = broadcast_stale};

static yoke_status queued_replicate(yoke_exchange *exchange) {
    return yoke_run_bar(exchange->step, &replicate_bar, 0, YOKE_NO_BUCKET);
}

const yoke_exchange_kind yoke_exchange_queued = {
    .bytes = sizeof(queued_exchange),
    .open = queued_open,
    .close = queued_close,
    .begin = queued_begin,
    .ready = queued_ready,
    .finish = queued_finish,
    .replayed = queued_replayed,
    .norm = queued_norm,
    .settle = queued_settle,
    .drop = queued_drop,
    .recover = queued_recover,
    .reduce = queued_reduce,
    .update = queued_update,
    .replicate = queued_replicate,
    .collect = yoke_publish_collect,
};
