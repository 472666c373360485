/* SPDX-License-Identifier: Apache-2.0 */
/* yoke_devices_options.cores: every thread that works for the devices stays on the cores that the
 * host program names, and its own threads keep theirs between calls. */
#include <omp.h>
#include <sched.h>
#include <stdatomic.h>

#include "device/backend.h"
#include "support/engine_check.h"

enum { ROWS = 8, DEVICES = 2, THREADS = 2 };

typedef struct rig {
    yoke_model *model;
    yoke_devices *devices;
    yoke_data_parallel *parallel;
    check_batch batch;
} rig;

static rig open_rig(const char *cores, bool unbound) {
    rig made = {.model = check_model(true, 0), .batch = check_batch_make(ROWS, 1)};
    yoke_data_parallel_options options = {
        .struct_size = sizeof options, .algorithm = YOKE_ALGORITHM_DIRECT, .batch = ROWS};
    yoke_devices_options list = {.struct_size = sizeof list,
                                 .list = devices_of(DEVICES),
                                 .threads = THREADS,
                                 .unbound = unbound,
                                 .cores = cores};
    EXPECT_OK(yoke_devices_open(&made.devices, &list));
    EXPECT_OK(yoke_data_parallel_create(&made.parallel, made.model, made.devices, NULL, &options));
    return made;
}

static void close_rig(rig *made) {
    yoke_data_parallel_destroy(made->parallel);
    yoke_devices_close(made->devices);
    check_batch_free(&made->batch);
    yoke_model_destroy(made->model);
}

/* The last core that this thread may run on: one that no fixed rule takes first. */
static cpu_set_t last_core(const cpu_set_t *allowed, char list[16]) {
    cpu_set_t last;
    size_t core = yoke_cores_at(allowed, CPU_COUNT(allowed) - 1);
    CPU_ZERO(&last);
    CPU_SET(core, &last);
    snprintf(list, 16, "%zu", core);
    return last;
}

static cpu_set_t own_cores(void) {
    cpu_set_t own;
    yoke_cores_allowed(&own);
    return own;
}

/* Where each replica's compute threads may run, joined. */
static yoke_status look(int replica, void *found) {
    cpu_set_t *all = (cpu_set_t *)found + replica;
    CPU_ZERO(all);
#pragma omp parallel num_threads(devices_are_cpus() ? THREADS : 1)
    {
        cpu_set_t own = own_cores();
#pragma omp critical
        CPU_OR(all, all, &own);
    }
    return YOKE_OK;
}

static void expect_equal(const cpu_set_t *found, const cpu_set_t *expected, const char *whose) {
    char text[64], other[64];
    yoke_core_list_write(found, text, sizeof text);
    yoke_core_list_write(expected, other, sizeof other);
    if (!CPU_EQUAL(found, expected))
        fail_msg("%s may use cores %s, expected %s", whose, text, other);
}

static void every_thread_of_the_devices_stays_on_the_cores(void **state) {
    (void)state;
    char list[16];
    cpu_set_t before = own_cores(), team[DEVICES], after[DEVICES];
    if (CPU_COUNT(&before) < 2) skip();
    cpu_set_t last = last_core(&before, list);
    look(0, &team[0]);
    for (int unbound = 0; unbound < 2; unbound++) {
        rig own = open_rig(list, unbound);
        for (int round = 0; round < 3; round++) {
            if (round == 1) EXPECT_OK(yoke_data_parallel_bind(own.parallel));
            EXPECT_OK(yoke_data_parallel_step(own.parallel, &own.batch.batch, 0.1, NULL));
            EXPECT_OK(yoke_parallel_apply(own.parallel, look, team));
            expect_equal(&team[0], &last, "the root's threads");
            expect_equal(&team[1], &last, "a worker's threads");
            if (round == 1) yoke_data_parallel_unbind(own.parallel);
            cpu_set_t between = own_cores();
            expect_equal(&between, &before, "the caller");
        }
        yoke_device_info info = {.struct_size = sizeof info};
        EXPECT_OK(yoke_devices_describe(own.devices, 1, &info));
        assert_string_equal(info.cores, list);
        close_rig(&own);
        look(0, &after[0]);
        expect_equal(&after[0], &before, "a thread of the program's own team");
    }
}

static void without_a_list_the_caller_stays_where_it_is(void **state) {
    (void)state;
    cpu_set_t before = own_cores(), team[DEVICES];
    rig own = open_rig(NULL, false);
    EXPECT_OK(yoke_parallel_apply(own.parallel, look, team));
    expect_equal(&team[0], &before, "the root's threads");
    close_rig(&own);
}

