/* SPDX-License-Identifier: Apache-2.0 */
/* Only a rank that waits long reads the store: an operation that all ranks reach in time costs
 * nothing here. */
#include "distributed/watchdog.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "distributed/process_state.h"

#define SPIN_NS 1000000u     /* how long a wait only polls; then it sleeps between two polls */
#define READ_NS 200000000u   /* between two reads of the store */
#define ENDED_NS 1000000000u /* how long a message of a rank that has ended may be on its way */
#define OTHERS_NS 400000000u /* beyond the deadline */
#define PAUSE_US 50
#define STORE_MS 2000

typedef struct report { /* in the store: "<status> <text>" */
    char line[YOKE_ERROR_TEXT_BYTES + 16];
} report;

void yoke_watchdog_begin(yoke_watchdog *watchdog, yoke_call_kind kind) {
    yoke_watchdog_await(watchdog, kind, ++watchdog->operation);
}

void yoke_watchdog_await(yoke_watchdog *watchdog, yoke_call_kind kind, int64_t operation) {
    watchdog->kind = kind;
    watchdog->awaited = operation;
    watchdog->seen_ns = yoke_now_ns();
    watchdog->waited_ns = watchdog->read_ns = watchdog->ended_ns = 0;
}

static void name_key(const yoke_watchdog *watchdog, const char *what, int rank, char key[64]) {
    snprintf(key, 64, "%s/%s/%d", watchdog->name, what, rank);
}

/* The first failure of any rank; false: there is none. */
static bool read_failure(const yoke_watchdog *watchdog, yoke_error *error) {
    report found = {0};
    char key[64], *text;
    size_t bytes;
    name_key(watchdog, "failure", 0, key);
    int before = yoke_store_timeout(watchdog->store, 0);
    yoke_status status =
        yoke_store_wait(watchdog->store, key, found.line, sizeof found.line - 1, &bytes);
    yoke_store_timeout(watchdog->store, before);
    if (status != YOKE_OK) return false;
    error->status = (yoke_status)strtol(found.line, &text, 10);
    snprintf(error->text, sizeof error->text, "%s", text + (*text == ' '));
    return error->status != YOKE_OK;
}

yoke_status yoke_watchdog_fail(yoke_watchdog *watchdog, yoke_status status) {
    yoke_error own = yoke_error_take(status), first;
    report own_report;
    char key[64];
    name_key(watchdog, "failure", 0, key);
    int length = snprintf(own_report.line, sizeof own_report.line, "%d %s", (int)status, own.text);
    int before = yoke_store_timeout(watchdog->store, STORE_MS);
    yoke_store_set(watchdog->store, key, own_report.line, (size_t)length);
    yoke_store_timeout(watchdog->store, before);
    return yoke_error_restore(read_failure(watchdog, &first) ? &first : &own);
}

/* The missing ranks. */

static uint64_t timeout_ns(const yoke_watchdog *watchdog) {
    return (uint64_t)watchdog->group->timeout_ms * 1000000u;
}

static bool is_local(const yoke_watchdog *watchdog, int rank) {
    return strcmp(watchdog->peers[rank].host, watchdog->peers[watchdog->group->rank].host) == 0;
}

static yoke_process_state state_of(const yoke_watchdog *watchdog, int rank) {
    return is_local(watchdog, rank) ? yoke_process_state_of(watchdog->peers[rank].pid, 0)
                                    : YOKE_PROCESS_RUNNING;
}

static const char *describe_state(const yoke_watchdog *watchdog, int rank) {
    static const char *const words[] = {[YOKE_PROCESS_RUNNING] = "is running",
                                        [YOKE_PROCESS_STOPPED] = "is stopped",
                                        [YOKE_PROCESS_ENDED] = "has ended"};
    return is_local(watchdog, rank) ? words[state_of(watchdog, rank)] : "on another machine";
}

/* The number of a rank's operation, as the store has it, after adding `more`. */
static yoke_status add_operations(const yoke_watchdog *watchdog, int rank, int64_t more,
                                  int64_t *operation) {
    char key[64];
    name_key(watchdog, "operation", rank, key);
    int before = yoke_store_timeout(watchdog->store, STORE_MS);
    yoke_status status = yoke_store_add(watchdog->store, key, more, operation);
    yoke_store_timeout(watchdog->store, before);
    if (status == YOKE_OK) return YOKE_OK;
    yoke_error cause = yoke_error_take(status);
    return FAIL(YOKE_ERROR_PEER, "%s: rank %d cannot use the store of rank 0 (%s:%d): %s",
                yoke_call_name(watchdog->kind), watchdog->group->rank, watchdog->peers[0].host,
                watchdog->peers[0].pid, cause.text);
}

/* "rank 1 (host:1234, is stopped), rank 3 (...)", cut at the end. */
typedef struct rank_list {
    char text[400];
    size_t length;
} rank_list;

