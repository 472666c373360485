/* Devices with memory and streams of their own: the events that order them, the memory a batch
 * comes in through, and the gates that keep a bad step from the weights. Where memory is shared
 * there is nothing here. */
#include <stdlib.h>

#include "parallel/engine.h"

static yoke_status create_events(yoke_data_parallel *parallel, int replica) {
    yoke_device *device = yoke_devices_at(parallel->devices, replica);
    yoke_replica_events *events = &parallel->events[replica];
    size_t buckets = (size_t)parallel->flat->bucket_count;
    TRY(yoke_device_event_create(&events->scattered, device));
    TRY(yoke_device_event_create(&events->consumed, device));
    TRY(yoke_device_event_create(&events->losses, device));
    TRY(yoke_device_event_create(&events->computed, device));
    TRY(yoke_device_event_create(&events->published, device));
    events->buckets = calloc(buckets, sizeof *events->buckets);
    if (events->buckets == NULL) return FAIL_MEMORY(buckets * sizeof(void *), "events");
    for (size_t b = 0; b < buckets; b++)
        TRY(yoke_device_event_create(&events->buckets[b], device));
    return YOKE_OK;
}

static void destroy_events(yoke_replica_events *events, int buckets) {
    for (int b = 0; events->buckets != NULL && b < buckets; b++)
        yoke_device_event_destroy(events->buckets[b]);
    free(events->buckets);
    yoke_device_event_destroy(events->published);
    yoke_device_event_destroy(events->computed);
    yoke_device_event_destroy(events->losses);
    yoke_device_event_destroy(events->consumed);
    yoke_device_event_destroy(events->scattered);
}

static yoke_status create_staging(yoke_data_parallel *parallel, int replica) {
    yoke_device *device = yoke_devices_at(parallel->devices, replica);
    yoke_staging *staging = &parallel->staging[replica];
    yoke_shape shape = yoke_model_input_shape(parallel->model);
    size_t rows = (size_t)yoke_shard_rows(parallel->micro_rows, parallel->count, 0);
    size_t row = (size_t)shape.channels * (size_t)shape.height * (size_t)shape.width;
    size_t value = parallel->options.pixels ? sizeof(uint8_t) : sizeof(float);
    TRY(yoke_device_allocate(device, rows * row * value, "the next shard", &staging->rows));
    TRY(yoke_device_allocate(device, rows * sizeof *staging->placements, "the next placements",
                             (void **)&staging->placements));
    if (parallel->classification)
        return yoke_device_allocate(device, rows * sizeof(int32_t), "the next labels",
                                    (void **)&staging->labels);
    return yoke_device_allocate(device, rows * (size_t)parallel->channels * sizeof(float),
                                "the next targets", (void **)&staging->targets);
}

/* Every device has a gate; the root makes it, the others take it over. */
static yoke_status create_home(yoke_data_parallel *parallel, int replica) {
    yoke_device *device = yoke_devices_at(parallel->devices, replica);
    yoke_home *home = &parallel->homes[replica];
    size_t count = (size_t)parallel->count, buckets = (size_t)parallel->flat->bucket_count;
    size_t work = yoke_square_sum_doubles(parallel->flat->elements);
    TRY(yoke_device_allocate(device, sizeof *home->gate, "a gate", (void **)&home->gate));
    TRY(yoke_device_allocate(device, count * sizeof(double), "the losses of all replicas",
                             (void **)&home->losses));
    if (parallel->optimizer_options.clip_norm <= 0) return YOKE_OK;
    TRY(yoke_device_allocate(device, count * buckets * sizeof(double), "sums of squares",
                             (void **)&home->square_sums));
    return yoke_device_allocate(device, work * sizeof(double), "a sum of squares",
                                (void **)&home->work);
}

static size_t largest_bucket(const yoke_flat *flat) {
    size_t largest = flat->buffer_elements;
    for (int b = 0; b < flat->bucket_count; b++)
        if (flat->buckets[b].elements > largest) largest = flat->buckets[b].elements;
    return largest;
}

