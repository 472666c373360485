/* SPDX-License-Identifier: Apache-2.0 */
/* Either all ranks meet, or every rank learns why not, in time. Ranks are threads, each with its
 * own store. */
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "distributed/rendezvous/rendezvous.h"

#define PATIENT_MS 600000
#define SOON_MS 2000 /* a busy machine starts all ranks in it */
#define RANKS_LIMIT 8

/* The keeper is apart from the ranks, so that any rank may be the one that fails. */
static yoke_store *keeper;
static char address[128], folder[64];

typedef struct member {
    int rank, world, delay_ms, timeout_ms;
    const char *token, *stops_before; /* it sets this key */
    pthread_t thread;
    yoke_peer peers[RANKS_LIMIT];
    yoke_error error;
} member;

static void keep(bool in_folder, const char *token) {
    yoke_store_options options = {.address = "tcp://127.0.0.1:0",
                                  .serve = true,
                                  .run_id = "run",
                                  .token = token,
                                  .timeout_ms = PATIENT_MS};
    if (in_folder) {
        strcpy(folder, "/tmp/yoke-rendezvous-XXXXXX");
        assert_non_null(mkdtemp(folder));
        snprintf(address, sizeof address, "file://%s", folder);
        options.address = address;
    }
    if (yoke_store_create(&keeper, &options) != YOKE_OK) fail_msg("%s", yoke_last_error());
    if (!in_folder)
        snprintf(address, sizeof address, "tcp://127.0.0.1:%d", yoke_store_port(keeper));
}

/* A stopped rank writes nothing more. */

static _Thread_local const char *stops_before;
static _Thread_local yoke_status (*real_set)(yoke_store *store, const char *key, const void *value,
                                             size_t bytes);

static yoke_status set_until_stopped(yoke_store *store, const char *key, const void *value,
                                     size_t bytes) {
    if (strstr(key, stops_before) != NULL) stops_before = "";
    if (*stops_before == '\0') return FAIL(YOKE_ERROR_INTERNAL, "stopped");
    return real_set(store, key, value, bytes);
}

static void stop_before(yoke_store *store, const char *key) {
    stops_before = key;
    real_set = store->set;
    store->set = set_until_stopped;
}

static yoke_status attend(member *one, yoke_store *store) {
    yoke_rank_info info = {.rank = one->rank, .world = one->world, .local_rank = 10 + one->rank};
    return yoke_rendezvous(store, &info, one->peers, one->timeout_ms);
}

static void *run_member(void *context) {
    member *one = context;
    yoke_store *store = NULL;
    yoke_store_options options = {
        .address = address, .run_id = "run", .token = one->token, .timeout_ms = PATIENT_MS};
    if (one->delay_ms > 0) poll(NULL, 0, one->delay_ms);
    yoke_status status = yoke_store_create(&store, &options);
    if (status == YOKE_OK && one->stops_before != NULL) stop_before(store, one->stops_before);
    if (status == YOKE_OK) status = attend(one, store);
    one->error = yoke_error_take(status);
    yoke_store_destroy(store);
    return NULL;
}

static void run_members(member *members, int count) {
    for (int i = 0; i < count; i++) {
        if (members[i].timeout_ms == 0) members[i].timeout_ms = PATIENT_MS;
        assert_int_equal(pthread_create(&members[i].thread, NULL, run_member, &members[i]), 0);
    }
    for (int i = 0; i < count; i++)
        pthread_join(members[i].thread, NULL);
}

static void assert_says(const member *one, yoke_status status, const char *words) {
    if (one->error.status != status || strstr(one->error.text, words) == NULL)
        fail_msg("rank %d: %s \"%s\" is not %s with \"%s\"", one->rank,
                 yoke_status_name(one->error.status), one->error.text, yoke_status_name(status),
                 words);
}

static void assert_met(const member *members, int count) {
    char host[64] = "";
    gethostname(host, sizeof host - 1);
    for (int i = 0; i < count; i++) {
        if (members[i].error.status != YOKE_OK) fail_msg("%s", members[i].error.text);
        for (int rank = 0; rank < count; rank++) {
            assert_string_equal(members[i].peers[rank].host, host);
            assert_int_equal(members[i].peers[rank].pid, getpid());
            assert_int_equal(members[i].peers[rank].local_rank, 10 + rank);
        }
    }
}

static void ranks_meet_and_know_each_other(void **state) {
    (void)state;
    const int worlds[] = {1, 2, 7};
    for (int i = 0; i < 6; i++) {
        int world = worlds[i / 2];
        member members[RANKS_LIMIT] = {0};
        keep(i % 2 == 1, NULL);
        for (int rank = 0; rank < world; rank++)
            members[rank] = (member){.rank = rank, .world = world};
        run_members(members, world);
        yoke_store_destroy(keeper);
        assert_met(members, world);
        if (i % 2 == 1) assert_int_equal(access(folder, F_OK), -1);
    }
}

