/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks disagree, fail to come or die: every other rank reports it, nobody waits for the dead,
 * and nothing stays behind. */
#include <dirent.h>
#include <errno.h>

#include "support/process_ranks.h"

typedef yoke_status (*mistake)(yoke_process_group *group, void *memory);

static yoke_status reduce_as(yoke_process_group *group, void *memory, yoke_reduce_call call) {
    return group->reduce(group, memory, &call);
}

static yoke_status other_count(yoke_process_group *group, void *memory) {
    size_t count = group->rank == 2 ? 101 : 100;
    return reduce_as(group, memory, (yoke_reduce_call){count, YOKE_ELEMENT_FLOAT32, YOKE_SUM, -1});
}

static yoke_status other_element(yoke_process_group *group, void *memory) {
    yoke_element element = group->rank == 2 ? YOKE_ELEMENT_INT64 : YOKE_ELEMENT_FLOAT32;
    return reduce_as(group, memory, (yoke_reduce_call){100, element, YOKE_SUM, -1});
}

static yoke_status other_reduction(yoke_process_group *group, void *memory) {
    yoke_reduction reduction = group->rank == 2 ? YOKE_MAX : YOKE_SUM;
    return reduce_as(group, memory, (yoke_reduce_call){100, YOKE_ELEMENT_FLOAT32, reduction, -1});
}

static yoke_status other_root(yoke_process_group *group, void *memory) {
    int root = group->rank == 2 ? 1 : 0;
    return reduce_as(group, memory, (yoke_reduce_call){100, YOKE_ELEMENT_FLOAT32, YOKE_SUM, root});
}

static yoke_status other_operation(yoke_process_group *group, void *memory) {
    if (group->rank == 2) return group->barrier(group);
    return reduce_as(group, memory, (yoke_reduce_call){100, YOKE_ELEMENT_FLOAT32, YOKE_SUM, -1});
}

static yoke_status other_start(yoke_process_group *group, void *memory) {
    if (group->rank == 2) return group->barrier(group);
    TRY(group->all_reduce_async(group, memory, 100, NULL));
    return group->progress(group, true);
}

static yoke_status other_bytes(yoke_process_group *group, void *memory) {
    (void)memory;
    void *more;
    return group->allocate(group, group->rank == 2 ? 8192 : 4096, &more);
}

static yoke_status private_start(yoke_process_group *group, void *memory) {
    float own[100] = {0};
    TRY(group->all_reduce_async(group, group->rank == 2 ? own : memory, 100, NULL));
    return group->progress(group, true);
}

typedef struct refusal {
    mistake mistake;
    const char *left, *right; /* in every rank's text */
} refusal;

static yoke_status make_mistake(yoke_process_group *group, const script *play) {
    const refusal *expected = play->detail;
    void *memory;
    TRY(group->allocate(group, 4096, &memory));
    yoke_status status = expected->mistake(group, memory);
    if (status != YOKE_ERROR_ARGUMENT)
        return FAIL(YOKE_ERROR_INTERNAL, "rank %d got %s", group->rank, yoke_status_name(status));
    yoke_error first = yoke_error_take(status);
    if (group->barrier(group) != status || strcmp(first.text, yoke_last_error()) != 0)
        return FAIL(YOKE_ERROR_INTERNAL, "the group forgot what broke it");
    return yoke_error_restore(&first);
}

static void every_rank_reports_a_difference_between_ranks(void **state) {
    (void)state;
    static const refusal refusals[] = {
        {other_count, "rank 0 called all_reduce of 100 float32, sum",
         "rank 2 called all_reduce of 101 float32, sum"},
        {other_element, "of 100 float32", "of 100 int64"},
        {other_reduction, "float32, sum", "float32, max"},
        {other_root, "rank 0 called reduce of 100 float32, sum, root 0", "root 1"},
        {other_operation, "called all_reduce of", "rank 2 called barrier"},
        {other_start, "called all_reduce_async of", "rank 2 called barrier"},
        {other_bytes, "allocate of 4096 bytes", "rank 2 called allocate of 8192 bytes"},
        {private_start, "rank 2 called all_reduce_async", "outside the memory of"},
    };
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        outcome *outcomes = play_threads(&(script){
            .world = 4, .timeout_ms = TIMEOUT_MS, .scene = make_mistake, .detail = &refusals[i]});
        for (int rank = 0; rank < 4; rank++) {
            assert_int_equal(outcomes[rank].error.status, YOKE_ERROR_ARGUMENT);
            assert_non_null(strstr(outcomes[rank].error.text, refusals[i].left));
            assert_non_null(strstr(outcomes[rank].error.text, refusals[i].right));
        }
        free(outcomes);
    }
}

