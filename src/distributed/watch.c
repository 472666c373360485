/* The store is asked only by those who wait long: an operation that all come to in time costs
 * nothing here. */
#include "distributed/watch.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "distributed/shm_peer.h"

#define SPIN_NS 1000000000u /* then the core is left alone between two looks */
#define LOOK_NS 200000000u  /* between two questions to the store */
#define LOST_NS 1000000000u /* what a rank that has ended sent before may still be on its way */
#define PAUSE_US 50
#define STORE_MS 2000

typedef struct report { /* the store's: "<status> <text>" */
    char line[YOKE_ERROR_TEXT_BYTES + 16];
} report;

void yoke_watch_begin(yoke_watch *watch, yoke_call_kind kind) {
    yoke_watch_await(watch, kind, ++watch->operation);
}

void yoke_watch_await(yoke_watch *watch, yoke_call_kind kind, int64_t operation) {
    watch->kind = kind;
    watch->awaited = operation;
    watch->seen_ns = yoke_now_ns();
    watch->waited_ns = watch->looked_ns = watch->lost_ns = 0;
}

static void name_key(const yoke_watch *watch, const char *what, int rank, char key[64]) {
    snprintf(key, 64, "%s/%s/%d", watch->name, what, rank);
}

/* The failure that was told first: false when there is none. */
static bool read_failure(const yoke_watch *watch, yoke_error *error) {
    report found = {0};
    char key[64], *text;
    size_t bytes;
    name_key(watch, "failure", 0, key);
    int before = yoke_store_timeout(watch->store, 0);
    yoke_status status =
        yoke_store_wait(watch->store, key, found.line, sizeof found.line - 1, &bytes);
    yoke_store_timeout(watch->store, before);
    if (status != YOKE_OK) return false;
    error->status = (yoke_status)strtol(found.line, &text, 10);
    snprintf(error->text, sizeof error->text, "%s", text + (*text == ' '));
    return error->status != YOKE_OK;
}

yoke_status yoke_watch_break(yoke_watch *watch, yoke_status status) {
    yoke_error own = yoke_error_take(status), first;
    report told;
    char key[64];
    name_key(watch, "failure", 0, key);
    int length = snprintf(told.line, sizeof told.line, "%d %s", (int)status, own.text);
    int before = yoke_store_timeout(watch->store, STORE_MS);
    yoke_store_set(watch->store, key, told.line, (size_t)length);
    yoke_store_timeout(watch->store, before);
    return yoke_error_restore(read_failure(watch, &first) ? &first : &own);
}

/* Who is missing. */

static bool is_near(const yoke_watch *watch, int rank) {
    return strcmp(watch->peers[rank].host, watch->peers[watch->group->rank].host) == 0;
}

static shm_life life_of(const yoke_watch *watch, int rank) {
    return is_near(watch, rank) ? shm_life_of(watch->peers[rank].pid, 0) : SHM_RUNNING;
}

static const char *whereabouts(const yoke_watch *watch, int rank) {
    static const char *const words[] = {
        [SHM_RUNNING] = "is running", [SHM_STOPPED] = "is stopped", [SHM_GONE] = "has ended"};
    return is_near(watch, rank) ? words[life_of(watch, rank)] : "on another machine";
}

/* How far a rank says it has come; `more` is what this rank adds to its own number. */
static yoke_status count(const yoke_watch *watch, int rank, int64_t more, int64_t *operation) {
    char key[64];
    name_key(watch, "operation", rank, key);
    int before = yoke_store_timeout(watch->store, STORE_MS);
    yoke_status status = yoke_store_add(watch->store, key, more, operation);
    yoke_store_timeout(watch->store, before);
    if (status == YOKE_OK) return YOKE_OK;
    yoke_error cause = yoke_error_take(status);
    return FAIL(YOKE_ERROR_PEER, "%s: rank %d has lost the store, which rank 0 (%s:%d) keeps: %s",
                yoke_call_name(watch->kind), watch->group->rank, watch->peers[0].host,
                watch->peers[0].pid, cause.text);
}

static yoke_status tell_operation(yoke_watch *watch) {
    int64_t sum;
    if (watch->told == watch->operation) return YOKE_OK;
    TRY(count(watch, watch->group->rank, watch->operation - watch->told, &sum));
    watch->told = watch->operation;
    return YOKE_OK;
}

/* "rank 1 (host:1234, is stopped), rank 3 (...)" */
static yoke_status list_missing(const yoke_watch *watch, char *text, size_t size) {
    size_t length = 0;
    text[0] = '\0';
    for (int rank = 0; rank < watch->group->world && length < size; rank++) {
        int64_t operation;
        if (rank == watch->group->rank) continue;
        TRY(count(watch, rank, 0, &operation));
        if (operation >= watch->awaited) continue;
        length += (size_t)snprintf(text + length, size - length, "%srank %d (%s:%d, %s)",
                                   length == 0 ? "" : ", ", rank, watch->peers[rank].host,
                                   watch->peers[rank].pid, whereabouts(watch, rank));
    }
    return YOKE_OK;
}

static yoke_status tell_overdue(yoke_watch *watch) {
    char missing[400];
    TRY(list_missing(watch, missing, sizeof missing));
    return FAIL(YOKE_ERROR_TIMEOUT, "%s: rank %d waited %d ms for %s", yoke_call_name(watch->kind),
                watch->group->rank, watch->group->timeout_ms,
                missing[0] != '\0' ? missing : "an end of it, though all ranks have come");
}

/* A rank of this machine whose process is no more; -1: none. */
static int find_ended(const yoke_watch *watch) {
    for (int rank = 0; rank < watch->group->world; rank++) {
        if (rank != watch->group->rank && life_of(watch, rank) == SHM_GONE) return rank;
    }
    return -1;
}

static yoke_status check_ended(yoke_watch *watch) {
    int ended = find_ended(watch);
    if (ended < 0) return YOKE_OK;
    if (watch->lost_ns == 0) watch->lost_ns = watch->waited_ns;
    if (watch->waited_ns - watch->lost_ns < LOST_NS) return YOKE_OK;
    return FAIL(YOKE_ERROR_PEER, "%s: rank %d waits in vain for rank %d (%s:%d, has ended)",
                yoke_call_name(watch->kind), watch->group->rank, ended, watch->peers[ended].host,
                watch->peers[ended].pid);
}

static yoke_status look_around(yoke_watch *watch) {
    yoke_error error;
    watch->looked_ns = watch->waited_ns;
    if (read_failure(watch, &error)) return yoke_error_restore(&error);
    TRY(tell_operation(watch));
    if (watch->waited_ns >= (uint64_t)watch->group->timeout_ms * 1000000u)
        return tell_overdue(watch);
    return check_ended(watch);
}

yoke_status yoke_watch_wait(yoke_watch *watch) {
    uint64_t now = yoke_now_ns(), passed = now - watch->seen_ns;
    uint64_t timeout_ns = (uint64_t)watch->group->timeout_ms * 1000000u;
    watch->seen_ns = now;
    /* The time in which this process itself was stopped is nobody's fault. */
    watch->waited_ns += passed < LOOK_NS ? passed : LOOK_NS;
    bool due = watch->waited_ns - watch->looked_ns >= LOOK_NS || watch->waited_ns >= timeout_ns;
    yoke_status status = due ? look_around(watch) : YOKE_OK;
    if (status != YOKE_OK) return yoke_watch_break(watch, status);
    if (watch->waited_ns < SPIN_NS)
        sched_yield();
    else
        usleep(PAUSE_US);
    return YOKE_OK;
}
