/* Memory runs out in each allocation of an engine: the text advises what helps with that one. */
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

/* What the memory was for, and words that only its advice has. */
static const struct {
    const char *what, *advice;
    bool about_rows;
} rows[] = {
    {" for parameters", "take a smaller one", false},
    {" for gradients", "take a smaller one", false},
    {" for running statistics", NULL, false},
    {" moments", "the sharded schedule divides it", false},
    {" for accumulated gradients", "accumulate 1 does without", false},
    {" for activations", "use fewer rows a device", true},
    {" for scratch", "use fewer rows a device", true},
    {" for the inputs of a shard", "use fewer rows a device", true},
};
enum { KINDS = sizeof rows / sizeof rows[0] };

static void expect_advice(bool seen[KINDS]) {
    const char *said = yoke_last_error();
    for (int i = 0; i < KINDS; i++) {
        const char *found = strstr(said, rows[i].what), *held = strstr(said, "; held: ");
        if (found == NULL || (held != NULL && found > held)) continue;
        seen[i] = true;
        if (rows[i].advice != NULL && strstr(said, rows[i].advice) == NULL)
            fail_msg("no \"%s\" in: %s", rows[i].advice, said);
        if (!rows[i].about_rows && strstr(said, "fewer rows") != NULL) fail_msg("%s", said);
    }
}

static void each_allocation_that_fails_gets_its_own_advice(void **state) {
    (void)state;
    yoke_optimizer_options adamw = YOKE_ADAMW_OPTIONS_INIT;
    yoke_data_parallel_options options = {.struct_size = sizeof options,
                                          .algorithm = YOKE_ALGORITHM_DIRECT,
                                          .batch = ROWS,
                                          .accumulate = 2};
    yoke_model *model = check_model(true, 0);
    bool seen[KINDS] = {false};
    yoke_status status = YOKE_ERROR_MEMORY;
    for (int fail_at = 0; status == YOKE_ERROR_MEMORY; fail_at++) {
        yoke_devices *devices = NULL;
        yoke_data_parallel *parallel = NULL;
        yoke_devices_options open = {
            .struct_size = sizeof open, .list = devices_of(DEVICES), .threads = 1};
        EXPECT_OK(yoke_devices_open(&devices, &open));
        whole = yoke_devices_at(devices, 0)->backend;
        scarce = *whole;
        scarce.allocate = scarce_allocate;
        left = fail_at;
        for (int k = 0; k < DEVICES; k++)
            yoke_devices_at(devices, k)->backend = &scarce;
        status = yoke_data_parallel_create(&parallel, model, devices, &adamw, &options);
        if (status != YOKE_OK) expect_advice(seen);
        yoke_data_parallel_destroy(parallel);
        for (int k = 0; k < DEVICES; k++)
            yoke_devices_at(devices, k)->backend = whole;
        yoke_devices_close(devices);
    }
    assert_int_equal(status, YOKE_OK);
    for (int i = 0; i < KINDS; i++)
        if (!seen[i] && strstr(rows[i].what, "scratch") == NULL)
            fail_msg("no allocation%s", rows[i].what);
    yoke_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_allocation_that_fails_gets_its_own_advice),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