/* Ranks 1 and 3 do not come; they go when the others, who come together, know. */
static yoke_status stay_away(yoke_process_group *group, const script *play) {
    atomic_int *moments = play->shared; /* both are there; both know */
    yoke_status status = YOKE_OK;
    if (group->rank % 2 == 0) {
        atomic_fetch_add(moments, 1);
        while (atomic_load(moments) < 2)
            usleep(1000);
        status = group->barrier(group);
        atomic_fetch_add(moments, 1);
    }
    while (atomic_load(moments) < 4)
        usleep(1000);
    return status;
}

static void the_deadline_names_those_who_did_not_come(void **state) {
    (void)state;
    atomic_int moments = 0;
    outcome *outcomes = play_threads(
        &(script){.world = 4, .timeout_ms = 1000, .scene = stay_away, .shared = &moments});
    char now[64];
    snprintf(now, sizeof now, ":%d, is running)", (int)getpid());
    for (int rank = 0; rank < 4; rank += 2) {
        assert_int_equal(outcomes[rank].error.status, YOKE_ERROR_TIMEOUT);
        assert_non_null(strstr(outcomes[rank].error.text, "rank 1 ("));
        assert_non_null(strstr(outcomes[rank].error.text, "rank 3 ("));
        assert_non_null(strstr(outcomes[rank].error.text, now));
        assert_null(strstr(outcomes[rank].error.text, "rank 2 ("));
    }
    free(outcomes);
}

static yoke_status leave_early(yoke_process_group *group, const script *play) {
    (void)play;
    return group->rank == 1 ? YOKE_OK : group->barrier(group);
}

static void a_rank_that_left_is_not_waited_for(void **state) {
    (void)state;
    uint64_t begin = yoke_now_ns();
    outcome *outcomes =
        play_threads(&(script){.world = 3, .timeout_ms = TIMEOUT_MS, .scene = leave_early});
    assert_true(yoke_now_ns() - begin < TIMEOUT_MS / 2 * UINT64_C(1000000));
    for (int rank = 0; rank < 3; rank += 2) {
        assert_int_equal(outcomes[rank].error.status, YOKE_ERROR_PEER);
        assert_non_null(strstr(outcomes[rank].error.text, "rank 1"));
        assert_non_null(strstr(outcomes[rank].error.text, "has left the group"));
    }
    free(outcomes);
}

/* Reduces for ever, or until somebody fails; counts those that have begun. */
static yoke_status reduce_for_ever(yoke_process_group *group, const script *play) {
    atomic_int *begun = play->shared;
    enum { COUNT = 100000 };
    void *memory;
    TRY(group->allocate(group, COUNT * sizeof(float), &memory));
    yoke_reduce_call call = {COUNT, YOKE_ELEMENT_FLOAT32, YOKE_MAX, -1};
    for (int round = 0;; round++) {
        if (round == 1) atomic_fetch_add(begun, 1);
        TRY(group->reduce(group, memory, &call));
        TRY(group->all_reduce_async(group, memory, COUNT, NULL));
        TRY(group->progress(group, true));
    }
}

static void hit_a_rank(int signal, int timeout_ms, const char *now) {
    atomic_int *begun = share_bytes(sizeof *begun);
    script play = {.world = 3, .timeout_ms = timeout_ms, .scene = reduce_for_ever, .shared = begun};
    outcome *outcomes = start_processes(&play);
    while (atomic_load(begun) < 3)
        usleep(1000);
    uint64_t begin = yoke_now_ns();
    kill(outcomes[1].pid, signal);
    /* The two others end; the one that is stopped has to be killed. */
    for (int ended = 0; ended < 2;) {
        int status;
        pid_t pid = wait(&status);
        assert_true(pid > 0);
        ended += pid != outcomes[1].pid;
    }
    assert_true(yoke_now_ns() - begin < TIMEOUT_MS / 2 * UINT64_C(1000000));
    if (signal == SIGSTOP) {
        kill(outcomes[1].pid, SIGKILL);
        assert_int_equal(join_processes(1), 1);
    }
    char expected[64];
    snprintf(expected, sizeof expected, ":%d, %s)", (int)outcomes[1].pid, now);
    for (int rank = 0; rank < 3; rank += 2) {
        assert_int_equal(outcomes[rank].error.status,
                         signal == SIGSTOP ? YOKE_ERROR_TIMEOUT : YOKE_ERROR_PEER);
        if (strstr(outcomes[rank].error.text, expected) == NULL ||
            strstr(outcomes[rank].error.text, "rank 1 (") == NULL)
            fail_msg("rank %d: %s", rank, outcomes[rank].error.text);
    }
    munmap(outcomes, RANKS * sizeof *outcomes);
    munmap(begun, sizeof *begun);
}