/* Threads share the cores among the devices, as they share the machine's. */
static void the_list_decides_how_many_threads_there_are(void **state) {
    (void)state;
    char list[16];
    cpu_set_t before = own_cores();
    if (CPU_COUNT(&before) < 2 || !devices_are_cpus()) skip();
    (void)last_core(&before, list);
    yoke_devices_options options = {.struct_size = sizeof options, .list = "cpu", .cores = list};
    yoke_devices *devices = NULL;
    EXPECT_OK(yoke_devices_open(&devices, &options));
    assert_int_equal(yoke_device_threads(yoke_devices_at(devices, 0)), 1);
    assert_int_equal(yoke_devices_cores(devices), 1);
    assert_int_equal(yoke_devices_spare_cores(devices), 0);
    yoke_devices_close(devices);
    options.list = "2xcpu";
    options.shards = 2;
    EXPECT_OK(yoke_devices_open(&devices, &options));
    assert_int_equal(yoke_device_threads(yoke_devices_at(devices, 1)), 1);
    assert_int_equal(yoke_devices_spare_cores(devices), -1);
    yoke_devices_close(devices);
}

/* Loaders. */

static cpu_set_t of_loader;
static atomic_bool looked;

static yoke_status read_row(void *payload, size_t row, float *input, int32_t *label,
                            float *targets) {
    (void)payload, (void)row, (void)targets;
    memset(input, 0, sizeof *input * 4);
    *label = 0;
    if (!atomic_exchange(&looked, true)) of_loader = own_cores();
    return YOKE_OK;
}

static void load_one(yoke_devices *devices) {
    yoke_dataset *dataset = NULL;
    yoke_loader *loader = NULL;
    yoke_row_source source = {.struct_size = sizeof source,
                              .rows = 4,
                              .shape = yoke_shape_vector(4),
                              .classes = 2,
                              .read = read_row};
    yoke_loader_options options = {.struct_size = sizeof options, .batch = 4, .devices = devices};
    yoke_batch batch = {.struct_size = sizeof batch};
    atomic_store(&looked, false);
    EXPECT_OK(yoke_dataset_from_callback(&dataset, &source));
    EXPECT_OK(yoke_loader_create(&loader, dataset, &options));
    EXPECT_OK(yoke_loader_begin(loader, 0));
    EXPECT_OK(yoke_loader_next(loader, &batch, NULL));
    yoke_loader_destroy(loader);
    yoke_dataset_close(dataset);
}

static void loaders_made_for_the_devices_stay_there_too(void **state) {
    (void)state;
    char list[16];
    cpu_set_t before = own_cores();
    if (CPU_COUNT(&before) < 2) skip();
    cpu_set_t last = last_core(&before, list);
    yoke_devices_options options = {
        .struct_size = sizeof options, .list = devices_of(1), .cores = list};
    yoke_devices *devices = NULL;
    EXPECT_OK(yoke_devices_open(&devices, &options));
    load_one(devices);
    expect_equal(&of_loader, &last, "a loader's thread");
    load_one(NULL);
    expect_equal(&of_loader, &before, "another loader's thread");
    yoke_devices_close(devices);
}

/* Lists. */

static void a_wrong_list_is_refused_by_its_part(void **state) {
    (void)state;
    cpu_set_t allowed, cores;
    const struct {
        const char *list, *words;
    } wrong[] = {{"", "cores \"\": \"\" is neither a core nor a range"},
                 {"x", "\"x\" is neither"},
                 {"0,,1", "\"\" is neither"},
                 {"1,", "\"\" is neither"},
                 {"0-", "\"0-\" is neither"},
                 {"-1", "\"-1\" is neither"},
                 {"3-1", "\"3-1\" is neither"},
                 {"0 ", "\"0 \" is neither"},
                 {"0\n", "\"0?\" is neither"},
                 {"0x1", "\"0x1\" is neither"},
                 {"0,4", "the process may not run on core 4; it may on 0-3"},
                 {"2-9223372036854775807", "may not run on core 4; it may on 0-3"},
                 {"1024", "may not run on core 1024"},
                 {"99999999999999999999", "may not run on core 9223372036854775807"}};
    assert_true(yoke_core_list_parse("0-3", &allowed));
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(yoke_core_list_choose(wrong[i].list, &allowed, &cores),
                         YOKE_ERROR_ARGUMENT);
        if (strstr(yoke_last_error(), wrong[i].words) == NULL)
            fail_msg("\"%s\": %s", wrong[i].list, yoke_last_error());
    }
    yoke_devices *devices = NULL;
    yoke_devices_options options = {
        .struct_size = sizeof options, .list = devices_of(1), .cores = "0-3,1023"};
    assert_int_equal(yoke_devices_open(&devices, &options), YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "cores \"0-3,1023\": the process may not run on"));
    assert_null(devices);
}

static void a_list_may_repeat_and_overlap(void **state) {
    (void)state;
    cpu_set_t allowed, cores, expected;
    assert_true(yoke_core_list_parse("0-9", &allowed));
    assert_true(yoke_core_list_parse("1-5,8", &expected));
    EXPECT_OK(yoke_core_list_choose("8,2-5,1-3,5,5-5", &allowed, &cores));
    assert_true(CPU_EQUAL(&cores, &expected));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_thread_of_the_devices_stays_on_the_cores),
        cmocka_unit_test(without_a_list_the_caller_stays_where_it_is),
        cmocka_unit_test(the_list_decides_how_many_threads_there_are),
        cmocka_unit_test(loaders_made_for_the_devices_stay_there_too),
        cmocka_unit_test(a_wrong_list_is_refused_by_its_part),
        cmocka_unit_test(a_list_may_repeat_and_overlap),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
