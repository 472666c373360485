/* SPDX-License-Identifier: Apache-2.0 */
/* A steady step allocates nothing: this program counts every call of the allocator and of the
 * devices' own. It counts calls from shared libraries apart (oneDNN makes an argument map per
 * execution); those must free what they allocate. */
#include "device/backend.h"
#include "support/engine_check.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdbool.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
#define CAN_COUNT 0
#else
#define CAN_COUNT 1
#endif

static atomic_bool counting;
static atomic_long own_calls, foreign_calls, foreign_balance;

#if CAN_COUNT
/* Inlined, the return address would be the caller's caller. */
#define OUT_OF_LINE __attribute__((noinline))

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *pointer, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);
extern void __libc_free(void *pointer);
extern char __executable_start, etext; /* Yoke is linked statically into this program */

/* What a library frees last seems to be freed by whoever called the library: balance tells. */
static void count(const void *caller, long balance) {
    if (!atomic_load_explicit(&counting, memory_order_relaxed)) return;
    if (balance >= 0 && (const char *)caller >= &__executable_start &&
        (const char *)caller < &etext) {
        atomic_fetch_add(&own_calls, 1);
    } else {
        atomic_fetch_add(&foreign_calls, 1);
        atomic_fetch_add(&foreign_balance, balance);
    }
}

OUT_OF_LINE void *malloc(size_t bytes) {
    count(__builtin_return_address(0), 1);
    return __libc_malloc(bytes);
}

OUT_OF_LINE void *calloc(size_t number, size_t bytes) {
    count(__builtin_return_address(0), 1);
    return __libc_calloc(number, bytes);
}

OUT_OF_LINE void *realloc(void *pointer, size_t bytes) {
    count(__builtin_return_address(0), pointer == NULL);
    return __libc_realloc(pointer, bytes);
}

OUT_OF_LINE void *aligned_alloc(size_t alignment, size_t bytes) {
    count(__builtin_return_address(0), 1);
    return __libc_memalign(alignment, bytes);
}

OUT_OF_LINE int posix_memalign(void **pointer, size_t alignment, size_t bytes) {
    count(__builtin_return_address(0), 1);
    *pointer = __libc_memalign(alignment, bytes);
    return *pointer == NULL ? 12 : 0;
}

OUT_OF_LINE void *memalign(size_t alignment, size_t bytes) {
    count(__builtin_return_address(0), 1);
    return __libc_memalign(alignment, bytes);
}

OUT_OF_LINE void free(void *pointer) {
    if (pointer != NULL) count(__builtin_return_address(0), -1);
    __libc_free(pointer);
}
#endif

/* The devices' table, with the calls that make something counted. */
static const yoke_backend *whole;
static yoke_backend watched;
static atomic_long made;

static yoke_status watched_allocate(yoke_device *device, size_t bytes, void **memory) {
    atomic_fetch_add(&made, 1);
    return whole->allocate(device, bytes, memory);
}

static yoke_status watched_allocate_host(yoke_device *device, size_t bytes, void **memory) {
    atomic_fetch_add(&made, 1);
    return whole->allocate_host(device, bytes, memory);
}

static yoke_status watched_event_create(yoke_device_event **event, yoke_device *device,
                                        bool timed) {
    atomic_fetch_add(&made, 1);
    return whole->event_create(event, device, timed);
}

static yoke_status watched_record_end(yoke_device *device, yoke_recording **recording) {
    atomic_fetch_add(&made, 1);
    return whole->record_end(device, recording);
}

static yoke_status watched_plan(yoke_plan **plan, yoke_device *device,
                                const yoke_plan_request *request) {
    atomic_fetch_add(&made, 1);
    return whole->plan(plan, device, request);
}

static void watch(yoke_devices *devices) {
    whole = yoke_devices_at(devices, 0)->backend;
    watched = *whole;
    watched.allocate = watched_allocate;
    watched.plan = watched_plan;
    if (whole->allocate_host != NULL) watched.allocate_host = watched_allocate_host;
    if (whole->event_create != NULL) watched.event_create = watched_event_create;
    if (whole->record_end != NULL) watched.record_end = watched_record_end;
    for (int k = 0; k < yoke_devices_count(devices); k++)
        yoke_devices_at(devices, k)->backend = &watched;
}

