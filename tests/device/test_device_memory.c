/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a device: what the device grants and refuses; copies between hosts and devices
 * arrive in the order of streams and events. */
#include <sys/resource.h>

#include "support/devices.h"

#define EXPECT_OK(call)                                                                            \
    do {                                                                                           \
        yoke_status expect_status_ = (call);                                                       \
        if (expect_status_ != YOKE_OK)                                                             \
            fail_msg("%s: %s: %s", #call, yoke_status_name(expect_status_), yoke_last_error());    \
    } while (0)

enum { COUNT = 100, BYTES = COUNT * sizeof(float), ROUNDS = 10 };

static yoke_devices *open_devices(int count) {
    yoke_devices_options options = {
        .struct_size = sizeof options, .list = devices_of(count), .threads = 1};
    yoke_devices *devices = NULL;
    EXPECT_OK(yoke_devices_open(&devices, &options));
    return devices;
}

static void *allocate(yoke_device *device, size_t bytes) {
    void *memory = NULL;
    EXPECT_OK(yoke_device_allocate(device, bytes, "a test", &memory));
    return memory;
}

static bool is_zero(const unsigned char *bytes, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != 0) return false;
    }
    return true;
}

static void memory_is_zero_aligned_and_accounted_for(void **state) {
    (void)state;
    static const size_t sizes[] = {0, 1, 64, 4096, (size_t)2 << 20, ((size_t)5 << 20) + 3};
    yoke_devices *devices = open_devices(1);
    yoke_device *device = yoke_devices_at(devices, 0);
    void *pointers[6];
    size_t held = 0;
    for (size_t i = 0; i < 6; i++) {
        bool huge = sizes[i] >= (size_t)2 << 20 && devices_are_cpus();
        pointers[i] = allocate(device, sizes[i]);
        assert_non_null(pointers[i]);
        assert_int_equal((uintptr_t)pointers[i] % (huge ? 2 << 20 : 64), 0);
        unsigned char *seen = device_values(device, pointers[i], sizes[i]);
        assert_true(is_zero(seen, sizes[i]));
        free(seen);
        held += sizes[i];
        assert_int_equal(yoke_device_allocated(device), held);
    }
    for (size_t i = 0; i < 6; i++) {
        yoke_device_free(device, pointers[i]);
        held -= sizes[i];
        assert_int_equal(yoke_device_allocated(device), held);
    }
    yoke_device_free(device, NULL);
    assert_int_equal(yoke_device_allocated(device), 0);
    yoke_devices_close(devices);
}

#define MALLOC_BYTES ((size_t)1 << 20)

/* What a thread has freed may be malloc's answer to another one: its pages must be new, so that
 * they lie near the thread that writes them first. A new page is a fault. */
static void memory_of_a_cpu_device_has_new_pages(void **state) {
    (void)state;
    if (!devices_are_cpus()) skip();
    yoke_devices *devices = open_devices(1);
    yoke_device *device = yoke_devices_at(devices, 0);
    void *keeps_the_heap = malloc(MALLOC_BYTES / 16);
    for (int round = 0; round < 8; round++) {
        struct rusage before, after;
        assert_int_equal(getrusage(RUSAGE_THREAD, &before), 0);
        void *memory = allocate(device, MALLOC_BYTES);
        assert_int_equal(getrusage(RUSAGE_THREAD, &after), 0);
        unsigned char *seen = device_values(device, memory, MALLOC_BYTES);
        assert_true(is_zero(seen, MALLOC_BYTES));
        free(seen);
        memset(memory, 1, MALLOC_BYTES);
        yoke_device_free(device, memory);
        assert_true(after.ru_minflt > before.ru_minflt);
    }
    free(keeps_the_heap);
    yoke_devices_close(devices);
}

static void too_much_memory_is_refused_with_device_size_and_purpose(void **state) {
    (void)state;
    static const size_t sizes[] = {(size_t)1 << 50, SIZE_MAX, SIZE_MAX - 4096};
    yoke_devices *devices = open_devices(2);
    yoke_device *device = yoke_devices_at(devices, 1);
    for (size_t i = 0; i < 3; i++) {
        void *pointer = devices;
        yoke_status status = yoke_device_allocate(device, sizes[i], "the activations", &pointer);
        assert_int_equal(status, YOKE_ERROR_MEMORY);
        assert_null(pointer);
        assert_true(devices_named(yoke_last_error(), "", 2, 1));
        assert_non_null(strstr(yoke_last_error(), "the activations"));
        assert_int_equal(yoke_device_allocated(device), 0);
    }
    void *memory = allocate(device, 1000); /* and it goes on */
    yoke_device_free(device, memory);
    yoke_devices_close(devices);
}

