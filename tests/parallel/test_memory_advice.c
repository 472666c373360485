/* SPDX-License-Identifier: Apache-2.0 */
/* Memory runs out in each allocation of an engine: the text advises what helps with that one. With
 * shards accumulation does not, and with accumulation no shards do. */
#include "device/backend.h"
#include "support/engine_check.h"

enum { DEVICES = 2, ROWS = 8 };

static const yoke_backend *whole;
static yoke_backend scarce;
static _Atomic int left; /* allocations until one fails */

static yoke_status scarce_allocate(yoke_device *device, size_t bytes, void **memory) {
    if (left-- == 0) return FAIL_MEMORY(bytes, device->name);
    return whole->allocate(device, bytes, memory);
}

/* What the memory was for, and words that only its advice has; NULL: about_rows. */
static const struct {
    const char *what, *advice;
} rows[] = {
    {" for parameters", "take a smaller one"},
    {" for gradients", "take a smaller one"},
    {" for running statistics", "take a smaller one"},
    {" moments", "the sharded schedule divides it"},
    {" for accumulated gradients", "without them"},
    {" for activations", NULL},
    {" for scratch", NULL},
    {" for the inputs of a shard", NULL},
    {" for gathered outputs", NULL},
};
enum { KINDS = sizeof rows / sizeof rows[0] };

static void expect_advice(const char *about_rows, bool seen[KINDS]) {
    const char *said = yoke_last_error();
    for (int i = 0; i < KINDS; i++) {
        const char *found = strstr(said, rows[i].what), *held = strstr(said, "; held: ");
        const char *advice = rows[i].advice != NULL ? rows[i].advice : about_rows;
        if (found == NULL || (held != NULL && found > held)) continue;
        seen[i] = true;
        if (strstr(said, advice) == NULL) fail_msg("no \"%s\" in: %s", advice, said);
        if (advice != about_rows && strstr(said, about_rows) != NULL) fail_msg("%s", said);
    }
}

static void make_devices_scarce(yoke_devices *devices, int allocations) {
    whole = yoke_devices_at(devices, 0)->backend;
    scarce = *whole;
    scarce.allocate = scarce_allocate;
    scarce.allocate_collective = NULL;
    left = allocations;
    for (int k = 0; k < DEVICES; k++)
        yoke_devices_at(devices, k)->backend = &scarce;
}

static void make_devices_whole(yoke_devices *devices) {
    for (int k = 0; k < DEVICES; k++)
        yoke_devices_at(devices, k)->backend = whole;
}

/* One walk through the allocations: each fails once. */
static void walk(yoke_model *model, const yoke_data_parallel_options *options,
                 const char *about_rows, bool seen[KINDS]) {
    yoke_optimizer_options adamw = YOKE_ADAMW_OPTIONS_INIT;
    yoke_status status = YOKE_ERROR_MEMORY;
    for (int fail_at = 0; status == YOKE_ERROR_MEMORY; fail_at++) {
        yoke_devices *devices = NULL;
        yoke_data_parallel *parallel = NULL;
        yoke_devices_options open = {
            .struct_size = sizeof open, .list = devices_of(DEVICES), .threads = 1};
        EXPECT_OK(yoke_devices_open(&devices, &open));
        make_devices_scarce(devices, fail_at);
        status = yoke_data_parallel_create(&parallel, model, devices, &adamw, options);
        if (status != YOKE_OK) expect_advice(about_rows, seen);
        yoke_data_parallel_destroy(parallel);
        make_devices_whole(devices);
        yoke_devices_close(devices);
    }
    assert_int_equal(status, YOKE_OK);
}

/* NULL: all kinds have failed. */
static const char *find_unseen(const bool seen[KINDS]) {
    for (int i = 0; i < KINDS; i++)
        if (!seen[i] && strstr(rows[i].what, "scratch") == NULL) return rows[i].what;
    return NULL;
}

/* Lanes allocate side by side: which of two allocations fails is chance, so that a walk may miss a
 * kind, and another one finds it. */
static void fail_each_allocation(const yoke_data_parallel_options *options,
                                 const char *about_rows) {
    yoke_model *model = check_model(true, 0);
    bool seen[KINDS] = {false};
    for (int walks = 0; walks < 10 && (walks == 0 || find_unseen(seen) != NULL); walks++)
        walk(model, options, about_rows, seen);
    if (find_unseen(seen) != NULL) fail_msg("no allocation%s", find_unseen(seen));
    yoke_model_destroy(model);
}

static void each_allocation_that_fails_gets_its_own_advice(void **state) {
    (void)state;
    yoke_data_parallel_options options = {.struct_size = sizeof options,
                                          .schedule = YOKE_SCHEDULE_CLASSIC,
                                          .algorithm = YOKE_ALGORITHM_DIRECT,
                                          .batch = ROWS,
                                          .accumulate = 2};
    fail_each_allocation(&options, "use fewer rows a device, or accumulate");
    options.accumulate = 1;
    options.shards = 4;
    fail_each_allocation(&options, "use a smaller batch, or more shards");
}

static void no_sync_names_its_own_memory(void **state) {
    (void)state;
    yoke_model *model = check_model(true, 0);
    check_engine engine = check_engine_make(
        model, DEVICES,
        (yoke_data_parallel_options){.algorithm = YOKE_ALGORITHM_DIRECT, .batch = ROWS}, NULL);
    make_devices_scarce(engine.devices, 0);
    assert_int_equal(yoke_data_parallel_no_sync(engine.parallel, true), YOKE_ERROR_MEMORY);
    if (strstr(yoke_last_error(), "without no_sync there are none") == NULL)
        fail_msg("%s", yoke_last_error());
    make_devices_whole(engine.devices);
    check_engine_free(&engine);
    yoke_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_allocation_that_fails_gets_its_own_advice),
        cmocka_unit_test(no_sync_names_its_own_memory),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
