/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that mpirun starts: every collective equals a plain loop, and all-reduces run behind the
 * computation. Every process runs these tests at the same time. Built WITH_MPI the program starts
 * MPI itself, as one that embeds Yoke may; otherwise the library does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>
#include <fcntl.h>
#include <unistd.h>
#ifdef WITH_MPI
#include <mpi.h>
#endif

#include "support/collective_grid.h"

#define TIMEOUT_MS 600000
#define EXPECT_OK(call)                                                                            \
    do {                                                                                           \
        yoke_status expect_status_ = (call);                                                       \
        if (expect_status_ != YOKE_OK)                                                             \
            fail_msg("%s: %s: %s", #call, yoke_status_name(expect_status_), yoke_last_error());    \
    } while (0)

static const char *look_up(const char *name, void *payload) {
    (void)payload;
    return getenv(name);
}

/* The group of number `round`: each meets at a place of its own. */
static yoke_process_group *open_round(int round) {
    yoke_process_group_options options = {
        .struct_size = sizeof options, .transport = YOKE_TRANSPORT_MPI, .timeout_ms = TIMEOUT_MS};
    yoke_rank_info rank = {.struct_size = sizeof rank};
    options.rank = &rank;
    yoke_process_group *group;
    EXPECT_OK(yoke_rank_detect(&rank, look_up, NULL));
    size_t length = strlen(rank.run_id);
    snprintf(rank.run_id + length, sizeof rank.run_id - length, "-%d", round);
    EXPECT_OK(yoke_process_group_create(&group, &options));
    assert_non_null(strstr(yoke_process_group_transport(group), "mpi ("));
    return group;
}

#ifdef WITH_MPI

/* MPI is the program's: groups come and go. */
static void a_host_program_makes_groups_as_it_likes(void **state) {
    int finalized = 1;
    (void)state;
    for (int i = 0; i < 3; i++) {
        yoke_process_group *group = open_round(i);
        int64_t one = 1;
        EXPECT_OK(yoke_process_group_all_reduce(group, &one, 1, YOKE_ELEMENT_INT64, YOKE_SUM));
        assert_int_equal(one, yoke_process_group_world(group));
        yoke_process_group_destroy(group);
        assert_int_equal(MPI_Finalized(&finalized), MPI_SUCCESS);
        assert_false(finalized);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_host_program_makes_groups_as_it_likes),
    };
    int level;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    MPI_Finalize();
    return failed;
}

#else

static int open_group(void **state) {
    *state = open_round(0);
    return 0;
}

static int close_group(void **state) {
    yoke_process_group_destroy(*state);
    return 0;
}

static void every_collective_equals_a_loop(void **state) {
    const grid_memory memory = {.any_order = true};
    EXPECT_OK(check_all(*state, &memory));
}

static void large_buffers_arrive_whole(void **state) {
    const grid_memory memory = {.any_order = true};
    setting s = {500009, YOKE_ELEMENT_BFLOAT16, YOKE_SUM, &memory};
    EXPECT_OK(check_setting(*state, &s, false));
}

/* Ones, so that 25 M elements are soon looked through. */
static void twenty_five_million_elements_are_summed(void **state) {
    enum { COUNT = 25000000 };
    yoke_process_group *group = *state;
    float *values = malloc(COUNT * sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < COUNT; i++)
        values[i] = (float)(i % 3);
    EXPECT_OK(yoke_process_group_all_reduce(group, values, COUNT, YOKE_ELEMENT_FLOAT32, YOKE_SUM));
    size_t wrong = 0;
    for (size_t i = 0; i < COUNT; i++)
        wrong += values[i] != (float)(i % 3) * (float)group->world;
    free(values);
    assert_int_equal(wrong, 0);
}

/* More buckets than may be on their way; some ranks look in between, some never. */
static void started_sums_go_on_behind_the_computation(void **state) {
    enum { BUCKETS = 70, COUNT = 999 };
    yoke_process_group *group = *state;
    const grid_memory memory_kind = {.any_order = true};
    setting s = {COUNT, YOKE_ELEMENT_FLOAT32, YOKE_SUM, &memory_kind};
    void *memory;
    EXPECT_OK(yoke_process_group_allocate(group, BUCKETS * COUNT * sizeof(float), &memory));
    assert_int_equal((uintptr_t)memory % 64, 0);
    assert_true(((float *)memory)[BUCKETS * COUNT - 1] == 0);
    float *buckets = memory;
    for (int step = 0; step < 3; step++) {
        for (size_t i = 0; i < BUCKETS; i++) {
            fill(buckets + i * COUNT, COUNT, &s, group->rank, i);
            EXPECT_OK(yoke_process_group_all_reduce_async(group, buckets + i * COUNT,
                                                          i == 7 ? 0 : COUNT));
            if (group->rank % 2 == 0) EXPECT_OK(yoke_process_group_progress(group));
        }
        EXPECT_OK(yoke_process_group_wait(group));
        for (size_t i = 0; i < BUCKETS; i++) {
            if (i == 7) continue;
            EXPECT_OK(expect_folded("a bucket", buckets + i * COUNT, &s, group->world, i));
        }
    }
    /* A collective waits for what was started before. */
    fill(buckets, COUNT, &s, group->rank, 0);
    EXPECT_OK(yoke_process_group_all_reduce_async(group, buckets, COUNT));
    EXPECT_OK(yoke_process_group_all_reduce(group, buckets, COUNT, YOKE_ELEMENT_FLOAT32, YOKE_MAX));
    EXPECT_OK(expect_folded("sum, then maximum", buckets, &s, group->world, 0));
}