static void host_memory_is_zero_and_travels(void **state) {
    (void)state;
    yoke_devices *devices = open_devices(1);
    yoke_device *device = yoke_devices_at(devices, 0);
    void *given = NULL, *taken = NULL;
    EXPECT_OK(yoke_device_allocate_host(device, BYTES, "a test", &given));
    EXPECT_OK(yoke_device_allocate_host(device, BYTES, "a test", &taken));
    void *memory = allocate(device, BYTES);
    assert_true(is_zero(given, BYTES));
    for (int round = 1; round <= ROUNDS; round++) {
        memset(given, round, BYTES);
        EXPECT_OK(yoke_device_upload(device, YOKE_STREAM_COPY, memory, given, BYTES));
        EXPECT_OK(yoke_device_download(device, YOKE_STREAM_COPY, taken, memory, BYTES));
        EXPECT_OK(yoke_device_synchronize(device));
        assert_memory_equal(given, taken, BYTES);
    }
    yoke_device_free(device, memory);
    yoke_device_free_host(device, given);
    yoke_device_free_host(device, taken);
    yoke_devices_close(devices);
}

/* Host to a, a to b, b to host: each in another stream, ordered by nothing but events. */
typedef struct relay {
    yoke_device *a, *b;
    yoke_device_event *on_a, *on_b;
    float *from_a, *from_b;
} relay;

static void run_relay(const relay *run, const float *given, float *taken) {
    EXPECT_OK(yoke_device_upload(run->a, YOKE_STREAM_COPY, run->from_a, given, BYTES));
    EXPECT_OK(yoke_device_event_record(run->on_a, YOKE_STREAM_COPY));
    EXPECT_OK(yoke_device_event_wait(run->on_a, run->b, YOKE_STREAM_COMMUNICATION));
    EXPECT_OK(yoke_device_copy(run->b, YOKE_STREAM_COMMUNICATION, run->from_b, run->a, run->from_a,
                               BYTES));
    EXPECT_OK(yoke_device_event_record(run->on_b, YOKE_STREAM_COMMUNICATION));
    EXPECT_OK(yoke_device_event_wait(run->on_b, run->b, YOKE_STREAM_COMPUTE));
    EXPECT_OK(yoke_device_download(run->b, YOKE_STREAM_COMPUTE, taken, run->from_b, BYTES));
    EXPECT_OK(
        yoke_device_event_wait(run->on_b, run->a, YOKE_STREAM_COPY)); /* the next round may begin */
}

static void copies_arrive_in_the_order_of_events(void **state) {
    (void)state;
    yoke_devices *devices = open_devices(2);
    relay run = {.a = yoke_devices_at(devices, 0), .b = yoke_devices_at(devices, 1)};
    EXPECT_OK(yoke_device_event_create(&run.on_a, run.a));
    EXPECT_OK(yoke_device_event_create(&run.on_b, run.b));
    run.from_a = allocate(run.a, BYTES);
    run.from_b = allocate(run.b, BYTES);
    float given[COUNT], taken[COUNT] = {0};
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < COUNT; i++)
            given[i] = (float)(i + 1) * (float)(round + 1);
        run_relay(&run, given, taken);
        assert_memory_equal(given, taken, BYTES);
    }
    EXPECT_OK(yoke_device_event_synchronize(run.on_a));
    EXPECT_OK(yoke_device_synchronize(run.b));
    yoke_device_free(run.a, run.from_a);
    yoke_device_free(run.b, run.from_b);
    yoke_device_event_destroy(run.on_a);
    yoke_device_event_destroy(run.on_b);
    yoke_devices_close(devices);
}

static void clearing_leaves_zeros_and_no_more(void **state) {
    (void)state;
    yoke_devices *devices = open_devices(1);
    yoke_device *device = yoke_devices_at(devices, 0);
    float ones[COUNT], seen[COUNT];
    for (int i = 0; i < COUNT; i++)
        ones[i] = 1;
    float *memory = device_copy_of(device, ones, BYTES);
    EXPECT_OK(yoke_device_clear(device, YOKE_STREAM_COMPUTE, memory + 1, BYTES - 8));
    device_take(device, seen, memory, BYTES);
    assert_true(seen[0] == 1 && seen[COUNT - 1] == 1);
    assert_true(is_zero((unsigned char *)(seen + 1), BYTES - 8));
    yoke_device_free(device, memory);
    yoke_devices_close(devices);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_zero_aligned_and_accounted_for),
        cmocka_unit_test(memory_of_a_cpu_device_has_new_pages),
        cmocka_unit_test(too_much_memory_is_refused_with_device_size_and_purpose),
        cmocka_unit_test(host_memory_is_zero_and_travels),
        cmocka_unit_test(copies_arrive_in_the_order_of_events),
        cmocka_unit_test(clearing_leaves_zeros_and_no_more),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