static void add_rank(const yoke_watchdog *watchdog, int rank, rank_list *list) {
    size_t left = sizeof list->text - list->length;
    int length = snprintf(list->text + list->length, left, "%srank %d (%s:%d, %s)",
                          list->length == 0 ? "" : ", ", rank, watchdog->peers[rank].host,
                          watchdog->peers[rank].pid, describe_state(watchdog, rank));
    list->length += (size_t)length < left ? (size_t)length : left - 1;
}

/* A rank may stop after it has reached the operation and before it has sent its part. The ranks of
 * its machine see that, so the others leave them the time to say so first. */
static yoke_status fail_overdue(yoke_watchdog *watchdog) {
    rank_list late = {.length = 0};
    for (int rank = 0; rank < watchdog->group->world; rank++) {
        int64_t operation;
        if (rank == watchdog->group->rank) continue;
        TRY(add_operations(watchdog, rank, 0, &operation));
        if (operation < watchdog->awaited) add_rank(watchdog, rank, &late);
    }
    bool all_here = late.length == 0;
    if (all_here) {
        for (int rank = 0; rank < watchdog->group->world; rank++)
            if (state_of(watchdog, rank) == YOKE_PROCESS_STOPPED) add_rank(watchdog, rank, &late);
    }
    if (late.length == 0 && watchdog->waited_ns < timeout_ns(watchdog) + OTHERS_NS) return YOKE_OK;
    return FAIL(YOKE_ERROR_TIMEOUT, "%s: rank %d waited %d ms for %s%s",
                yoke_call_name(watchdog->kind), watchdog->group->rank, watchdog->group->timeout_ms,
                late.length > 0 ? late.text : "the others to finish",
                all_here ? "; all ranks have reached it" : "");
}

/* A rank of this machine whose process has ended; -1: none. */
static int find_ended(const yoke_watchdog *watchdog) {
    for (int rank = 0; rank < watchdog->group->world; rank++) {
        if (rank != watchdog->group->rank && state_of(watchdog, rank) == YOKE_PROCESS_ENDED)
            return rank;
    }
    return -1;
}

/* Whether a wait goes on past its deadline: rank 0 runs, and has not come so far. */
static yoke_status check_patience(const yoke_watchdog *watchdog, bool *patient) {
    int64_t operation;
    *patient = watchdog->group->patient && is_local(watchdog, 0) &&
               watchdog->waited_ns < YOKE_PATIENCE * timeout_ns(watchdog) &&
               state_of(watchdog, 0) == YOKE_PROCESS_RUNNING;
    if (!*patient) return YOKE_OK;
    TRY(add_operations(watchdog, 0, 0, &operation));
    *patient = operation < watchdog->awaited;
    return YOKE_OK;
}

static yoke_status check_deadline(yoke_watchdog *watchdog) {
    bool patient;
    if (watchdog->waited_ns < timeout_ns(watchdog)) return YOKE_OK;
    TRY(check_patience(watchdog, &patient));
    return patient ? YOKE_OK : fail_overdue(watchdog);
}

static yoke_status check_peers(yoke_watchdog *watchdog) {
    yoke_error error;
    watchdog->read_ns = watchdog->waited_ns;
    if (read_failure(watchdog, &error)) return yoke_error_restore(&error);
    int64_t sum, more = watchdog->operation - watchdog->published;
    if (more != 0) TRY(add_operations(watchdog, watchdog->group->rank, more, &sum));
    watchdog->published = watchdog->operation;
    TRY(check_deadline(watchdog));
    int ended = find_ended(watchdog);
    if (ended < 0) return YOKE_OK;
    if (watchdog->ended_ns == 0) watchdog->ended_ns = watchdog->waited_ns;
    if (watchdog->waited_ns - watchdog->ended_ns < ENDED_NS) return YOKE_OK;
    return FAIL(YOKE_ERROR_PEER, "%s: rank %d cannot go on without rank %d (%s:%d, has ended)",
                yoke_call_name(watchdog->kind), watchdog->group->rank, ended,
                watchdog->peers[ended].host, watchdog->peers[ended].pid);
}

yoke_status yoke_watchdog_wait(yoke_watchdog *watchdog) {
    uint64_t now = yoke_now_ns(), passed = now - watchdog->seen_ns;
    uint64_t deadline = timeout_ns(watchdog);
    watchdog->seen_ns = now;
    /* Leave out the time in which this process itself was stopped: the peers are not late. */
    watchdog->waited_ns += passed < READ_NS ? passed : READ_NS;
    bool due = watchdog->waited_ns - watchdog->read_ns >= READ_NS ||
               (watchdog->waited_ns >= deadline && watchdog->read_ns < deadline);
    yoke_status status = due ? check_peers(watchdog) : YOKE_OK;
    if (status != YOKE_OK) return yoke_watchdog_fail(watchdog, status);
    if (watchdog->waited_ns < SPIN_NS)
        sched_yield();
    else
        usleep(PAUSE_US);
    return YOKE_OK;
}
