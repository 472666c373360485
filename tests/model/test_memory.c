/* SPDX-License-Identifier: Apache-2.0 */
/* A replica's steady step allocates nothing, and a replica whose allocation fails leaks
 * nothing. */
#include "replica_rig.h"
#include "support/failing_allocator.h"

/* A GPU's runtime allocates from the same heap, and is not ours to fail. */
static bool can_count(void) {
    return COUNTS && devices_are_cpus();
}

static void run_steps(struct rig *rig, int rows) {
    yoke_plan_step step = rig_step(rig);
    assert_ok(yoke_replica_forward(rig->replica, rows, true, &step));
    assert_ok(yoke_replica_loss(rig->replica, &step));
    rig_backward(rig, &step);
    assert_ok(yoke_replica_forward(rig->replica, rows, false, &step));
    assert_ok(yoke_replica_loss(rig->replica, &step));
}

static void the_count_notices_an_allocation(void **state) {
    (void)state;
    if (!can_count()) skip();
    unsigned long before = counted(&own_allocations);
    void *volatile memory = malloc(10);
    free(memory);
    assert_int_equal(counted(&own_allocations) - before, 1);
}

static void steady_steps_allocate_nothing(void **state) {
    (void)state;
    if (!can_count()) skip();
    yoke_model *model = NULL;
    assert_ok(yoke_model_preset(&model, "resnet20", (yoke_shape){3, 16, 16, false}, 10, NULL));
    struct rig rig;
    rig_create(&rig, model, 4, 1);
    for (int rows = 3; rows <= 4; rows++) {
        assert_ok(yoke_replica_prepare(rig.replica, rows, true));
        assert_ok(yoke_replica_prepare(rig.replica, rows, false));
    }
    run_steps(&rig, 4); /* the first step of a process starts oneDNN's threads */
    unsigned long before = counted(&own_allocations), foreign = counted(&foreign_allocations);
    for (int i = 0; i < 3; i++) {
        run_steps(&rig, 4);
        run_steps(&rig, 3);
    }
    assert_int_equal(counted(&own_allocations) - before, 0);
    print_message("oneDNN allocated %lu times in 12 passes\n",
                  counted(&foreign_allocations) - foreign);
    rig_destroy(&rig);
}

/* One arena and one scratch serve all programs when the primary is the largest. */
static void smaller_programs_share_the_primarys_memory(void **state) {
    (void)state;
    yoke_model *model = NULL;
    assert_ok(yoke_model_preset(&model, "resnet20", (yoke_shape){3, 16, 16, false}, 10, NULL));
    struct rig rig;
    rig_create(&rig, model, 4, 1);
    const yoke_replica_memory *memory = yoke_replica_memory_of(rig.replica);
    size_t activations = memory->activation_bytes, scratch = memory->scratch_bytes;
    size_t allocated = yoke_device_allocated(rig.device);
    assert_true(activations > 0);
    assert_ok(yoke_replica_prepare(rig.replica, 3, true));
    assert_ok(yoke_replica_prepare(rig.replica, 2, false));
    assert_int_equal(memory->activation_bytes, activations);
    assert_int_equal(yoke_device_allocated(rig.device) - allocated,
                     memory->scratch_bytes - scratch);
    rig_destroy(&rig);
}

static yoke_status make_and_use(struct rig *rig) {
    yoke_replica_options options = rig_options(rig);
    yoke_plan_step step = rig_step(rig);
    TRY(yoke_model_preset(&rig->model, "resnet20", (yoke_shape){3, 8, 8, false}, 10, NULL));
    TRY(yoke_replica_create(&rig->replica, rig->model, &options));
    TRY(yoke_replica_allocate(rig->replica, NULL, NULL));
    TRY(yoke_replica_initialize(rig->replica, 1));
    TRY(yoke_replica_prepare(rig->replica, 1, false));
    return yoke_replica_forward(rig->replica, 2, true, &step);
}

static void every_failing_allocation_is_an_error_that_leaves_nothing(void **state) {
    (void)state;
    if (!can_count()) skip();
    yoke_status status = YOKE_ERROR_MEMORY;
    unsigned long sites = 0;
    while (status != YOKE_OK) {
        long living = __atomic_load_n(&own_living, __ATOMIC_SEQ_CST);
        struct rig rig = {.rows = 2, .algorithm = YOKE_ALGORITHM_DIRECT};
        rig_devices(&rig); /* a device keeps the layouts it once described until it closes */
        __atomic_store_n(&fail_at, counted(&own_allocations) + ++sites, __ATOMIC_SEQ_CST);
        status = make_and_use(&rig);
        __atomic_store_n(&fail_at, 0, __ATOMIC_SEQ_CST);
        assert_true(status == YOKE_OK || status == YOKE_ERROR_MEMORY);
        rig_destroy(&rig);
        assert_int_equal(__atomic_load_n(&own_living, __ATOMIC_SEQ_CST), living);
    }
    assert_true(sites > 100);
    print_message("%lu allocations failed one by one\n", sites - 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_count_notices_an_allocation),
        cmocka_unit_test(steady_steps_allocate_nothing),
        cmocka_unit_test(every_failing_allocation_is_an_error_that_leaves_nothing),
        cmocka_unit_test(smaller_programs_share_the_primarys_memory),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
