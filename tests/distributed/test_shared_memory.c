/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives over shared memory equal a plain loop, bit for bit, among threads and among
 * processes. */
#include "support/collective_grid.h"
#include "support/process_ranks.h"

static yoke_status check_grid(yoke_process_group *group, const script *play) {
    (void)play;
    return check_all(group, NULL);
}

static void every_collective_equals_a_loop(void **state) {
    (void)state;
    for (int world = 1; world <= RANKS; world++) {
        outcome *outcomes =
            play_threads(&(script){.world = world, .timeout_ms = TIMEOUT_MS, .scene = check_grid});
        expect_all_well(outcomes, world);
        free(outcomes);
    }
}

static void processes_do_what_threads_do(void **state) {
    (void)state;
    static const int worlds[] = {2, 5};
    for (size_t i = 0; i < sizeof worlds / sizeof worlds[0]; i++) {
        script play = {.world = worlds[i], .timeout_ms = TIMEOUT_MS, .scene = check_grid};
        outcome *outcomes = start_processes(&play);
        join_processes(worlds[i]);
        expect_all_well(outcomes, worlds[i]);
        munmap(outcomes, RANKS * sizeof *outcomes);
    }
}

static yoke_status check_large(yoke_process_group *group, const script *play) {
    (void)play;
    setting sum = {700001, YOKE_ELEMENT_FLOAT32, YOKE_SUM, NULL};
    setting mean = {300007, YOKE_ELEMENT_BFLOAT16, YOKE_MEAN, NULL};
    TRY(check_setting(group, &sum, false));
    TRY(check_setting(group, &sum, true));
    TRY(check_setting(group, &mean, false));
    return check_setting(group, &mean, true);
}

static void buffers_larger_than_a_slot_go_in_chunks(void **state) {
    (void)state;
    for (int world = 2; world <= 3; world++) {
        outcome *outcomes =
            play_threads(&(script){.world = world, .timeout_ms = TIMEOUT_MS, .scene = check_large});
        expect_all_well(outcomes, world);
        free(outcomes);
    }
}

/* Odd ranks reduce private memory, the others memory that all can read. */
static yoke_status mix_memories(yoke_process_group *group, const script *play) {
    (void)play;
    setting s = {200003, YOKE_ELEMENT_FLOAT32, YOKE_SUM, NULL};
    yoke_reduce_call call = {s.count, s.element, s.reduction, -1};
    void *shared;
    TRY(group->allocate(group, s.count * 4, &shared));
    void *own = malloc(s.count * 4);
    void *buffer = group->rank % 2 == 1 ? own : shared;
    yoke_status status = YOKE_OK;
    for (int round = 0; round < 3 && status == YOKE_OK; round++) {
        fill(buffer, s.count, &s, group->rank, 0);
        status = group->reduce(group, buffer, &call);
        if (status == YOKE_OK) status = expect_folded("mixed", buffer, &s, group->world, 0);
    }
    free(own);
    return status;
}

static void private_and_shared_buffers_meet(void **state) {
    (void)state;
    for (int world = 2; world <= 5; world += 3) {
        outcome *outcomes = play_threads(
            &(script){.world = world, .timeout_ms = TIMEOUT_MS, .scene = mix_memories});
        expect_all_well(outcomes, world);
        free(outcomes);
    }
}

/* Buckets are started while the rank computes; some ranks look in between, some never. More are
 * started than the transport keeps in flight. */
static yoke_status overlap(yoke_process_group *group, const script *play) {
    enum { BUCKETS = 150, COUNT = 999 };
    (void)play;
    setting s = {COUNT, YOKE_ELEMENT_FLOAT32, YOKE_SUM, NULL};
    void *memory;
    TRY(group->allocate(group, BUCKETS * COUNT * sizeof(float), &memory));
    float *buckets = memory;
    for (int step = 0; step < 3; step++) {
        for (size_t i = 0; i < BUCKETS; i++) {
            fill(buckets + i * COUNT, COUNT, &s, group->rank, i);
            TRY(group->all_reduce_async(group, buckets + i * COUNT, COUNT, NULL));
            if (group->rank % 2 == 0) TRY(group->progress(group, false));
        }
        TRY(group->progress(group, true));
        for (size_t i = 0; i < BUCKETS; i++)
            TRY(expect_folded("a bucket", buckets + i * COUNT, &s, group->world, i));
        TRY(group->barrier(group));
    }
    /* A collective in between waits for what was started before. */
    fill(buckets, COUNT, &s, group->rank, 0);
    TRY(group->all_reduce_async(group, buckets, COUNT, NULL));
    yoke_reduce_call call = {COUNT, YOKE_ELEMENT_FLOAT32, YOKE_MAX, -1};
    TRY(group->reduce(group, buckets, &call));
    return expect_folded("sum, then max", buckets, &s, group->world, 0);
}