static yoke_status create_group(yoke_data_parallel *parallel) {
    if (parallel->count == 1) return YOKE_OK;
    yoke_device *devices[YOKE_DEVICES_LIMIT];
    for (int k = 0; k < parallel->count; k++)
        devices[k] = yoke_devices_at(parallel->devices, k);
    yoke_device_group_request request = {.devices = devices,
                                         .count = parallel->count,
                                         .kind = parallel->options.collectives,
                                         .scratch_elements = largest_bucket(parallel->flat)};
    return yoke_device_group_create(&parallel->group, &request);
}

yoke_status yoke_queues_create(yoke_data_parallel *parallel) {
    yoke_device *root = yoke_devices_at(parallel->devices, 0);
    if (!parallel->queued) return YOKE_OK;
    for (int k = 0; k < parallel->count; k++) {
        TRY(create_events(parallel, k));
        TRY(create_staging(parallel, k));
        TRY(create_home(parallel, k));
    }
    TRY(yoke_device_event_create(&parallel->gated, root));
    TRY(yoke_device_allocate_host(root, sizeof *parallel->host_gate, "a gate",
                                  (void **)&parallel->host_gate));
    TRY(yoke_spans_create(parallel));
    TRY(yoke_recorded_create(parallel));
    return create_group(parallel);
}

static void destroy_memory(yoke_data_parallel *parallel, int replica) {
    yoke_device *device = yoke_devices_at(parallel->devices, replica);
    yoke_staging *staging = &parallel->staging[replica];
    yoke_home *home = &parallel->homes[replica];
    void *const owned[] = {home->work,      home->square_sums, home->losses,        home->gate,
                           staging->labels, staging->targets,  staging->placements, staging->rows};
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++)
        if (owned[i] != NULL) yoke_device_free(device, owned[i]);
}

void yoke_queues_destroy(yoke_data_parallel *parallel) {
    yoke_device_group_destroy(parallel->group);
    yoke_recorded_destroy(parallel);
    yoke_spans_destroy(parallel);
    yoke_device_event_destroy(parallel->gated);
    yoke_device_free_host(yoke_devices_at(parallel->devices, 0), parallel->host_gate);
    bool complete =
        parallel->events != NULL && parallel->staging != NULL && parallel->homes != NULL;
    for (int k = parallel->count - 1; complete && k >= 0; k--) {
        destroy_memory(parallel, k);
        destroy_events(&parallel->events[k],
                       parallel->flat != NULL ? parallel->flat->bucket_count : 0);
    }
    free(parallel->homes);
    free(parallel->staging);
    free(parallel->events);
}

/* Order. */

yoke_status yoke_queues_synchronize(yoke_data_parallel *parallel) {
    for (int k = 0; parallel->queued && k < parallel->count; k++)
        TRY(yoke_device_synchronize(yoke_devices_at(parallel->devices, k)));
    return YOKE_OK;
}

yoke_status yoke_queues_to_communication(yoke_data_parallel *parallel) {
    for (int k = 0; k < parallel->count; k++) {
        yoke_device_event *computed = parallel->events[k].computed;
        TRY(yoke_device_event_record(computed, YOKE_STREAM_COMPUTE));
        TRY(yoke_device_event_wait(computed, yoke_devices_at(parallel->devices, k),
                                   YOKE_STREAM_COMMUNICATION));
    }
    return YOKE_OK;
}

yoke_status yoke_queues_to_compute(yoke_data_parallel *parallel) {
    for (int k = 0; k < parallel->count; k++) {
        yoke_device_event *published = parallel->events[k].published;
        TRY(yoke_device_event_record(published, YOKE_STREAM_COMMUNICATION));
        TRY(yoke_device_event_wait(published, yoke_devices_at(parallel->devices, k),
                                   YOKE_STREAM_COMPUTE));
    }
    return YOKE_OK;
}
