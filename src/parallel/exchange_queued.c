/* exchange on devices that queue: the root's worker queues reduce, update and broadcast of a bucket
 * on the communication streams behind the events of that bucket, while the compute streams go on
 * with backward. Nobody waits; whether a step is bad is decided on the devices, by gates. */
#include <math.h>

#include "parallel/engine.h"

static float *const *gradients_of(const yoke_data_parallel *parallel, float **all) {
    for (int k = 0; k < parallel->count; k++)
        all[k] = yoke_replica_memory_of(parallel->replicas[k])->gradients;
    return all;
}

static float *const *parameters_of(const yoke_data_parallel *parallel, float **all) {
    for (int k = 0; k < parallel->count; k++)
        all[k] = yoke_replica_memory_of(parallel->replicas[k])->parameters;
    return all;
}

static int home_count(const yoke_data_parallel *parallel) {
    return yoke_is_sharded(parallel) ? parallel->count : 1;
}

/* Reduce: onto the root, or each home's slice onto it; or over the ranks. */
static yoke_status reduce_bucket(yoke_data_parallel *parallel, int bucket) {
    float *all[YOKE_DEVICES_LIMIT];
    if (parallel->ranks != NULL)
        return yoke_process_group_all_reduce_async(parallel->ranks,
                                                   gradients_of(parallel, all)[0] +
                                                       parallel->flat->buckets[bucket].offset,
                                                   parallel->flat->buckets[bucket].elements);
    if (parallel->group == NULL) return YOKE_OK;
    yoke_range range = {.buffers = gradients_of(parallel, all),
                        .offset = parallel->flat->buckets[bucket].offset,
                        .elements = parallel->flat->buckets[bucket].elements};
    return yoke_is_sharded(parallel)
               ? yoke_device_group_reduce_scatter(parallel->group, &range, parallel->contributors)
               : yoke_device_group_reduce(parallel->group, &range, parallel->contributors);
}

static yoke_status publish_bucket(yoke_data_parallel *parallel, int bucket) {
    if (parallel->group == NULL) return YOKE_OK;
    float *all[YOKE_DEVICES_LIMIT];
    yoke_range range = {.buffers = parameters_of(parallel, all),
                        .offset = parallel->flat->buckets[bucket].offset,
                        .elements = parallel->flat->buckets[bucket].elements};
    return yoke_is_sharded(parallel) ? yoke_device_group_all_gather(parallel->group, &range)
                                     : yoke_device_group_broadcast(parallel->group, &range);
}

/* Update: on the root, or each home its slice. */

static void slice_of_home(const yoke_data_parallel *parallel, int bucket, int home, size_t *offset,
                          size_t *elements) {
    *offset = parallel->flat->buckets[bucket].offset;
    *elements = parallel->flat->buckets[bucket].elements;
    if (yoke_is_sharded(parallel)) yoke_bucket_slice(parallel, bucket, home, offset, elements);
}

static yoke_status update_slice(yoke_data_parallel *parallel, int bucket, int home) {
    const yoke_replica_memory *memory = yoke_replica_memory_of(parallel->replicas[home]);
    yoke_optimizer_step step = parallel->update;
    size_t offset, elements;
    slice_of_home(parallel, bucket, home, &offset, &elements);
    step.stream = YOKE_STREAM_COMMUNICATION;
    step.gate = parallel->homes[home].gate;
    return yoke_optimizer_update(yoke_optimizer_of(parallel, home, bucket), &step,
                                 yoke_devices_at(parallel->devices, home), offset, elements,
                                 memory->parameters + offset, memory->gradients + offset);
}

static yoke_status update_bucket(yoke_data_parallel *parallel, int bucket) {
    for (int home = 0; home < home_count(parallel); home++)
        TRY(update_slice(parallel, bucket, home));
    return YOKE_OK;
}

/* Gates. */