static void a_killed_rank_is_noticed_long_before_the_deadline(void **state) {
    (void)state;
    hit_a_rank(SIGKILL, TIMEOUT_MS, "has ended");
}

static void a_stopped_rank_is_named_at_the_deadline(void **state) {
    (void)state;
    hit_a_rank(SIGSTOP, 2000, "is stopped");
}

static yoke_status two_machines(void) {
    yoke_peer peers[2] = {{.host = "a"}, {.host = "b"}};
    yoke_process_group_options options = {
        .struct_size = sizeof options,
        .rank = &(yoke_rank_info){.struct_size = sizeof(yoke_rank_info), .world = 2},
        .timeout_ms = 100};
    yoke_transport_request request = {.options = &options, .peers = peers};
    yoke_process_group *group;
    yoke_status status = yoke_shared_memory_group(&group, &request);
    assert_null(group);
    return status;
}

static void ranks_of_two_machines_are_refused(void **state) {
    (void)state;
    assert_int_equal(two_machines(), YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "rank 0 is on a, rank 1 on b"));
}

static yoke_status reduce_once(yoke_process_group *group, const script *play) {
    (void)play;
    void *memory;
    TRY(group->allocate(group, 400000, &memory));
    yoke_reduce_call call = {100000, YOKE_ELEMENT_FLOAT32, YOKE_SUM, -1};
    return group->reduce(group, memory, &call);
}

/* Rank 0 met the others and went. */
static void a_rank_0_that_never_creates_the_memory_is_named(void **state) {
    (void)state;
    yoke_store *keeper;
    yoke_peer peers[2] = {{.host = "here"}, {.host = "here"}};
    char address[64];
    name_store(address, sizeof address);
    const yoke_store_options served = {.address = address, .serve = true, .timeout_ms = 100};
    assert_int_equal(yoke_store_create(&keeper, &served), YOKE_OK);
    const yoke_rank_info rank = {.struct_size = sizeof rank, .rank = 1, .world = 2};
    const yoke_process_group_options options = {
        .struct_size = sizeof options, .rank = &rank, .timeout_ms = 100};
    const yoke_transport_request request = {.options = &options, .store = keeper, .peers = peers};
    yoke_process_group *group = NULL;
    assert_int_equal(yoke_shared_memory_group(&group, &request), YOKE_ERROR_TIMEOUT);
    assert_non_null(
        strstr(yoke_last_error(), "rank 0 did not set \"shared_memory\" within 100 ms"));
    yoke_store_destroy(keeper);
}

/* Without those of Open MPI's ranks, which other tests start. A folder that is not here has none.
 */
static int count_entries(const char *path) {
    int count = 0;
    DIR *folder = opendir(path);
    if (folder == NULL && errno == ENOENT) return 0;
    assert_non_null(folder);
    for (const struct dirent *each; (each = readdir(folder)) != NULL;)
        count += strncmp(each->d_name, "vader_segment.", 14) != 0;
    closedir(folder);
    return count;
}

/* What other programs of the machine put there goes away. */
static void expect_entries(const char *path, int most) {
    int entries = count_entries(path);
    for (int try = 0; try < 50 && entries > most; try++) {
        usleep(100000);
        entries = count_entries(path);
    }
    assert_true(entries <= most);
}

/* Descriptors and mappings of this process, names of the machine: as before. */
static void nothing_is_left_behind(void **state) {
    (void)state;
    int names = count_entries("/dev/shm"), descriptors = count_entries("/proc/self/fd");
    script play = {.world = 3, .timeout_ms = TIMEOUT_MS, .scene = reduce_once};
    free(play_threads(&play));
    play.scene = leave_early;
    free(play_threads(&play));
    hit_a_rank(SIGKILL, TIMEOUT_MS, "has ended");
    expect_entries("/dev/shm", names);
    assert_int_equal(count_entries("/proc/self/fd"), descriptors);
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    for (char line[512]; fgets(line, sizeof line, maps) != NULL;)
        assert_null(strstr(line, "memfd:yoke"));
    fclose(maps);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_reports_a_difference_between_ranks),
        cmocka_unit_test(the_deadline_names_those_who_did_not_come),
        cmocka_unit_test(a_rank_that_left_is_not_waited_for),
        cmocka_unit_test(a_killed_rank_is_noticed_long_before_the_deadline),
        cmocka_unit_test(a_stopped_rank_is_named_at_the_deadline),
        cmocka_unit_test(ranks_of_two_machines_are_refused),
        cmocka_unit_test(a_rank_0_that_never_creates_the_memory_is_named),
        cmocka_unit_test(nothing_is_left_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