/* Every size from none to several floats a rank, and one that is cut unevenly. */
static void sums_in_a_fixed_order_are_trees_to_the_bit(void **state) {
    enum { MOST = 12345, SIZES = 14 };
    yoke_process_group *group = *state;
    static float buckets[SIZES][MOST];
    EXPECT_OK(yoke_process_group_fix_order(group));
    for (int step = 0; step < 3; step++) {
        setting s = {MOST, YOKE_ELEMENT_FLOAT32, YOKE_SUM, NULL};
        for (size_t i = 0; i < SIZES; i++) {
            size_t count = i + 1 < SIZES ? i : MOST;
            fill(buckets[i], count, &s, group->rank, i);
            EXPECT_OK(yoke_process_group_all_reduce_async(group, buckets[i], count));
            if (group->rank % 2 == 0) EXPECT_OK(yoke_process_group_progress(group));
        }
        EXPECT_OK(yoke_process_group_wait(group));
        for (size_t i = 0; i < SIZES; i++) {
            s.count = i + 1 < SIZES ? i : MOST;
            EXPECT_OK(expect_folded("a bucket", buckets[i], &s, group->world, i));
        }
    }
    group->fixed_order = false;
}

/* The others come when rank 0 is back: a progress that waits for them ends at the deadline. */
static void progress_never_waits(void **state) {
    yoke_process_group *group = *state;
    float value = 1;
    char back[64];
    snprintf(back, sizeof back, "/tmp/yoke-test-progress-%d", (int)getppid()); /* the launcher */
    EXPECT_OK(yoke_process_group_barrier(group));
    if (group->rank != 0)
        while (access(back, F_OK) != 0)
            usleep(1000);
    EXPECT_OK(yoke_process_group_all_reduce_async(group, &value, 1));
    EXPECT_OK(yoke_process_group_progress(group));
    if (group->rank == 0) close(open(back, O_CREAT | O_WRONLY, 0600));
    EXPECT_OK(yoke_process_group_wait(group));
    assert_true(value == (float)group->world);
    if (group->rank == 0) unlink(back);
}

static void a_nan_is_not_lost_in_a_minimum(void **state) {
    yoke_process_group *group = *state;
    for (int reduction = YOKE_MIN; reduction <= YOKE_MAX; reduction++) {
        for (int victim = 0; victim < group->world; victim++) {
            float values[2] = {1, group->rank == victim ? NAN : 2};
            EXPECT_OK(yoke_process_group_all_reduce(group, values, 2, YOKE_ELEMENT_FLOAT32,
                                                    (yoke_reduction)reduction));
            assert_true(isnan(values[1]) && values[0] == 1);
            double wide[2] = {1, group->rank == victim ? (double)NAN : 2};
            EXPECT_OK(yoke_process_group_all_reduce(group, wide, 2, YOKE_ELEMENT_FLOAT64,
                                                    (yoke_reduction)reduction));
            assert_true(isnan(wide[1]) && wide[0] == 1);
        }
    }
}

/* After the library has begun and finished MPI. */
static void mpi_cannot_be_begun_twice(void **state) {
    yoke_process_group_options options = {
        .struct_size = sizeof options, .transport = YOKE_TRANSPORT_MPI, .timeout_ms = TIMEOUT_MS};
    yoke_process_group *group;
    (void)state;
    assert_int_equal(yoke_process_group_create(&group, &options), YOKE_ERROR_ARGUMENT);
    assert_null(group);
    assert_non_null(strstr(yoke_last_error(), "MPI was finalized in this process"));
}

int main(void) {
    if (yoke_mpi_check() != YOKE_OK) {
        printf("skipped: %s\n", yoke_last_error());
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_collective_equals_a_loop),
        cmocka_unit_test(large_buffers_arrive_whole),
        cmocka_unit_test(twenty_five_million_elements_are_summed),
        cmocka_unit_test(started_sums_go_on_behind_the_computation),
        cmocka_unit_test(sums_in_a_fixed_order_are_trees_to_the_bit),
        cmocka_unit_test(progress_never_waits),
        cmocka_unit_test(a_nan_is_not_lost_in_a_minimum),
    };
    const struct CMUnitTest after[] = {cmocka_unit_test(mpi_cannot_be_begun_twice)};
    int failed = cmocka_run_group_tests(tests, open_group, close_group);
    return failed + cmocka_run_group_tests(after, NULL, NULL);
}

#endif