static yoke_status pull(yoke_data_parallel *parallel, int to, void *to_memory, int from,
                        const void *from_memory, size_t bytes) {
    return yoke_device_copy(yoke_devices_at(parallel->devices, to), YOKE_STREAM_COMMUNICATION,
                            to_memory, yoke_devices_at(parallel->devices, from), from_memory,
                            bytes);
}

/* What `to`'s communication stream is given from now on comes after all that `from`'s was given. */
static yoke_status follow(yoke_data_parallel *parallel, int to, int from) {
    yoke_device_event *passed = parallel->events[from].published;
    if (to == from) return YOKE_OK;
    TRY(yoke_device_event_record(passed, YOKE_STREAM_COMMUNICATION));
    return yoke_device_event_wait(passed, yoke_devices_at(parallel->devices, to),
                                  YOKE_STREAM_COMMUNICATION);
}

static yoke_status pull_losses(yoke_data_parallel *parallel, int *count) {
    yoke_device *root = yoke_devices_at(parallel->devices, 0);
    *count = 0;
    for (int k = 0; k < parallel->count; k++) {
        if (parallel->shards[k].rows == 0) continue;
        TRY(yoke_device_event_wait(parallel->events[k].losses, root, YOKE_STREAM_COMMUNICATION));
        TRY(pull(parallel, 0, parallel->homes[0].losses + (*count)++, k,
                 yoke_replica_memory_of(parallel->replicas[k])->loss_sum, sizeof(double)));
    }
    return YOKE_OK;
}

/* The root decides for all: its gate is made of what it pulled, the other homes take it over. The
 * host wants to know of the norm alone. */
static yoke_status make_gates(yoke_data_parallel *parallel, const yoke_gate_request *request) {
    yoke_device *root = yoke_devices_at(parallel->devices, 0);
    TRY(yoke_device_gate(root, YOKE_STREAM_COMMUNICATION, parallel->homes[0].gate, request));
    if (request->clip_norm > 0)
        TRY(yoke_device_download(root, YOKE_STREAM_COMMUNICATION, parallel->host_gate,
                                 parallel->homes[0].gate, sizeof *parallel->host_gate));
    TRY(yoke_device_event_record(parallel->gated, YOKE_STREAM_COMMUNICATION));
    for (int home = 1; home < home_count(parallel); home++) {
        TRY(yoke_device_event_wait(parallel->gated, yoke_devices_at(parallel->devices, home),
                                   YOKE_STREAM_COMMUNICATION));
        TRY(pull(parallel, home, parallel->homes[home].gate, 0, parallel->homes[0].gate,
                 sizeof(yoke_gate)));
    }
    return YOKE_OK;
}

/* A loss that is not finite on any rank closes the gates of all. */
static yoke_status ask_ranks(yoke_data_parallel *parallel, yoke_gate_request *request) {
    yoke_gate *gate = parallel->homes[0].gate;
    const yoke_gate_request own = {.losses = request->losses, .loss_count = request->loss_count};
    if (parallel->ranks == NULL) return YOKE_OK;
    TRY(yoke_device_gate(yoke_devices_at(parallel->devices, 0), YOKE_STREAM_COMMUNICATION, gate,
                         &own));
    request->found_nonfinite = &gate->found_nonfinite;
    return yoke_process_group_all_reduce_async(parallel->ranks, &gate->found_nonfinite, 1);
}

static yoke_status gate_on_losses(yoke_data_parallel *parallel) {
    yoke_gate_request request = {.losses = parallel->homes[0].losses};
    TRY(pull_losses(parallel, &request.loss_count));
    TRY(ask_ranks(parallel, &request));
    return make_gates(parallel, &request);
}