/* The heap's calls can be told to be Yoke's only where no runtime of a GPU is linked in and used.
 */
static bool heap_counts(void) {
    return CAN_COUNT && devices_are_cpus();
}

/* So that a counter that never counts would be noticed. */
static void counter_counts(void **state) {
    (void)state;
    if (!heap_counts()) skip();
    atomic_store(&counting, true);
    void *volatile pointer = malloc(24);
    free(pointer);
    atomic_store(&counting, false);
    assert_int_equal(atomic_exchange(&own_calls, 0), 1);
    assert_int_equal(atomic_exchange(&foreign_balance, 0), -1);
    atomic_store(&foreign_calls, 0);
}

typedef struct counted_run {
    yoke_devices *devices;
    yoke_loader *loader;
    yoke_data_parallel *parallel;
} counted_run;

static void steps(const counted_run *run, int count) {
    for (int i = 0; i < count; i++) {
        yoke_batch batch = {.struct_size = sizeof batch};
        yoke_step_result result = {.struct_size = sizeof result};
        EXPECT_OK(yoke_loader_next(run->loader, &batch, NULL));
        EXPECT_OK(
            yoke_data_parallel_step(run->parallel, &batch, YOKE_OPTIMIZER_LEARNING_RATE, &result));
    }
}

static void count_steps(const counted_run *run, int schedule) {
    steps(run, 3);
    assert_true(atomic_exchange(&made, 0) > 0); /* the first ones plan */
    atomic_store(&counting, heap_counts());
    steps(run, 5);
    atomic_store(&counting, false);
    print_message("schedule %d: %ld calls by Yoke, %ld by libraries, %ld of devices\n", schedule,
                  atomic_load(&own_calls), atomic_load(&foreign_calls), atomic_load(&made));
    assert_int_equal(atomic_exchange(&own_calls, 0), 0);
    assert_int_equal(atomic_exchange(&foreign_balance, 0), 0);
    assert_int_equal(atomic_exchange(&made, 0), 0);
    atomic_store(&foreign_calls, 0);
}

static void steady_steps_allocate_nothing(void **state) {
    (void)state;
    yoke_dataset *dataset = NULL;
    EXPECT_OK(
        yoke_dataset_open(&dataset, "synthetic:3x16x16,classes=10,rows=200", YOKE_SPLIT_TRAIN));
    yoke_loader_options load = {.struct_size = sizeof load,
                                .batch = 12,
                                .shuffle = true,
                                .augment = YOKE_AUGMENT_CROP_FLIP};
    yoke_model *model = NULL;
    EXPECT_OK(yoke_model_preset(&model, "resnet20", (yoke_shape){3, 16, 16, false}, 10, NULL));
    yoke_devices_options list = {.struct_size = sizeof list, .list = devices_of(2), .threads = 1};
    for (int schedule = 0; schedule < 3; schedule++) {
        counted_run run = {0};
        yoke_optimizer_options sgd = {.struct_size = sizeof sgd,
                                      .learning_rate = 0.1,
                                      .momentum = 0.9,
                                      .clip_norm = schedule == 1 ? 1 : 0};
        yoke_data_parallel_options options = {.struct_size = sizeof options,
                                              .schedule = (yoke_schedule)schedule,
                                              .batch = 12,
                                              .accumulate = 1 + schedule};
        EXPECT_OK(yoke_devices_open(&run.devices, &list));
        watch(run.devices);
        load.devices = run.devices;
        EXPECT_OK(yoke_data_parallel_create(&run.parallel, model, run.devices, &sgd, &options));
        EXPECT_OK(yoke_loader_create(&run.loader, dataset, &load));
        EXPECT_OK(yoke_loader_begin(run.loader, 0));
        count_steps(&run, schedule);
        yoke_loader_destroy(run.loader);
        yoke_data_parallel_destroy(run.parallel);
        yoke_devices_close(run.devices);
    }
    yoke_model_destroy(model);
    yoke_dataset_close(dataset);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counter_counts),
        cmocka_unit_test(steady_steps_allocate_nothing),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
