/* SPDX-License-Identifier: Apache-2.0 */
/* Devices: what a list means, what a description says, and what a worker's scope changes and
 * restores. */
#include <omp.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "device/backend.h"
#include "device/cpu/nodes.h"
#include "device/device_list.h"
#include "support/devices.h"

#define EXPECT_OK(call)                                                                            \
    do {                                                                                           \
        yoke_status expect_status_ = (call);                                                       \
        if (expect_status_ != YOKE_OK)                                                             \
            fail_msg("%s: %s: %s", #call, yoke_status_name(expect_status_), yoke_last_error());    \
    } while (0)

static yoke_devices *open_list(const char *list, int threads) {
    yoke_devices_options options = {
        .struct_size = sizeof options, .list = list, .threads = threads};
    yoke_devices *devices = NULL;
    EXPECT_OK(yoke_devices_open(&devices, &options));
    return devices;
}

/* Lists. */

static void a_list_opens_the_devices_it_names_in_its_order(void **state) {
    (void)state;
    static const struct {
        const char *list, *names; /* names of the devices, joined */
    } rows[] = {
        {"cpu", "cpu:0"},
        {"3xcpu", "cpu:0 cpu:1 cpu:2"},
        {"cpu,cpu", "cpu:0 cpu:1"},
        {"cpu:1,cpu:0", "cpu:1 cpu:0"},
        {"cpu:0,2", "cpu:0 cpu:2"},
        {"cpu:1,2xcpu", "cpu:1 cpu:0 cpu:2"},
        {"2xcpu:0", "cpu:0#0 cpu:0#1"},
        {"cpu:1,cpu:0,cpu:1", "cpu:1#0 cpu:0 cpu:1#1"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        yoke_devices *devices = open_list(rows[i].list, 1);
        char names[256] = "";
        for (int k = 0; k < yoke_devices_count(devices); k++) {
            if (k > 0) strcat(names, " ");
            strcat(names, yoke_device_name(yoke_devices_at(devices, k)));
        }
        assert_string_equal(names, rows[i].names);
        yoke_devices_close(devices);
    }
}

static void a_list_that_cannot_be_read_is_refused_with_the_part_at_fault(void **state) {
    (void)state;
    static const struct {
        const char *list;
        yoke_status status;
        const char *part; /* of the message */
    } rows[] = {
        {"", YOKE_ERROR_ARGUMENT, "nothing at position 0"},
        {"cpu,", YOKE_ERROR_ARGUMENT, "nothing at position 4"},
        {",cpu", YOKE_ERROR_ARGUMENT, "nothing at position 0"},
        {"cpu,,cpu", YOKE_ERROR_ARGUMENT, "nothing at position 4"},
        {"cpy", YOKE_ERROR_ARGUMENT, "did you mean \"cpu\"?"},
        {"quantum", YOKE_ERROR_ARGUMENT, "\"quantum\" is not a device"},
        {"4xcpy", YOKE_ERROR_ARGUMENT, "\"cpy\" is not a device"},
        {"cpu,auto", YOKE_ERROR_ARGUMENT, "\"auto\" cannot be combined"},
        {"cpu:", YOKE_ERROR_ARGUMENT, "\"\" is not a device number"},
        {"cpu:one", YOKE_ERROR_ARGUMENT, "\"one\" is not a device number"},
        {"cpu:-1", YOKE_ERROR_ARGUMENT, "\"-1\" is not a device number"},
        {"cpu:99999999999999999999", YOKE_ERROR_ARGUMENT, "is not a device number"},
        {"0xcpu", YOKE_ERROR_ARGUMENT, "0 devices; 1 to 64"},
        {"65xcpu", YOKE_ERROR_ARGUMENT, "65 devices; 1 to 64"},
        {"60xcpu,5xcpu", YOKE_ERROR_ARGUMENT, "65 devices; 1 to 64"},
        {"99999999999999999999xcpu", YOKE_ERROR_ARGUMENT, "is not a number of devices"},
        {"x", YOKE_ERROR_ARGUMENT, "\"x\" is not a device"},
        {"4", YOKE_ERROR_ARGUMENT, "\"4\" is not a device"},
        {" cpu", YOKE_ERROR_ARGUMENT, "\" cpu\" is not a device"},
        {"+mapped", YOKE_ERROR_ARGUMENT, "nothing at position 0"},
        {"cpu,+mapped", YOKE_ERROR_ARGUMENT, "nothing at position 4"},
        {"cpu+", YOKE_ERROR_ARGUMENT, "\"\" is not a variant"},
        {"cpu+wave", YOKE_ERROR_ARGUMENT, "\"wave\" is not a variant; \"+all\", or some of"},
        {"cpu+mapped+", YOKE_ERROR_ARGUMENT, "\"\" is not a variant"},
        {"cpu+mapped,cpu", YOKE_ERROR_ARGUMENT, "\"mapped,cpu\" is not a variant"},
        {"2xcpu+mapped", YOKE_ERROR_ARGUMENT, "variants are for GPUs; leave them out for cpu"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        yoke_devices_options options = {.struct_size = sizeof options, .list = rows[i].list};
        yoke_devices *devices = (yoke_devices *)&options;
        yoke_status status = yoke_devices_open(&devices, &options);
        if (status != rows[i].status || strstr(yoke_last_error(), rows[i].part) == NULL)
            fail_msg("\"%s\": %s: %s", rows[i].list, yoke_status_name(status), yoke_last_error());
        assert_null(devices);
    }
}

static void auto_is_every_gpu_or_one_cpu(void **state) {
    (void)state;
    static const char *const lists[] = {NULL, "auto"};
    for (size_t i = 0; i < 2; i++) {
        yoke_devices *devices = open_list(lists[i], 1);
        assert_int_equal(yoke_devices_count(devices), devices_gpus() > 0 ? devices_gpus() : 1);
        for (int k = 0; k < yoke_devices_count(devices); k++) {
            char name[16];
            snprintf(name, sizeof name, devices_gpus() > 0 ? "cuda:%d" : "cpu:%d", k);
            assert_string_equal(yoke_device_name(yoke_devices_at(devices, k)), name);
        }
        yoke_devices_close(devices);
    }
}

/* Not in the build, or no driver, or no such GPU: each is an error that says which. */
static void gpus_that_are_not_here_are_a_missing_device(void **state) {
    (void)state;
    static const char *const lists[] = {"cuda:63", "2xcuda:63", "cuda:63,62"};
    yoke_backend_info info = {.struct_size = sizeof info};
    assert_true(yoke_backend_describe(1, &info));
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        yoke_devices_options options = {.struct_size = sizeof options, .list = lists[i]};
        yoke_devices *devices = (yoke_devices *)&options;
        assert_int_equal(yoke_devices_open(&devices, &options), YOKE_ERROR_DEVICE);
        assert_null(devices);
        assert_non_null(strstr(yoke_last_error(), "cuda"));
        if (strcmp(info.detail, "not in this build") == 0)
            assert_non_null(strstr(yoke_last_error(), "this build has no cuda backend"));
    }
}

static void a_long_item_is_refused_not_overrun(void **state) {
    (void)state;
    char list[4096];
    memset(list, 'c', sizeof list);
    list[sizeof list - 1] = '\0';
    yoke_devices_options options = {.struct_size = sizeof options, .list = list};
    yoke_devices *devices = NULL;
    assert_int_equal(yoke_devices_open(&devices, &options), YOKE_ERROR_ARGUMENT);
}

static void sixty_four_devices_can_be_opened(void **state) {
    (void)state;
    yoke_devices *devices = open_list("64xcpu", 0);
    assert_int_equal(yoke_devices_count(devices), 64);
    yoke_devices_close(devices);
}

static void an_impossible_number_of_threads_is_refused(void **state) {
    (void)state;
    static const int threads[] = {-1, 1025};
    for (size_t i = 0; i < 2; i++) {
        yoke_devices_options options = {.struct_size = sizeof options, .threads = threads[i]};
        yoke_devices *devices = NULL;
        assert_int_equal(yoke_devices_open(&devices, &options), YOKE_ERROR_ARGUMENT);
        assert_non_null(strstr(yoke_last_error(), "1 to 1024"));
    }
}

/* What is told. */

/* Which cores each gets depends on the machine's nodes: test_nodes. */
static void the_cores_are_shared_and_reused_when_there_are_too_few(void **state) {
    (void)state;
    cpu_set_t allowed, own, used, both;
    CPU_ZERO(&used);
    int cores = yoke_cores_allowed(&allowed);
    yoke_devices *devices = open_list("3xcpu", 0);
    int share = cores / 3 > 0 ? cores / 3 : 1;
    if (share > omp_get_thread_limit()) share = omp_get_thread_limit();
    for (int i = 0; i < 3; i++) {
        yoke_device_info info = {.struct_size = sizeof info};
        EXPECT_OK(yoke_devices_describe(devices, i, &info));
        assert_int_equal(info.threads, share);
        assert_int_equal(info.core_count, share);
        assert_true(yoke_core_list_parse(info.cores, &own));
        assert_int_equal(info.first_core, yoke_cores_at(&own, 0));
        CPU_AND(&both, &own, &allowed);
        assert_int_equal(CPU_COUNT(&both), share);
        CPU_AND(&both, &own, &used);
        assert_true(CPU_COUNT(&both) == 0 || 3 * share > cores);
        CPU_OR(&used, &used, &own);
        assert_true(info.memory_bytes > 0);
        assert_true(info.description[0] != '\0');
    }
    assert_int_equal(yoke_devices_spare_cores(devices), cores - 3 * share);
    yoke_device_info none = {.struct_size = sizeof none};
    assert_int_equal(yoke_devices_describe(devices, 3, &none), YOKE_ERROR_ARGUMENT);
    assert_int_equal(yoke_devices_describe(devices, -1, &none), YOKE_ERROR_ARGUMENT);
    yoke_devices_close(devices);
}

static void backends_say_whether_they_are_here_and_why_not(void **state) {
    (void)state;
    yoke_backend_info info = {.struct_size = sizeof info};
    assert_true(yoke_backend_describe(0, &info));
    assert_string_equal(info.name, "cpu");
    assert_true(info.available);
    assert_non_null(strstr(info.detail, "oneDNN"));
    assert_true(yoke_backend_describe(1, &info));
    assert_string_equal(info.name, "cuda");
    assert_int_equal(info.available, devices_gpus() > 0);
    assert_true(strlen(info.detail) > 10);
    assert_false(yoke_backend_describe(2, &info));
    assert_false(yoke_backend_describe(-1, &info));
}

static void a_cpu_does_not_pretend_to_compute_in_tf32(void **state) {
    (void)state;
    yoke_devices *devices = open_list("cpu", 1);
    assert_true(yoke_device_supports(yoke_devices_at(devices, 0), YOKE_FLOAT32));
    assert_false(yoke_device_supports(yoke_devices_at(devices, 0), YOKE_TF32));
    yoke_devices_close(devices);
}

/* Scopes. */

/* The cores each thread of a team of `threads` may use, joined. */
static cpu_set_t team_cores(int threads) {
    cpu_set_t all;
    CPU_ZERO(&all);
#pragma omp parallel num_threads(threads)
    {
        cpu_set_t own;
        yoke_cores_allowed(&own);
#pragma omp critical
        CPU_OR(&all, &all, &own);
    }
    return all;
}

static void a_scope_binds_and_leaving_restores(void **state) {
    (void)state;
    static const int threads[] = {1, 2, 3};
    cpu_set_t before, inside, after;
    int cores = yoke_cores_allowed(&before), teams = omp_get_max_threads();
    for (size_t i = 0; i < 3 && threads[i] <= omp_get_thread_limit(); i++) {
        yoke_devices *devices = open_list("2xcpu", threads[i]);
        yoke_device *device = yoke_devices_at(devices, 1);
        yoke_device_scope scope;
        EXPECT_OK(yoke_device_enter(device, true, &scope));
        assert_int_equal(omp_get_max_threads(), threads[i]);
        inside = team_cores(threads[i]);
        yoke_device_info info = {.struct_size = sizeof info};
        EXPECT_OK(yoke_devices_describe(devices, 1, &info));
        assert_int_equal(CPU_COUNT(&inside), threads[i] < cores ? threads[i] : cores);
        assert_int_equal(CPU_COUNT(&inside), info.core_count);
        assert_true(CPU_ISSET((size_t)info.first_core, &inside));
        yoke_device_leave(device, &scope);
        after = team_cores(threads[i]);
        assert_true(CPU_EQUAL(&before, &after));
        assert_int_equal(omp_get_max_threads(), teams);
        yoke_devices_close(devices);
    }
}

static void a_scope_without_binding_leaves_cores_alone(void **state) {
    (void)state;
    cpu_set_t before, inside;
    yoke_cores_allowed(&before);
    for (int unbound = 0; unbound < 2; unbound++) {
        yoke_devices_options options = {
            .struct_size = sizeof options, .list = "2xcpu", .threads = 1, .unbound = unbound};
        yoke_devices *devices = NULL;
        EXPECT_OK(yoke_devices_open(&devices, &options));
        yoke_device *device = yoke_devices_at(devices, 1);
        yoke_device_scope scope;
        EXPECT_OK(yoke_device_enter(device, unbound, &scope));
        yoke_cores_allowed(&inside);
        assert_true(CPU_EQUAL(&before, &inside));
        assert_int_equal(omp_get_max_threads(), 1);
        yoke_device_leave(device, &scope);
        yoke_devices_close(devices);
    }
}

/* Choices. */

static int known_of(yoke_algorithms *algorithms, const char *key) {
    int known = -2;
    EXPECT_OK(yoke_algorithms_find(algorithms, key, NULL, &known));
    return known;
}

static void algorithms_are_found_again_and_listed_in_order(void **state) {
    (void)state;
    yoke_algorithms *algorithms = NULL;
    EXPECT_OK(yoke_algorithms_create(&algorithms));
    char key[32];
    for (int i = 0; i < 100; i++) {
        snprintf(key, sizeof key, "shape %d", i);
        assert_int_equal(known_of(algorithms, key), -1);
        EXPECT_OK(yoke_algorithms_add(algorithms, key, i % 5, "direct", i * 0.5));
    }
    const char *found, *name;
    double milliseconds;
    for (int i = 0; i < 100; i++) {
        snprintf(key, sizeof key, "shape %d", i);
        assert_int_equal(known_of(algorithms, key), i % 5);
        assert_true(yoke_algorithms_at(algorithms, i, &found, &name, &milliseconds));
        assert_string_equal(found, key);
        assert_string_equal(name, "direct");
        assert_true(milliseconds == i * 0.5);
    }
    assert_false(yoke_algorithms_at(algorithms, 100, &found, &name, &milliseconds));
    assert_false(yoke_algorithms_at(algorithms, -1, &found, &name, &milliseconds));
    yoke_algorithms_destroy(algorithms);
    yoke_algorithms_destroy(NULL);
}

static const char *name_at(const void *context, int candidate) {
    const char *const *names = context;
    return names[candidate];
}

static void an_unknown_key_takes_a_preferred_candidate_unmeasured(void **state) {
    (void)state;
    const char *const names[] = {"direct", "winograd", NULL}, *const others[] = {"one", NULL};
    const yoke_algorithm_names two = {name_at, names}, one = {name_at, others};
    yoke_algorithms *algorithms = NULL;
    int known;
    EXPECT_OK(yoke_algorithms_create(&algorithms));
    yoke_algorithms_prefer(algorithms, "im2col");
    EXPECT_OK(yoke_algorithms_find(algorithms, "conv", &two, &known));
    assert_int_equal(known, -1);
    EXPECT_OK(yoke_algorithms_add(algorithms, "measured", 0, "direct", 1));
    yoke_algorithms_prefer(algorithms, "winograd");
    const struct {
        const char *key;
        const yoke_algorithm_names *names;
        int known;
    } rows[] = {{"conv", &two, 1}, {"conv", NULL, 1}, {"measured", &two, 0}, {"linear", &one, -1}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        EXPECT_OK(yoke_algorithms_find(algorithms, rows[i].key, rows[i].names, &known));
        assert_int_equal(known, rows[i].known);
    }
    yoke_algorithms_destroy(algorithms);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_opens_the_devices_it_names_in_its_order),
        cmocka_unit_test(a_list_that_cannot_be_read_is_refused_with_the_part_at_fault),
        cmocka_unit_test(auto_is_every_gpu_or_one_cpu),
        cmocka_unit_test(gpus_that_are_not_here_are_a_missing_device),
        cmocka_unit_test(a_long_item_is_refused_not_overrun),
        cmocka_unit_test(sixty_four_devices_can_be_opened),
        cmocka_unit_test(an_impossible_number_of_threads_is_refused),
        cmocka_unit_test(the_cores_are_shared_and_reused_when_there_are_too_few),
        cmocka_unit_test(backends_say_whether_they_are_here_and_why_not),
        cmocka_unit_test(a_cpu_does_not_pretend_to_compute_in_tf32),
        cmocka_unit_test(a_scope_binds_and_leaving_restores),
        cmocka_unit_test(a_scope_without_binding_leaves_cores_alone),
        cmocka_unit_test(algorithms_are_found_again_and_listed_in_order),
        cmocka_unit_test(an_unknown_key_takes_a_preferred_candidate_unmeasured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