static yoke_status gate_on_norm(yoke_data_parallel *parallel) {
    size_t buckets = (size_t)parallel->flat->bucket_count;
    yoke_gate_request request = {.losses = parallel->homes[0].losses,
                                 .square_sums = parallel->homes[0].square_sums,
                                 .square_sum_count = home_count(parallel) * (int)buckets,
                                 .clip_norm = parallel->optimizer_options.clip_norm};
    TRY(pull_losses(parallel, &request.loss_count));
    TRY(ask_ranks(parallel, &request));
    for (int home = 1; home < home_count(parallel); home++) {
        TRY(follow(parallel, 0, home));
        TRY(pull(parallel, 0, parallel->homes[0].square_sums + (size_t)home * buckets, home,
                 parallel->homes[home].square_sums, buckets * sizeof(double)));
    }
    return make_gates(parallel, &request);
}

static yoke_status square_range(yoke_data_parallel *parallel, int bucket, int home, size_t offset,
                                size_t elements) {
    yoke_device *device = yoke_devices_at(parallel->devices, home);
    yoke_home *own = &parallel->homes[home];
    const float *values = yoke_replica_memory_of(parallel->replicas[home])->gradients + offset;
    TRY(yoke_device_square_sum(device, YOKE_STREAM_COMMUNICATION, values, elements, own->work));
    return pull(parallel, home, own->square_sums + bucket, home, own->work, sizeof(double));
}

static yoke_status square_bucket(yoke_data_parallel *parallel, int bucket) {
    for (int home = 0; home < home_count(parallel); home++) {
        size_t offset, elements;
        slice_of_home(parallel, bucket, home, &offset, &elements);
        TRY(square_range(parallel, bucket, home, offset, elements));
    }
    return YOKE_OK;
}

/* Exchange. */

static yoke_status await_bucket(yoke_data_parallel *parallel, int bucket) {
    for (int k = 0; k < parallel->count; k++)
        TRY(yoke_device_event_wait(parallel->events[k].buckets[bucket],
                                   yoke_devices_at(parallel->devices, k),
                                   YOKE_STREAM_COMMUNICATION));
    return YOKE_OK;
}

static yoke_status update_and_publish(yoke_data_parallel *parallel, int bucket) {
    TRY(update_bucket(parallel, bucket));
    return publish_bucket(parallel, bucket);
}

/* Clipping needs the norm of the whole gradient: until the last bucket only its part is taken. */
static yoke_status exchange_bucket(yoke_data_parallel *parallel, int bucket) {
    yoke_stage_span span = {.stage = YOKE_STAGE_EXCHANGE, .bucket = bucket};
    bool clipping = parallel->optimizer_options.clip_norm > 0;
    TRY(await_bucket(parallel, bucket));
    TRY(yoke_stage_begin(parallel, &span));
    if (bucket == 0 && !clipping) TRY(gate_on_losses(parallel));
    TRY(reduce_bucket(parallel, bucket));
    TRY(clipping ? square_bucket(parallel, bucket) : update_and_publish(parallel, bucket));
    return yoke_stage_end(parallel, &span);
}

static yoke_status exchange_clipped(yoke_data_parallel *parallel) {
    TRY(gate_on_norm(parallel));
    for (int bucket = 0; bucket < parallel->flat->bucket_count; bucket++)
        TRY(update_and_publish(parallel, bucket));
    return YOKE_OK;
}

/* The root's worker queued on other devices: its own is current again afterwards. */
static yoke_status come_home(const yoke_data_parallel *parallel, yoke_status status) {
    yoke_status back = yoke_device_use(yoke_devices_at(parallel->devices, 0));
    return status != YOKE_OK ? status : back;
}

yoke_status yoke_queue_exchange_ready(yoke_data_parallel *parallel) {
    int *next = &parallel->exchanged[0];
    yoke_status status = YOKE_OK;
    while (status == YOKE_OK && *next < parallel->flat->bucket_count &&
           yoke_workers_reached(&parallel->arrivals[*next], (uint32_t)parallel->count))
        status = exchange_bucket(parallel, (*next)++);
    return come_home(parallel, status);
}

