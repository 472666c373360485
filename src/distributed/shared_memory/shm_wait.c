/* SPDX-License-Identifier: Apache-2.0 */
/* The waits of the shared-memory transport: spin shortly, then sleep on the awaited rank's counter.
 * A sleeper wakes twenty times a second to check that the awaited ranks still run. */
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "distributed/shared_memory/shared_memory.h"

/* Polls before sleeping, and polls per sched_yield. With a core for every rank, polling is faster
 * than waking a process. Without, the awaited rank may need this very core. */
#define POLLS_ALONE 4000
#define POLLS_CROWDED 32
#define YIELD_EVERY_ALONE 32
#define YIELD_EVERY_CROWDED 1

#define SLICE_NS 50000000u

typedef struct shm_wait {
    shm_counter *first; /* rank 0's */
    uint32_t value;
    uint64_t waited_ns, checked_ns;
} shm_wait;

static uint64_t timeout_ns(const shm_group *shm) {
    return (uint64_t)shm->group.timeout_ms * 1000000u;
}

static void wake(shm_counter *counter) {
    if (atomic_load(&counter->sleepers) == 0) return;
    syscall(SYS_futex, &counter->value, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Writes the value, then reads the sleepers; a sleeper does the reverse. All four accesses are
 * sequentially consistent, so at least one side sees the other. */
void shm_raise(shm_counter *counter, uint32_t value) {
    atomic_store(&counter->value, value);
    wake(counter);
}

static void sleep_on(shm_counter *counter, uint32_t value, uint64_t limit_ns) {
    struct timespec limit = {.tv_sec = (time_t)(limit_ns / 1000000000u),
                             .tv_nsec = (long)(limit_ns % 1000000000u)};
    atomic_fetch_add(&counter->sleepers, 1);
    uint32_t now = atomic_load(&counter->value);
    if ((int32_t)(now - value) < 0)
        syscall(SYS_futex, &counter->value, FUTEX_WAIT, now, &limit, NULL, 0);
    atomic_fetch_sub(&counter->sleepers, 1);
}

yoke_status shm_intact(shm_group *shm) {
    uint32_t broken = atomic_load_explicit(&shm->control->broken, memory_order_acquire);
    if (broken == 0) return YOKE_OK;
    return yoke_error_restore(&shm->control->ranks[broken - 1].cause);
}

yoke_status shm_break(shm_group *shm, yoke_status status) {
    if (atomic_load(&shm->control->broken) == 0) {
        uint32_t intact = 0;
        shm_self(shm)->cause = yoke_error_take(status);
        atomic_compare_exchange_strong(&shm->control->broken, &intact,
                                       1 + (uint32_t)shm->group.rank);
        for (int rank = 0; rank < shm->group.world; rank++) {
            wake(&shm->control->ranks[rank].finished);
            for (uint32_t line = 0; line < SHM_OPERATIONS; line++)
                wake(shm_announcement_of(shm, rank, line));
        }
    }
    return shm_intact(shm);
}

/* What a rank does now; *lost: it will never reach the awaited value. */
static const char *describe_state(shm_group *shm, int rank, int pid, bool *lost) {
    const shm_rank *peer = &shm->control->ranks[rank];
    bool joined = atomic_load(&peer->pid) != 0;
    yoke_process_state state =
        pid > 0 ? yoke_process_state_of(pid, joined ? peer->start_time : 0) : YOKE_PROCESS_RUNNING;
    bool left = atomic_load(&peer->left);
    *lost = left || state == YOKE_PROCESS_ENDED;
    if (left) return "has left the group";
    if (state == YOKE_PROCESS_ENDED) return "has ended";
    if (state == YOKE_PROCESS_STOPPED) return "is stopped";
    return joined ? "is running" : "has not joined";
}

/* Lists the awaited ranks, or only the lost ones, as "rank 1 (host:1234, is stopped)". Reads a
 * rank's counter after its state: a rank that reached the value before it ended is not missing. */
static void list_missing(shm_group *shm, const shm_wait *wait, bool lost_only, char *text,
                         size_t size) {
    size_t length = 0;
    text[0] = '\0';
    for (int rank = 0; rank < shm->group.world && length < size; rank++) {
        shm_counter *counter = shm_counter_at(wait->first, rank);
        if (shm_reached(counter, wait->value)) continue;
        bool lost;
        int joined = atomic_load(&shm->control->ranks[rank].pid);
        int pid = joined != 0 ? joined : shm->peers[rank].pid;
        const char *now = describe_state(shm, rank, pid, &lost);
        if ((lost_only && !lost) || shm_reached(counter, wait->value)) continue;
        length += (size_t)snprintf(text + length, size - length, "%srank %d (%s:%d, %s)",
                                   length == 0 ? "" : ", ", rank, shm->peers[rank].host, pid, now);
    }
}

/* Whether a wait goes on past its deadline: rank 0 runs, and has not come so far. */
static bool is_patient(shm_group *shm, const shm_wait *wait) {
    const shm_rank *first = &shm->control->ranks[0];
    if (!shm->group.patient || wait->waited_ns >= YOKE_PATIENCE * timeout_ns(shm)) return false;
    return !shm_reached(shm_counter_at(wait->first, 0), wait->value) &&
           yoke_process_state_of(atomic_load(&first->pid), first->start_time) ==
               YOKE_PROCESS_RUNNING;
}

/* Fails if the deadline has passed or an awaited rank is lost. By the time it looks, no rank may be
 * missing any more. */
static yoke_status check_peers(shm_group *shm, shm_wait *wait) {
    char missing[400];
    bool overdue = wait->waited_ns >= timeout_ns(shm) && !is_patient(shm, wait);
    if (!overdue && wait->waited_ns - wait->checked_ns < SLICE_NS) return YOKE_OK;
    wait->checked_ns = wait->waited_ns;
    list_missing(shm, wait, !overdue, missing, sizeof missing);
    if (missing[0] == '\0') return YOKE_OK;
    const char *operation = yoke_call_name(shm->current);
    if (overdue)
        FAIL(YOKE_ERROR_TIMEOUT, "%s: rank %d waited %d ms for %s", operation, shm->group.rank,
             shm->group.timeout_ms, missing);
    else
        FAIL(YOKE_ERROR_PEER, "%s: rank %d cannot go on without %s", operation, shm->group.rank,
             missing);
    return shm_break(shm, overdue ? YOKE_ERROR_TIMEOUT : YOKE_ERROR_PEER);
}

static bool spin(const shm_group *shm, shm_counter *counter, uint32_t value) {
    int polls = shm->crowded ? POLLS_CROWDED : POLLS_ALONE;
    int yield_every = shm->crowded ? YIELD_EVERY_CROWDED : YIELD_EVERY_ALONE;
    for (int done = 1; done <= polls; done++) {
        if (shm_reached(counter, value)) return true;
        if (done % yield_every == 0)
            sched_yield();
        else
            yoke_spin_pause();
    }
    return false;
}

static yoke_status wait_for(shm_group *shm, shm_wait *wait, shm_counter *counter) {
    if (spin(shm, counter, wait->value)) return YOKE_OK;
    while (!shm_reached(counter, wait->value)) {
        TRY(shm_intact(shm));
        uint64_t begin = yoke_now_ns(), deadline = timeout_ns(shm);
        uint64_t left = wait->waited_ns < deadline ? deadline - wait->waited_ns : SLICE_NS;
        uint64_t limit_ns = left < SLICE_NS ? left : SLICE_NS;
        sleep_on(counter, wait->value, limit_ns);
        /* Leave out the time in which this process itself was stopped: the peers are not late. */
        uint64_t slept_ns = yoke_now_ns() - begin;
        wait->waited_ns += slept_ns < limit_ns ? slept_ns : limit_ns;
        TRY(check_peers(shm, wait));
    }
    return YOKE_OK;
}

bool shm_all_reached(shm_group *shm, shm_counter *first, uint32_t value) {
    for (int rank = 0; rank < shm->group.world; rank++) {
        if (!shm_reached(shm_counter_at(first, rank), value)) return false;
    }
    return true;
}

yoke_status shm_await(shm_group *shm, shm_counter *first, uint32_t value) {
    shm_wait wait = {.first = first, .value = value};
    for (int rank = 0; rank < shm->group.world; rank++) {
        shm_counter *counter = shm_counter_at(first, rank);
        if (!shm_reached(counter, value)) TRY(wait_for(shm, &wait, counter));
    }
    return YOKE_OK;
}
