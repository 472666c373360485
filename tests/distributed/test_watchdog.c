/* SPDX-License-Identifier: Apache-2.0 */
/* At the deadline the watchdog names who is missing. The other ranks have what a test gives them:
 * a watchdog of their own that says what they have reached, and a process that is stopped. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "distributed/watchdog.h"

enum { WORLD = 3, SOON_MS = 300, PATIENT_MS = 600000 };

typedef struct ranks {
    yoke_store *store;
    yoke_process_group groups[WORLD];
    yoke_watchdog watchdogs[WORLD];
    yoke_peer peers[WORLD];
} ranks;

/* Rank 0's deadline comes soon. All are this process. */
static void make_ranks(ranks *made) {
    char address[64];
    memset(made, 0, sizeof *made);
    snprintf(address, sizeof address, "file:///tmp/yoke-watchdog-%d", (int)getpid());
    const yoke_store_options options = {
        .address = address, .serve = true, .timeout_ms = PATIENT_MS};
    assert_int_equal(yoke_store_create(&made->store, &options), YOKE_OK);
    for (int rank = 0; rank < WORLD; rank++) {
        strcpy(made->peers[rank].host, "here");
        made->peers[rank].pid = (int)getpid();
        made->groups[rank] = (yoke_process_group){
            .rank = rank, .world = WORLD, .timeout_ms = rank == 0 ? SOON_MS : PATIENT_MS};
        made->watchdogs[rank] = (yoke_watchdog){.name = "test",
                                                .group = &made->groups[rank],
                                                .store = made->store,
                                                .peers = made->peers};
    }
}

/* The rank waits in its first operation, until the store has that. */
static void reach(yoke_watchdog *watchdog) {
    yoke_watchdog_begin(watchdog, CALL_BARRIER);
    while (watchdog->published < watchdog->operation)
        assert_int_equal(yoke_watchdog_wait(watchdog), YOKE_OK);
}

static void expect_overdue(yoke_watchdog *watchdog, const char *words) {
    yoke_status status = YOKE_OK;
    yoke_watchdog_begin(watchdog, CALL_BARRIER);
    while (status == YOKE_OK)
        status = yoke_watchdog_wait(watchdog);
    assert_int_equal(status, YOKE_ERROR_TIMEOUT);
    assert_string_equal(yoke_last_error(), words);
}

static void a_rank_that_has_not_come_is_named(void **state) {
    (void)state;
    ranks made;
    char words[128];
    make_ranks(&made);
    reach(&made.watchdogs[1]);
    snprintf(words, sizeof words, "barrier: rank 0 waited 300 ms for rank 2 (here:%d, is running)",
             (int)getpid());
    expect_overdue(&made.watchdogs[0], words);
    yoke_store_destroy(made.store);
}

static void a_rank_that_stopped_inside_the_operation_is_named(void **state) {
    (void)state;
    ranks made;
    char words[128];
    make_ranks(&made);
    pid_t stopped = fork();
    if (stopped == 0) {
        pause();
        _exit(0);
    }
    assert_true(stopped > 0);
    assert_int_equal(kill(stopped, SIGSTOP), 0);
    assert_int_equal(waitpid(stopped, NULL, WUNTRACED), stopped);
    made.peers[1].pid = stopped;
    reach(&made.watchdogs[1]);
    reach(&made.watchdogs[2]);
    snprintf(words, sizeof words,
             "barrier: rank 0 waited 300 ms for rank 1 (here:%d, is stopped); all ranks have "
             "reached it",
             (int)stopped);
    expect_overdue(&made.watchdogs[0], words);
    kill(stopped, SIGKILL);
    waitpid(stopped, NULL, 0);
    yoke_store_destroy(made.store);
}

static void an_operation_that_hangs_by_itself_accuses_nobody(void **state) {
    (void)state;
    ranks made;
    make_ranks(&made);
    reach(&made.watchdogs[1]);
    reach(&made.watchdogs[2]);
    expect_overdue(
        &made.watchdogs[0],
        "barrier: rank 0 waited 300 ms for the others to finish; all ranks have reached it");
    yoke_store_destroy(made.store);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_has_not_come_is_named),
        cmocka_unit_test(a_rank_that_stopped_inside_the_operation_is_named),
        cmocka_unit_test(an_operation_that_hangs_by_itself_accuses_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