yoke_status yoke_queue_exchange_finish(yoke_data_parallel *parallel) {
    while (parallel->exchanged[0] < parallel->flat->bucket_count) {
        TRY(yoke_workers_await(parallel->workers, &parallel->arrivals[parallel->exchanged[0]],
                               (uint32_t)parallel->count));
        TRY(yoke_queue_exchange_ready(parallel));
    }
    yoke_status status = YOKE_OK;
    if (parallel->optimizer_options.clip_norm > 0) status = exchange_clipped(parallel);
    if (status == YOKE_OK) status = yoke_queues_to_compute(parallel);
    /* Here a rank that does not come is noticed: the host's later waits would not end. */
    if (status == YOKE_OK && parallel->ranks != NULL)
        status = yoke_process_group_synchronize(parallel->ranks);
    return come_home(parallel, status);
}

/* By pieces: the whole gradient on the root, then the update. */

yoke_status yoke_queue_reduce(yoke_data_parallel *parallel) {
    float *all[YOKE_DEVICES_LIMIT];
    TRY(yoke_queues_to_communication(parallel));
    for (int bucket = 0; bucket < parallel->flat->bucket_count; bucket++) {
        yoke_range range = {.buffers = gradients_of(parallel, all),
                            .offset = parallel->flat->buckets[bucket].offset,
                            .elements = parallel->flat->buckets[bucket].elements};
        TRY(yoke_device_group_reduce(parallel->group, &range, parallel->contributors));
    }
    return yoke_queues_to_compute(parallel);
}

/* A gate without losses, which the host has looked at already. */
static yoke_status gate_root(yoke_data_parallel *parallel) {
    yoke_gate_request request = {.losses = parallel->homes[0].losses,
                                 .square_sums = parallel->homes[0].square_sums,
                                 .clip_norm = parallel->optimizer_options.clip_norm};
    if (request.clip_norm > 0) request.square_sum_count = parallel->flat->bucket_count;
    for (int bucket = 0; bucket < request.square_sum_count; bucket++)
        TRY(square_range(parallel, bucket, 0, parallel->flat->buckets[bucket].offset,
                         parallel->flat->buckets[bucket].elements));
    return make_gates(parallel, &request);
}

/* The optimizer's state of a slice is its home's: what the root has of it goes there and back. */
static yoke_status lend_slice(yoke_data_parallel *parallel, int bucket, int home) {
    const yoke_replica_memory *own = yoke_replica_memory_of(parallel->replicas[home]);
    const yoke_replica_memory *root = yoke_replica_memory_of(parallel->replicas[0]);
    size_t offset, elements;
    slice_of_home(parallel, bucket, home, &offset, &elements);
    size_t bytes = elements * sizeof(float);
    TRY(pull(parallel, home, own->gradients + offset, 0, root->gradients + offset, bytes));
    TRY(pull(parallel, home, own->parameters + offset, 0, root->parameters + offset, bytes));
    TRY(update_slice(parallel, bucket, home));
    TRY(follow(parallel, 0, home));
    return pull(parallel, 0, root->parameters + offset, home, own->parameters + offset, bytes);
}

static yoke_status update_from_root(yoke_data_parallel *parallel) {
    TRY(yoke_queues_to_communication(parallel));
    TRY(gate_root(parallel));
    for (int bucket = 0; bucket < parallel->flat->bucket_count; bucket++) {
        TRY(update_slice(parallel, bucket, 0));
        for (int home = 1; home < home_count(parallel); home++)
            TRY(lend_slice(parallel, bucket, home));
    }
    return yoke_queues_to_compute(parallel);
}

yoke_status yoke_queue_update(yoke_data_parallel *parallel) {
    TRY(come_home(parallel, update_from_root(parallel)));
    return yoke_queue_norm(parallel);
}

yoke_status yoke_queue_norm(yoke_data_parallel *parallel) {
    if (parallel->optimizer_options.clip_norm <= 0) return YOKE_OK;
    TRY(yoke_device_event_synchronize(parallel->gated));
    parallel->gradient_norm = parallel->host_gate->norm;
    return yoke_check_norm(parallel);
}
