/* SPDX-License-Identifier: Apache-2.0 */
/* GPUs as devices, real or simulated: lists, descriptions, memory, the worker's scope, and the
 * bandwidth between two GPUs. */
#include "gpu_memory_check.h"

/* Lists. */

static void a_list_names_gpus_and_replicas_on_them(void **state) {
    (void)state;
    static const struct {
        const char *list, *names;
    } rows[] = {{"cuda", "cuda:0"},
                {"cuda:0", "cuda:0"},
                {"4xcuda:0", "cuda:0#0 cuda:0#1 cuda:0#2 cuda:0#3"},
                {"cuda:0,0", "cuda:0#0 cuda:0#1"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        yoke_devices *devices = open_list(rows[i].list);
        char names[128] = "";
        for (int k = 0; k < yoke_devices_count(devices); k++) {
            if (k > 0) strcat(names, " ");
            strcat(names, yoke_device_name(yoke_devices_at(devices, k)));
        }
        assert_string_equal(names, rows[i].names);
        assert_false(yoke_devices_share_memory(devices));
        yoke_devices_close(devices);
    }
}

static void auto_takes_every_usable_gpu(void **state) {
    (void)state;
    yoke_devices *devices = open_list("auto");
    assert_int_equal(yoke_devices_count(devices), devices_gpus());
    for (int i = 0; i < yoke_devices_count(devices); i++)
        assert_memory_equal(yoke_device_name(yoke_devices_at(devices, i)), "cuda:", 5);
    yoke_devices_close(devices);
}

static void impossible_lists_are_refused_with_the_reason(void **state) {
    (void)state;
    static const struct {
        const char *list;
        yoke_status status;
        const char *part;
    } rows[] = {{"cuda:63", YOKE_ERROR_DEVICE, "cuda:63: this machine has"},
                {"cuda:64", YOKE_ERROR_DEVICE, "usable GPU"},
                {"cpu,cuda", YOKE_ERROR_ARGUMENT, "cannot share one model"},
                {"cuda,cpu", YOKE_ERROR_ARGUMENT, "cannot share one model"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        yoke_devices_options options = {.struct_size = sizeof options, .list = rows[i].list};
        yoke_devices *devices = NULL;
        yoke_status status = yoke_devices_open(&devices, &options);
        if (status != rows[i].status || strstr(yoke_last_error(), rows[i].part) == NULL)
            fail_msg("\"%s\": %s: %s", rows[i].list, yoke_status_name(status), yoke_last_error());
        assert_null(devices);
    }
}

static void a_gpu_is_described(void **state) {
    (void)state;
    yoke_devices *devices = open_list("cuda");
    yoke_device_info info = {.struct_size = sizeof info};
    EXPECT_OK(yoke_devices_describe(devices, 0, &info));
    assert_string_equal(info.name, "cuda:0");
    assert_true(info.description[0] != '\0');
    assert_memory_equal(info.uuid, "GPU-", 4);
    assert_int_equal(strlen(info.uuid), 40);
    assert_int_equal(strlen(info.pci_id), 12);
    assert_true(info.capability >= 75);
    assert_true(info.multiprocessors > 0);
    assert_true(info.code);
    assert_true(info.memory_bytes >= info.memory_free && info.memory_free > 0);
    assert_int_equal(info.first_core, -1);
    assert_string_equal(info.note, "");
    yoke_backend_info backend = {.struct_size = sizeof backend};
    assert_true(yoke_backend_describe(1, &backend));
    assert_true(backend.available);
    assert_non_null(strstr(backend.detail, "cuBLASLt"));
    assert_non_null(strstr(backend.detail, "driver"));
    yoke_devices_close(devices);
}

/* Memory. */

static void memory_is_zero_aligned_and_accounted_for(void **state) {
    (void)state;
    static const size_t sizes[] = {0, 1, 64, 4096, ((size_t)5 << 20) + 3};
    yoke_devices *devices = open_list("cuda");
    yoke_device *device = yoke_devices_at(devices, 0);
    void *pointers[5];
    size_t held = 0;
    for (size_t i = 0; i < 5; i++) {
        pointers[i] = allocate(device, sizes[i]);
        assert_non_null(pointers[i]);
        assert_int_equal((uintptr_t)pointers[i] % 64, 0);
        unsigned char *values = device_values(device, pointers[i], sizes[i]);
        for (size_t k = 0; k < sizes[i]; k++)
            assert_int_equal(values[k], 0);
        free(values);
        held += sizes[i];
        assert_int_equal(yoke_device_allocated(device), held);
    }
    for (size_t i = 0; i < 5; i++)
        yoke_device_free(device, pointers[i]);
    assert_int_equal(yoke_device_allocated(device), 0);
    yoke_devices_close(devices);
}

static void pinned_memory_is_zero_and_travels(void **state) {
    (void)state;
    yoke_devices *devices = open_list("cuda");
    yoke_device *device = yoke_devices_at(devices, 0);
    void *host = NULL;
    EXPECT_OK(yoke_device_allocate_host(device, 2 * BYTES, "a test", &host));
    float *first = host, *second = first + COUNT, *memory = allocate(device, BYTES);
    for (size_t i = 0; i < 2 * COUNT; i++)
        assert_true(first[i] == 0);
    for (size_t i = 0; i < COUNT; i++)
        first[i] = (float)i;
    EXPECT_OK(yoke_device_upload(device, YOKE_STREAM_COPY, memory, first, BYTES));
    EXPECT_OK(yoke_device_download(device, YOKE_STREAM_COPY, second, memory, BYTES));
    EXPECT_OK(yoke_device_synchronize(device));
    assert_memory_equal(first, second, BYTES);
    yoke_device_free(device, memory);
    yoke_device_free_host(device, host);
    yoke_devices_close(devices);
}

static void ordinary_memory_is_the_hosts_again_when_a_copy_returns(void **state) {
    (void)state;
    yoke_devices *devices = open_list("cuda");
    yoke_device *device = yoke_devices_at(devices, 0);
    float *host = count_from(1), *memory = allocate(device, BYTES);
    EXPECT_OK(yoke_device_upload(device, YOKE_STREAM_COPY, memory, host, BYTES));
    memset(host, 0xff, BYTES);
    EXPECT_OK(yoke_device_download(device, YOKE_STREAM_COPY, host, memory, BYTES));
    for (size_t i = 0; i < COUNT; i++)
        assert_true(host[i] == 1 + (float)i);
    yoke_device_free(device, memory);
    free(host);
    yoke_devices_close(devices);
}

static void copies_between_devices_arrive(void **state) {
    (void)state;
    yoke_devices *devices = open_list(devices_of(2));
    yoke_device *a = yoke_devices_at(devices, 0), *b = yoke_devices_at(devices, 1);
    float *host = count_from(3), *on_b = allocate(b, BYTES);
    float *on_a = device_copy_of(a, host, BYTES);
    EXPECT_OK(yoke_device_synchronize(a));
    EXPECT_OK(yoke_device_copy(b, YOKE_STREAM_COMMUNICATION, on_b, a, on_a, BYTES));
    EXPECT_OK(yoke_device_copy(b, YOKE_STREAM_COMMUNICATION, on_b, a, on_a, 0));
    EXPECT_OK(yoke_device_synchronize(b));
    expect_count_from(b, on_b, 3);
    yoke_device_free(a, on_a);
    yoke_device_free(b, on_b);
    free(host);
    yoke_devices_close(devices);
}

static void out_of_memory_names_the_largest_holders_and_the_device_goes_on(void **state) {
    (void)state;
    static const struct {
        const char *what;
        size_t bytes;
    } holders[] = {{"small things", 1 << 10},
                   {"the weights", 3 << 20},
                   {"the gradients", 2 << 20},
                   {"the activations", 2 << 20},
                   {"the activations", 2 << 20}};
    yoke_devices *devices = open_list("cuda");
    yoke_device *device = yoke_devices_at(devices, 0);
    void *held[5], *memory = devices;
    for (size_t i = 0; i < 5; i++)
        EXPECT_OK(yoke_device_allocate(device, holders[i].bytes, holders[i].what, &held[i]));
    assert_int_equal(yoke_device_allocate(device, (size_t)1 << 50, "the optimizer", &memory),
                     YOKE_ERROR_MEMORY);
    assert_null(memory);
    const char *said = yoke_last_error();
    assert_memory_equal(said, "cuda:0: out of memory: ", 23);
    assert_non_null(strstr(said, " for the optimizer, "));
    assert_non_null(strstr(said, " free; held: 4.0 MiB by the activations, 3.0 MiB by the weights, "
                                 "2.0 MiB by the gradients"));
    memory = allocate(device, 1 << 20);
    yoke_device_free(device, memory);
    for (size_t i = 0; i < 5; i++)
        yoke_device_free(device, held[i]);
    yoke_devices_close(devices);
}

/* The caller's thread. */

static void the_callers_gpu_is_current_again_after_every_visit(void **state) {
    (void)state;
    int own = devices_gpus() - 1, now = -1;
    assert_int_equal(cudaSetDevice(own), cudaSuccess);
    yoke_devices *devices = open_list("cuda:0");
    yoke_device_info info = {.struct_size = sizeof info};
    yoke_device_scope scope;
    assert_true(cudaGetDevice(&now) == cudaSuccess && now == own);
    EXPECT_OK(yoke_device_enter(yoke_devices_at(devices, 0), true, &scope));
    assert_true(cudaGetDevice(&now) == cudaSuccess && now == 0);
    yoke_device_leave(yoke_devices_at(devices, 0), &scope);
    assert_true(cudaGetDevice(&now) == cudaSuccess && now == own);
    EXPECT_OK(yoke_devices_describe(devices, 0, &info));
    assert_true(cudaGetDevice(&now) == cudaSuccess && now == own);
    EXPECT_OK(yoke_devices_synchronize(devices));
    assert_true(cudaGetDevice(&now) == cudaSuccess && now == own);
    EXPECT_OK(yoke_device_enter(yoke_devices_at(devices, 0), true, &scope));
    void *memory = allocate(yoke_devices_at(devices, 0), 64);
    yoke_device_leave(yoke_devices_at(devices, 0), &scope);
    yoke_device_free(yoke_devices_at(devices, 0), memory);
    assert_true(cudaGetDevice(&now) == cudaSuccess && now == own);
    yoke_devices_close(devices);
    assert_true(cudaGetDevice(&now) == cudaSuccess && now == own);
}

/* A loader's thread and the host program's allocate without entering. */
static void allocating_leaves_the_threads_gpu_current(void **state) {
    (void)state;
    int own = devices_gpus() - 1, now = -1;
    yoke_devices *devices = open_list("cuda:0");
    yoke_device *device = yoke_devices_at(devices, 0);
    yoke_device *place = NULL;
    void *memory = NULL, *pinned = NULL;
    assert_int_equal(cudaSetDevice(own), cudaSuccess);
    EXPECT_OK(yoke_device_allocate(device, 64, "a test", &memory));
    assert_true(cudaGetDevice(&now) == cudaSuccess && now == own);
    EXPECT_OK(yoke_device_allocate_host(device, 64, "a test", &pinned));
    assert_true(cudaGetDevice(&now) == cudaSuccess && now == own);
    bool is_pinned = false;
    EXPECT_OK(yoke_devices_locate(devices, pinned, &place, &is_pinned));
    assert_true(is_pinned);
    EXPECT_OK(yoke_devices_locate(devices, memory, &place, &is_pinned));
    assert_true(place == device && !is_pinned);
    assert_true(cudaGetDevice(&now) == cudaSuccess && now == own);
    yoke_device_free_host(device, pinned);
    yoke_device_free(device, memory);
    assert_true(cudaGetDevice(&now) == cudaSuccess && now == own);
    yoke_devices_close(devices);
}

/* Between two visits the host program may make another GPU current: nothing of the first is
 * remembered. */
static void a_visit_finds_the_gpu_that_is_current_now(void **state) {
    (void)state;
    int own = devices_gpus() - 1, now = -1;
    yoke_devices *devices = open_list("cuda:0");
    yoke_device *device = yoke_devices_at(devices, 0);
    yoke_device_scope scope;
    for (int before = 0; before <= own; before += own > 0 ? own : 1) {
        assert_int_equal(cudaSetDevice(before), cudaSuccess);
        EXPECT_OK(yoke_device_enter(device, true, &scope));
        assert_true(cudaGetDevice(&now) == cudaSuccess && now == 0);
        yoke_device_step_out(device, &scope);
        assert_true(cudaGetDevice(&now) == cudaSuccess && now == before);
        assert_int_equal(cudaSetDevice(own), cudaSuccess);
        EXPECT_OK(yoke_device_use(device));
        assert_true(cudaGetDevice(&now) == cudaSuccess && now == 0);
        yoke_device_leave(device, &scope);
        assert_true(cudaGetDevice(&now) == cudaSuccess && now == before);
    }
    yoke_devices_close(devices);
    assert_true(cudaGetDevice(&now) == cudaSuccess && now == own);
}

/* Peers. */

static void replicas_on_one_gpu_share_its_memory(void **state) {
    (void)state;
    yoke_devices *devices = open_list("2xcuda:0");
    yoke_peer_info peer = {.struct_size = sizeof peer};
    EXPECT_OK(yoke_devices_peer(devices, 0, 1, &peer));
    assert_int_equal(peer.path, YOKE_PEER_SAME);
    assert_true(peer.bytes_per_second > 1e6 && peer.latency_seconds > 0);
    assert_true(yoke_device_reaches(yoke_devices_at(devices, 0), yoke_devices_at(devices, 1)));
    assert_int_equal(yoke_devices_peer(devices, 0, 2, &peer), YOKE_ERROR_ARGUMENT);
    assert_int_equal(yoke_devices_peer(devices, -1, 0, &peer), YOKE_ERROR_ARGUMENT);
    assert_int_equal(yoke_device_allocated(yoke_devices_at(devices, 0)), 0);
    yoke_devices_close(devices);
}

static void the_path_between_gpus_is_reported_and_measured(void **state) {
    (void)state;
    if (devices_gpus() < 2) skip();
    yoke_devices *devices = open_list("2xcuda");
    for (int to = 0; to < 2; to++) {
        yoke_peer_info peer = {.struct_size = sizeof peer};
        const yoke_device *device = yoke_devices_at(devices, to);
        EXPECT_OK(yoke_devices_peer(devices, 1 - to, to, &peer));
        assert_int_not_equal(peer.path, YOKE_PEER_SAME);
        assert_int_equal(yoke_device_reaches(device, yoke_devices_at(devices, 1 - to)),
                         peer.path == YOKE_PEER_DIRECT);
        assert_true(peer.bytes_per_second > 1e6 && peer.latency_seconds > 0);
    }
    yoke_devices_close(devices);
}

int main(void) {
    setenv("YOKE_TEST_BACKEND", "cuda", 1); /* there is no other here */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_names_gpus_and_replicas_on_them),
        cmocka_unit_test(auto_takes_every_usable_gpu),
        cmocka_unit_test(impossible_lists_are_refused_with_the_reason),
        cmocka_unit_test(a_gpu_is_described),
        cmocka_unit_test(memory_is_zero_aligned_and_accounted_for),
        cmocka_unit_test(pinned_memory_is_zero_and_travels),
        cmocka_unit_test(ordinary_memory_is_the_hosts_again_when_a_copy_returns),
        cmocka_unit_test(copies_between_devices_arrive),
        cmocka_unit_test(out_of_memory_names_the_largest_holders_and_the_device_goes_on),
        cmocka_unit_test(the_callers_gpu_is_current_again_after_every_visit),
        cmocka_unit_test(allocating_leaves_the_threads_gpu_current),
        cmocka_unit_test(a_visit_finds_the_gpu_that_is_current_now),
        cmocka_unit_test(replicas_on_one_gpu_share_its_memory),
        cmocka_unit_test(the_path_between_gpus_is_reported_and_measured),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
