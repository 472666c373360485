/* SPDX-License-Identifier: Apache-2.0 */
/* Workers and pinned memory lie near their GPU: which cores the system names, and who goes there.
 * Skipped without a GPU; the binding also where the process may use one core alone. */
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device/cuda/near.h"
#include "gpu_rig.h"

static void cores_of(const char *list, cpu_set_t *cores) {
    assert_true(yoke_core_list_parse(list, cores));
}

static void the_slot_says_which_allowed_cores_are_near(void **state) {
    (void)state;
    static const struct {
        const char *local, *allowed, *near;
    } rows[] = {{"4-7\n", "0-7", "4-7"}, {"4-7\n", "0-5", "4-5"},
                {"0-7\n", "0-7", ""},  /* all are */
                {"4-7\n", "0-3", ""},  /* none may be used */
                {"what\n", "0-7", ""}, /* no list */
                {NULL, "0-7", ""}};    /* no file, as in many containers */
    char root[] = "/tmp/yoke_near_XXXXXX", folder[64], path[96];
    assert_non_null(mkdtemp(root));
    snprintf(folder, sizeof folder, "%s/0000:3b:00.0", root);
    snprintf(path, sizeof path, "%s/local_cpulist", folder);
    assert_int_equal(mkdir(folder, 0700), 0);
    for (size_t i = 0; i < COUNT(rows); i++) {
        cpu_set_t allowed, near, expected;
        unlink(path);
        FILE *file = rows[i].local != NULL ? fopen(path, "w") : NULL;
        if (file != NULL) {
            fputs(rows[i].local, file);
            fclose(file);
        }
        cores_of(rows[i].allowed, &allowed);
        cores_of(rows[i].near, &expected);
        cuda_near_read(&near, root, "0000:3B:00.0", &allowed);
        if (!CPU_EQUAL(&near, &expected)) fail_msg("row %zu", i);
    }
    unlink(path);
    rmdir(folder);
    rmdir(root);
}

static void affinity(cpu_set_t *cores) {
    assert_int_equal(sched_getaffinity(0, sizeof *cores, cores), 0);
}

static void a_bound_worker_runs_near_its_gpu_and_comes_back(void **state) {
    cuda_device *device = ((rig *)*state)->device;
    cpu_set_t before, now, saved = device->near;
    yoke_device_scope scope;
    int last = CPU_SETSIZE - 1;
    affinity(&before);
    if (CPU_COUNT(&before) < 2) skip();
    while (!CPU_ISSET((size_t)last, &before))
        last--;
    CPU_ZERO(&device->near);
    CPU_SET((size_t)last, &device->near);

    CHECK(yoke_device_enter(&device->base, true, &scope));
    affinity(&now);
    assert_true(CPU_EQUAL(&now, &device->near));
    yoke_device_step_out(&device->base, &scope);
    affinity(&now);
    assert_true(CPU_EQUAL(&now, &before));
    CHECK(yoke_device_use(&device->base));
    affinity(&now);
    assert_true(CPU_EQUAL(&now, &device->near));
    yoke_device_leave(&device->base, &scope);
    affinity(&now);
    assert_true(CPU_EQUAL(&now, &before));

    CHECK(yoke_device_enter(&device->base, false, &scope)); /* unbound */
    affinity(&now);
    assert_true(CPU_EQUAL(&now, &before));
    yoke_device_leave(&device->base, &scope);
    device->near = saved;
}

static void pinned_memory_moves_no_thread(void **state) {
    cuda_device *device = ((rig *)*state)->device;
    cpu_set_t before, now, saved = device->near;
    void *memory = NULL;
    affinity(&before);
    if (CPU_COUNT(&before) < 2) skip();
    CPU_ZERO(&device->near);
    for (size_t core = 0; CPU_COUNT(&device->near) == 0; core++)
        if (CPU_ISSET(core, &before)) CPU_SET(core, &device->near);
    CHECK(yoke_device_allocate_host(&device->base, 4096, "pinned", &memory));
    affinity(&now);
    assert_true(CPU_EQUAL(&now, &before));
    yoke_device_free_host(&device->base, memory);
    device->near = saved;
}

int main(void) {
    setenv("YOKE_TEST_BACKEND", "cuda", 1); /* there is no other here */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_slot_says_which_allowed_cores_are_near),
        cmocka_unit_test(a_bound_worker_runs_near_its_gpu_and_comes_back),
        cmocka_unit_test(pinned_memory_moves_no_thread),
    };
    return RUN_ON_DEVICES(tests, open_rig, close_rig);
}