static void started_reductions_go_on_behind_the_computation(void **state) {
    (void)state;
    for (int world = 1; world <= 4; world++) {
        outcome *outcomes =
            play_threads(&(script){.world = world, .timeout_ms = TIMEOUT_MS, .scene = overlap});
        expect_all_well(outcomes, world);
        free(outcomes);
    }
}

/* Rank 0 starts; the others come when its progress has returned. One that waits for them fails at
 * the deadline. */
static yoke_status progress_alone(yoke_process_group *group, const script *play) {
    atomic_int *returned = play->shared;
    void *memory;
    TRY(group->allocate(group, 4000, &memory));
    TRY(group->barrier(group));
    while (group->rank != 0 && atomic_load(returned) == 0)
        usleep(1000);
    ((float *)memory)[0] = 1;
    yoke_status status = group->all_reduce_async(group, memory, 1000, NULL);
    if (status == YOKE_OK) status = group->progress(group, false);
    if (group->rank == 0) atomic_store(returned, 1);
    TRY(status);
    TRY(group->progress(group, true));
    if (((float *)memory)[0] == (float)group->world) return YOKE_OK;
    return FAIL(YOKE_ERROR_INTERNAL, "a sum of ones is %g", (double)((float *)memory)[0]);
}

static void progress_never_waits(void **state) {
    (void)state;
    atomic_int returned = 0;
    outcome *outcomes = play_threads(&(script){
        .world = 2, .timeout_ms = TIMEOUT_MS, .scene = progress_alone, .shared = &returned});
    expect_all_well(outcomes, 2);
    free(outcomes);
}

static yoke_status keep_nan_of(yoke_process_group *group, yoke_element element, int reduction,
                               int victim) {
    const double own[3] = {1, group->rank == victim ? NAN : 2, 3};
    unsigned char values[3 * sizeof(double)];
    for (size_t i = 0; i < 3; i++)
        store_value(values, i, element, own[i]);
    yoke_reduce_call call = {3, element, (yoke_reduction)reduction, -1};
    TRY(group->reduce(group, values, &call));
    double found[3];
    for (size_t i = 0; i < 3; i++)
        found[i] = load_value(values, i, element);
    if (isnan(found[1]) && found[0] == 1 && found[2] == 3) return YOKE_OK;
    return FAIL(YOKE_ERROR_INTERNAL, "%g %g %g", found[0], found[1], found[2]);
}

static yoke_status keep_nan(yoke_process_group *group, const script *play) {
    (void)play;
    for (int reduction = YOKE_MIN; reduction <= YOKE_MAX; reduction++) {
        for (int victim = 0; victim < group->world; victim++) {
            TRY(keep_nan_of(group, YOKE_ELEMENT_FLOAT32, reduction, victim));
            TRY(keep_nan_of(group, YOKE_ELEMENT_FLOAT64, reduction, victim));
        }
    }
    return YOKE_OK;
}

/* 1 + 2^-52 needs a double's last bit; adding 2^60 before -2^60 would lose it. */
static yoke_status sum_doubles(yoke_process_group *group, const script *play) {
    (void)play;
    const double own[4] = {1, 0x1p-52, 0x1p60, -0x1p60};
    double values[1] = {own[group->rank]};
    yoke_reduce_call call = {1, YOKE_ELEMENT_FLOAT64, YOKE_SUM, -1};
    TRY(group->reduce(group, values, &call));
    if (values[0] == 1 + 0x1p-52) return YOKE_OK;
    return FAIL(YOKE_ERROR_INTERNAL, "the sum is %.17g", values[0]);
}

static void doubles_are_summed_as_doubles_in_a_tree(void **state) {
    (void)state;
    outcome *outcomes =
        play_threads(&(script){.world = 4, .timeout_ms = TIMEOUT_MS, .scene = sum_doubles});
    expect_all_well(outcomes, 4);
    free(outcomes);
}

static void a_nan_is_not_lost_in_a_minimum(void **state) {
    (void)state;
    outcome *outcomes =
        play_threads(&(script){.world = 3, .timeout_ms = TIMEOUT_MS, .scene = keep_nan});
    expect_all_well(outcomes, 3);
    free(outcomes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_collective_equals_a_loop),
        cmocka_unit_test(processes_do_what_threads_do),
        cmocka_unit_test(buffers_larger_than_a_slot_go_in_chunks),
        cmocka_unit_test(private_and_shared_buffers_meet),
        cmocka_unit_test(doubles_are_summed_as_doubles_in_a_tree),
        cmocka_unit_test(started_reductions_go_on_behind_the_computation),
        cmocka_unit_test(progress_never_waits),
        cmocka_unit_test(a_nan_is_not_lost_in_a_minimum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