static void a_late_rank_is_waited_for(void **state) {
    (void)state;
    member members[3] = {
        {.world = 3, .delay_ms = 150}, {.rank = 1, .world = 3}, {.rank = 2, .world = 3}};
    keep(false, NULL);
    run_members(members, 3);
    yoke_store_destroy(keeper);
    assert_met(members, 3);
}

/* Both sides, and who has nothing to do with it, read both names at once. */
static void every_rank_reports_a_rank_that_comes_twice(void **state) {
    (void)state;
    char twice[200], host[64] = "";
    gethostname(host, sizeof host - 1);
    snprintf(twice, sizeof twice, "two processes claim rank 1: %s:%d and %s:%d", host,
             (int)getpid(), host, (int)getpid());
    for (int i = 0; i < 2; i++) {
        member members[3] = {{.world = 3}, {.rank = 1, .world = 3}, {.rank = 1, .world = 3}};
        keep(i == 1, NULL);
        uint64_t begin = yoke_now_ns();
        run_members(members, 3);
        assert_true(yoke_now_ns() - begin < (uint64_t)PATIENT_MS * 500000u);
        yoke_store_destroy(keeper);
        for (int k = 0; k < 3; k++)
            assert_says(&members[k], YOKE_ERROR_PEER, twice);
    }
}

static void a_rank_that_comes_again_after_the_meeting_is_refused_alone(void **state) {
    (void)state;
    member members[2] = {{.world = 2}, {.rank = 1, .world = 2}}, again = {.rank = 1, .world = 2};
    keep(false, NULL);
    run_members(members, 2);
    run_members(&again, 1);
    yoke_store_destroy(keeper);
    assert_met(members, 2);
    assert_says(&again, YOKE_ERROR_PEER, "two processes claim rank 1");
}

static void a_world_that_never_fills_names_the_missing(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        /* Rank 4 would be more patient: the first to give up speaks for all. */
        member members[3] = {{.world = 7, .timeout_ms = SOON_MS},
                             {.rank = 2, .world = 7, .timeout_ms = SOON_MS},
                             {.rank = 4, .world = 7}};
        keep(i == 1, NULL);
        uint64_t begin = yoke_now_ns();
        run_members(members, 3);
        assert_true(yoke_now_ns() - begin < (uint64_t)PATIENT_MS * 500000u);
        yoke_store_destroy(keeper);
        for (int k = 0; k < 3; k++)
            assert_says(&members[k], YOKE_ERROR_TIMEOUT,
                        "4 of 7 ranks did not join within 2000 ms: ranks 1, 3, 5, 6;");
    }
}

static void one_missing_rank_is_named_alone(void **state) {
    (void)state;
    member one = {.rank = 1, .world = 2, .timeout_ms = 50};
    keep(false, NULL);
    run_members(&one, 1);
    yoke_store_destroy(keeper);
    assert_says(&one, YOKE_ERROR_TIMEOUT, "rank 0; were they started?");
}

/* Every rank claimed its number, so none is missing from the store. */
static void a_rank_0_that_stops_once_all_have_joined_is_named(void **state) {
    (void)state;
    static const char *const moments[] = {"/peers/", "/outcome"};
    for (int i = 0; i < 2; i++) {
        member members[3] = {{.world = 3, .stops_before = moments[i]},
                             {.rank = 1, .world = 3, .timeout_ms = SOON_MS},
                             {.rank = 2, .world = 3, .timeout_ms = SOON_MS}};
        keep(i == 1, NULL);
        run_members(members, 3);
        yoke_store_destroy(keeper);
        for (int k = 1; k < 3; k++)
            assert_says(&members[k], YOKE_ERROR_TIMEOUT,
                        "all 3 ranks joined, but rank 0 did not end the rendezvous within 2000 ms");
    }
}

/* Serves the store in a process of its own, and writes where. */
static pid_t start_keeper(void) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        keep(false, NULL);
        if (write(ends[1], address, sizeof address) != sizeof address) _exit(1);
        for (;;)
            pause();
    }
    assert_true(child > 0);
    assert_int_equal(read(ends[0], address, sizeof address), sizeof address);
    close(ends[0]);
    close(ends[1]);
    return child;
}

