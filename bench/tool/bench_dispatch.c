/* SPDX-License-Identifier: Apache-2.0 */
/* What it costs to give every device a job and wait for all, against the barriers threads usually
 * meet at. A job is two meetings: one to begin, one to end. */
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bench/tool/bench_forms.h"

#define MOST_THREADS 8

static yoke_status empty_job(int replica, void *context) {
    (void)replica;
    (void)context;
    return YOKE_OK;
}

static yoke_status run_dispatch(void *context, int steps, double *milliseconds) {
    bench_engine *engine = context;
    yoke_status status = yoke_data_parallel_bind(engine->parallel);
    double begin = race_clock();
    for (int i = 0; i < steps && status == YOKE_OK; i++)
        status = yoke_parallel_apply(engine->parallel, empty_job, NULL);
    *milliseconds = (race_clock() - begin) * 1e3 / steps;
    yoke_data_parallel_unbind(engine->parallel);
    return status;
}

/* Threads that meet `steps` times twice and do nothing else. */
struct bench_meeting {
    int threads, steps;
    bool sleeping;        /* a barrier that only sleeps on a futex; otherwise pthread's */
    pthread_mutex_t gate; /* held until all threads have started, or one could not */
    bool cancelled;
    pthread_barrier_t barrier;
    atomic_uint phase, arrived;
    double milliseconds;
};

typedef struct member {
    bench_meeting *meeting;
    int index;
} member;

static void meet(bench_meeting *meeting) {
    if (!meeting->sleeping) {
        pthread_barrier_wait(&meeting->barrier);
        return;
    }
    unsigned phase = atomic_load(&meeting->phase);
    if (atomic_fetch_add(&meeting->arrived, 1) + 1 == (unsigned)meeting->threads) {
        atomic_store(&meeting->arrived, 0);
        atomic_fetch_add(&meeting->phase, 1);
        syscall(SYS_futex, &meeting->phase, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
        return;
    }
    while (atomic_load(&meeting->phase) == phase)
        syscall(SYS_futex, &meeting->phase, FUTEX_WAIT_PRIVATE, phase, NULL, NULL, 0);
}

static void bind_to(int index) {
    cpu_set_t allowed, own;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
    int wanted = index % CPU_COUNT(&allowed);
    CPU_ZERO(&own);
    for (size_t core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &allowed) && wanted-- == 0) CPU_SET(core, &own);
    (void)sched_setaffinity(0, sizeof own, &own);
}

static void *attend(void *argument) {
    const member *self = argument;
    bench_meeting *meeting = self->meeting;
    bind_to(self->index);
    pthread_mutex_lock(&meeting->gate);
    pthread_mutex_unlock(&meeting->gate);
    if (meeting->cancelled) return NULL;
    meet(meeting);
    double begin = race_clock();
    for (int i = 0; i < 2 * meeting->steps; i++)
        meet(meeting);
    if (self->index == 0) meeting->milliseconds = (race_clock() - begin) * 1e3 / meeting->steps;
    return NULL;
}

static yoke_status run_meeting(void *context, int steps, double *milliseconds) {
    bench_meeting *meeting = context;
    meeting->steps = steps;
    pthread_t threads[MOST_THREADS];
    member members[MOST_THREADS];
    if (pthread_barrier_init(&meeting->barrier, NULL, (unsigned)meeting->threads) != 0)
        return YOKE_ERROR_SYSTEM;
    pthread_mutex_lock(&meeting->gate);
    int started = 0;
    for (; started < meeting->threads; started++) {
        members[started] = (member){meeting, started};
        if (pthread_create(&threads[started], NULL, attend, &members[started]) != 0) break;
    }
    meeting->cancelled = started < meeting->threads;
    pthread_mutex_unlock(&meeting->gate);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&meeting->barrier);
    *milliseconds = meeting->milliseconds;
    return meeting->cancelled ? YOKE_ERROR_SYSTEM : YOKE_OK;
}

yoke_status bench_open_dispatch(const bench_row *row, bench_field *field) {
    yoke_status status = bench_engine_create(&field->engines[0], row->a);
    field->a = (race_contender){run_dispatch, field->engines[0]};
    return status;
}

static yoke_status open_meeting(const bench_row *row, bool sleeping, bench_field *field) {
    bench_meeting *meeting = field->meeting = calloc(1, sizeof *meeting);
    if (!meeting) return YOKE_ERROR_MEMORY;
    meeting->threads = row->a->devices;
    meeting->sleeping = sleeping;
    pthread_mutex_init(&meeting->gate, NULL);
    field->b = (race_contender){run_meeting, meeting};
    return bench_open_dispatch(row, field);
}

yoke_status bench_open_barrier(const bench_row *row, bench_field *field) {
    return open_meeting(row, false, field);
}

yoke_status bench_open_futex(const bench_row *row, bench_field *field) {
    return open_meeting(row, true, field);
}

void bench_meeting_destroy(bench_meeting *meeting) {
    if (meeting) pthread_mutex_destroy(&meeting->gate);
    free(meeting);
}
