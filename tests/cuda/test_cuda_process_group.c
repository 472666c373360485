/* SPDX-License-Identifier: Apache-2.0 */
/* Process groups with a GPU per rank: collectives on memory of GPUs and of the host equal a
 * plain loop, and all-reduces run while the host goes on. */
#include "gpu_ranks.h"

static yoke_status check_on_gpu(yoke_process_group *group, const script *play) {
    grid_memory memory = memory_of(gpu_of(play, group->rank));
    return check_all(group, &memory);
}

static void collectives_on_gpu_memory_equal_a_loop(void **state) {
    (void)state;
    for (int world = 1; world <= most_gpu_ranks(); world++)
        play_well((script){.world = world, .timeout_ms = TIMEOUT_MS, .scene = check_on_gpu});
}

static yoke_status check_on_host(yoke_process_group *group, const script *play) {
    (void)play;
    return check_all(group, NULL);
}

static void collectives_on_host_memory_equal_a_loop(void **state) {
    (void)state;
    for (int world = 1; world <= most_gpu_ranks(); world++)
        play_well((script){.world = world, .timeout_ms = TIMEOUT_MS, .scene = check_on_host});
}

/* Ranks that seem to be on machines of their own: what is theirs in common is NCCL. */

typedef struct far_rank {
    int rank, world;
    yoke_devices *devices;
    const char *store;
    yoke_error error;
    pthread_t thread;
} far_rank;

static yoke_status join_from_afar(const far_rank *self, yoke_store *store,
                                  yoke_process_group **group) {
    yoke_peer peers[GPU_RANKS];
    for (int rank = 0; rank < self->world; rank++) {
        peers[rank] = (yoke_peer){.pid = 1};
        snprintf(peers[rank].host, sizeof peers[rank].host, "machine%d", rank);
    }
    const yoke_process_group_options options = {
        .rank = &(yoke_rank_info){.struct_size = sizeof(yoke_rank_info),
                                  .rank = self->rank,
                                  .world = self->world},
        .devices = self->devices,
        .timeout_ms = TIMEOUT_MS};
    const yoke_transport_request request = {.options = &options, .store = store, .peers = peers};
    return yoke_nccl_group(group, &request);
}

static yoke_status check_staged(const far_rank *self) {
    const grid_memory memory = {.any_order = true};
    const yoke_store_options options = {
        .address = self->store, .serve = self->rank == 0, .timeout_ms = TIMEOUT_MS};
    yoke_store *store = NULL;
    yoke_process_group *group = NULL;
    TRY(yoke_store_create(&store, &options));
    yoke_status status = join_from_afar(self, store, &group);
    if (status == YOKE_OK) status = check_all(group, &memory);
    yoke_error error = yoke_error_take(status);
    if (group != NULL) group->destroy(group);
    yoke_store_destroy(store);
    return yoke_error_restore(&error);
}

static void *run_staged(void *context) {
    far_rank *self = context;
    self->error = yoke_error_take(check_staged(self));
    return NULL;
}

static void without_another_way_host_memory_goes_through_the_gpus(void **state) {
    (void)state;
    for (int world = 1; world <= 3 && world <= most_gpu_ranks(); world++) {
        far_rank far[3];
        gpu_ranks gpus;
        char store[64];
        open_gpus(&gpus, world);
        name_store(store, sizeof store);
        for (int rank = 0; rank < world; rank++) {
            far[rank] = (far_rank){
                .rank = rank, .world = world, .devices = gpus.devices[rank], .store = store};
            assert_int_equal(pthread_create(&far[rank].thread, NULL, run_staged, &far[rank]), 0);
        }
        for (int rank = 0; rank < world; rank++) {
            pthread_join(far[rank].thread, NULL);
            if (far[rank].error.status != YOKE_OK) fail_msg("%d: %s", rank, far[rank].error.text);
        }
        close_gpus(&gpus);
    }
}

/* Sums behind the host. */

enum { BUCKETS = 12, BUCKET = 1000 };

/* Buckets come from the compute stream; what stands behind the sums in the communication stream is
 * the download. */
static yoke_status sum_buckets(yoke_process_group *group, yoke_device *device, float *buckets,
                               yoke_device_event *event) {
    const setting s = {BUCKET, YOKE_ELEMENT_FLOAT32, YOKE_SUM, &(grid_memory){.any_order = true}};
    float values[BUCKET];
    for (size_t i = 0; i < BUCKETS; i++) {
        float *bucket = buckets + i * BUCKET;
        fill(values, BUCKET, &s, group->rank, i);
        TRY(yoke_device_upload(device, YOKE_STREAM_COMPUTE, bucket, values, sizeof values));
        TRY(yoke_device_event_record(event, YOKE_STREAM_COMPUTE));
        TRY(yoke_device_event_wait(event, device, YOKE_STREAM_COMMUNICATION));
        TRY(yoke_process_group_all_reduce_async(group, bucket, BUCKET));
        if (group->rank % 2 == 0) TRY(yoke_process_group_progress(group));
    }
    TRY(yoke_process_group_wait(group));
    for (size_t i = 0; i < BUCKETS; i++) {
        float *bucket = buckets + i * BUCKET;
        TRY(yoke_device_download(device, YOKE_STREAM_COMMUNICATION, values, bucket, sizeof values));
        TRY(expect_folded("a bucket", values, &s, group->world, i));
    }
    return YOKE_OK;
}