static void a_rank_0_that_is_stopped_with_its_store_is_named(void **state) {
    (void)state;
    member one = {.rank = 1, .world = 2, .timeout_ms = SOON_MS};
    pid_t rank_0 = start_keeper();
    uint64_t begin = yoke_now_ns();
    assert_int_equal(pthread_create(&one.thread, NULL, run_member, &one), 0);
    poll(NULL, 0, SOON_MS / 2); /* it waits for the outcome */
    assert_int_equal(kill(rank_0, SIGSTOP), 0);
    pthread_join(one.thread, NULL);
    assert_true(yoke_now_ns() - begin < (uint64_t)PATIENT_MS * 500000u);
    kill(rank_0, SIGKILL);
    waitpid(rank_0, NULL, 0);
    assert_says(&one, YOKE_ERROR_TIMEOUT,
                "rank 0 did not end the rendezvous within 2000 ms, and the store that it serves "
                "does not answer");
}

static void many_missing_ranks_are_counted(void **state) {
    (void)state;
    keep(false, NULL);
    yoke_rank_info info = {.rank = 3, .world = 1000};
    yoke_peer *peers = calloc(1000, sizeof *peers);
    assert_non_null(peers);
    assert_int_equal(yoke_rendezvous(keeper, &info, peers, 50), YOKE_ERROR_TIMEOUT);
    assert_non_null(strstr(yoke_last_error(), "999 of 1000 ranks"));
    assert_non_null(strstr(yoke_last_error(), "0, 1, 2, 4, "));
    assert_non_null(strstr(yoke_last_error(), "16 and 983 more"));
    free(peers);
    yoke_store_destroy(keeper);
}

static void different_worlds_are_named_with_their_ranks(void **state) {
    (void)state;
    member members[2] = {{.world = 2}, {.rank = 2, .world = 3, .delay_ms = 50}};
    keep(false, NULL);
    run_members(members, 2);
    yoke_store_destroy(keeper);
    for (int i = 0; i < 2; i++) {
        assert_says(&members[i], YOKE_ERROR_PEER, "has a world of 2");
        assert_says(&members[i], YOKE_ERROR_PEER, "rank 2 (");
        assert_says(&members[i], YOKE_ERROR_PEER, "one of 3");
    }
}

static void a_rank_outside_the_world_is_refused(void **state) {
    (void)state;
    const int pairs[][2] = {{-1, 2}, {2, 2}, {0, 0}};
    keep(false, NULL);
    for (int i = 0; i < 3; i++) {
        yoke_rank_info info = {.rank = pairs[i][0], .world = pairs[i][1]};
        yoke_peer peer;
        assert_int_equal(yoke_rendezvous(keeper, &info, &peer, SOON_MS), YOKE_ERROR_ARGUMENT);
        assert_non_null(strstr(yoke_last_error(), "world"));
    }
    yoke_store_destroy(keeper);
}

static void a_wrong_token_is_refused_and_the_others_meet(void **state) {
    (void)state;
    member members[3] = {{.world = 2, .token = "secret", .delay_ms = 50},
                         {.rank = 1, .world = 2, .token = "secret", .delay_ms = 50},
                         {.rank = 1, .world = 2, .token = "guessed"}};
    keep(false, "secret");
    run_members(members, 3);
    yoke_store_destroy(keeper);
    assert_met(members, 2);
    assert_says(&members[2], YOKE_ERROR_ARGUMENT, "token");
}

static void *destroy_keeper(void *unused) {
    (void)unused;
    poll(NULL, 0, 50);
    yoke_store_destroy(keeper);
    return NULL;
}

static void a_keeper_that_leaves_ends_the_meeting(void **state) {
    (void)state;
    member one = {.rank = 1, .world = 2};
    pthread_t thread;
    keep(false, NULL);
    assert_int_equal(pthread_create(&thread, NULL, destroy_keeper, NULL), 0);
    run_members(&one, 1);
    pthread_join(thread, NULL);
    assert_says(&one, YOKE_ERROR_PEER, "has left");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_meet_and_know_each_other),
        cmocka_unit_test(a_late_rank_is_waited_for),
        cmocka_unit_test(every_rank_reports_a_rank_that_comes_twice),
        cmocka_unit_test(a_rank_that_comes_again_after_the_meeting_is_refused_alone),
        cmocka_unit_test(a_world_that_never_fills_names_the_missing),
        cmocka_unit_test(one_missing_rank_is_named_alone),
        cmocka_unit_test(a_rank_0_that_stops_once_all_have_joined_is_named),
        cmocka_unit_test(a_rank_0_that_is_stopped_with_its_store_is_named),
        cmocka_unit_test(many_missing_ranks_are_counted),
        cmocka_unit_test(different_worlds_are_named_with_their_ranks),
        cmocka_unit_test(a_rank_outside_the_world_is_refused),
        cmocka_unit_test(a_wrong_token_is_refused_and_the_others_meet),
        cmocka_unit_test(a_keeper_that_leaves_ends_the_meeting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