static yoke_status overlap(yoke_process_group *group, const script *play) {
    yoke_device *device = gpu_of(play, group->rank);
    yoke_device_event *event = NULL;
    void *buckets = NULL;
    TRY(yoke_device_event_create(&event, device));
    TRY(yoke_device_allocate(device, BUCKETS * BUCKET * sizeof(float), "a test", &buckets));
    yoke_status status = YOKE_OK;
    for (int step = 0; step < 3 && status == YOKE_OK; step++) {
        status = sum_buckets(group, device, buckets, event);
        if (status == YOKE_OK) status = yoke_process_group_barrier(group);
    }
    if (status == YOKE_OK) status = yoke_process_group_synchronize(group);
    yoke_device_free(device, buckets);
    yoke_device_event_destroy(event);
    return status;
}

static void started_sums_are_seen_by_what_is_queued_behind_them(void **state) {
    (void)state;
    for (int world = 1; world <= 4 && world <= most_gpu_ranks(); world++)
        play_well((script){.world = world, .timeout_ms = TIMEOUT_MS, .scene = overlap});
}

/* The door. */

static void a_gpu_alone_is_a_group(void **state) {
    (void)state;
    gpu_ranks gpus;
    float value = 3;
    yoke_process_group *group;
    open_gpus(&gpus, 1);
    yoke_device *device = yoke_devices_at(gpus.devices[0], 0);
    const yoke_process_group_options options = {.struct_size = sizeof options,
                                                .devices = gpus.devices[0]};
    EXPECT_OK(yoke_process_group_create(&group, &options));
    assert_memory_equal(yoke_process_group_transport(group), "nccl ", 5);
    float *gpu = device_copy_of(device, &value, sizeof value);
    EXPECT_OK(yoke_process_group_all_reduce_async(group, gpu, 1));
    EXPECT_OK(yoke_process_group_synchronize(group));
    EXPECT_OK(yoke_process_group_all_reduce(group, gpu, 1, YOKE_ELEMENT_FLOAT32, YOKE_MEAN));
    device_take(device, &value, gpu, sizeof value);
    assert_true(value == 3);
    EXPECT_OK(yoke_process_group_all_reduce(group, &value, 1, YOKE_ELEMENT_FLOAT32, YOKE_SUM));
    assert_true(value == 3);
    yoke_process_group_destroy(group);
    yoke_device_free(device, gpu);
    close_gpus(&gpus);
}

static void expect_refused(yoke_transport transport, yoke_devices *devices, yoke_status status,
                           const char *says) {
    yoke_process_group *group;
    const yoke_process_group_options options = {
        .struct_size = sizeof options, .transport = transport, .devices = devices};
    assert_int_equal(yoke_process_group_create(&group, &options), status);
    assert_null(group);
    assert_non_null(strstr(yoke_last_error(), says));
}

static void nccl_wants_one_gpu_a_rank(void **state) {
    (void)state;
    static const char *const lists[] = {"2xcuda:0", "cpu"};
    static const char *const says[] = {"holds 2 devices", "cpu:0: only GPUs have communicators"};
    static const yoke_status statuses[] = {YOKE_ERROR_ARGUMENT, YOKE_ERROR_DEVICE};
    expect_refused(YOKE_TRANSPORT_NCCL, NULL, YOKE_ERROR_ARGUMENT, "options.devices");
    for (int i = 0; i < 2; i++) {
        yoke_devices *devices;
        const yoke_devices_options options = {.struct_size = sizeof options, .list = lists[i]};
        EXPECT_OK(yoke_devices_open(&devices, &options));
        expect_refused(YOKE_TRANSPORT_NCCL, devices, statuses[i], says[i]);
        yoke_devices_close(devices);
    }
}

static void transports_between_hosts_refuse_gpus(void **state) {
    (void)state;
    gpu_ranks gpus;
    open_gpus(&gpus, 1);
    expect_refused(YOKE_TRANSPORT_SHARED_MEMORY, gpus.devices[0], YOKE_ERROR_ARGUMENT, "are GPUs");
    expect_refused(YOKE_TRANSPORT_MPI, gpus.devices[0], YOKE_ERROR_ARGUMENT, "are GPUs");
    close_gpus(&gpus);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gpu_alone_is_a_group),
        cmocka_unit_test(collectives_on_gpu_memory_equal_a_loop),
        cmocka_unit_test(collectives_on_host_memory_equal_a_loop),
        cmocka_unit_test(without_another_way_host_memory_goes_through_the_gpus),
        cmocka_unit_test(started_sums_are_seen_by_what_is_queued_behind_them),
        cmocka_unit_test(nccl_wants_one_gpu_a_rank),
        cmocka_unit_test(transports_between_hosts_refuse_gpus),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
