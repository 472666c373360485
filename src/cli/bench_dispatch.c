/* What it costs to give every device a job and wait for all, against the barriers threads usually
 * meet at. A job is two meetings: one to begin, one to end. */
#include "bench_rows.h"

#include <linux/futex.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

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
    yoke_data_parallel_release(engine->parallel);
    return status;
}

/* Threads that meet `steps` times twice and do nothing else. */
typedef struct assembly {
    int threads, steps;
    bool sleeping;        /* a barrier that only sleeps on a futex; otherwise pthread's */
    pthread_mutex_t gate; /* held until it is known who comes */
    bool called_off;
    pthread_barrier_t barrier;
    atomic_uint phase, arrived;
    double milliseconds;
} assembly;

typedef struct member {
    assembly *meeting;
    int index;
} member;

static void meet(assembly *meeting) {
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
    assembly *meeting = self->meeting;
    bind_to(self->index);
    pthread_mutex_lock(&meeting->gate);
    pthread_mutex_unlock(&meeting->gate);
    if (meeting->called_off) return NULL;
    meet(meeting);
    double begin = race_clock();
    for (int i = 0; i < 2 * meeting->steps; i++)
        meet(meeting);
    if (self->index == 0) meeting->milliseconds = (race_clock() - begin) * 1e3 / meeting->steps;
    return NULL;
}

static yoke_status run_meeting(void *context, int steps, double *milliseconds) {
    assembly *meeting = context;
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
    meeting->called_off = started < meeting->threads;
    pthread_mutex_unlock(&meeting->gate);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&meeting->barrier);
    *milliseconds = meeting->milliseconds;
    return meeting->called_off ? YOKE_ERROR_SYSTEM : YOKE_OK;
}

/* rival NULL: the dispatch alone. Contenders: dispatch, its twin, the rival. */
static yoke_status race_dispatch(const bench_row *row, const bench_effort *effort, assembly *rival,
                                 rounds *race) {
    bench_engine *engine = NULL;
    yoke_status status = bench_engine_create(&engine, row->a);
    race->title = row->name;
    race->rounds = effort->rounds;
    race->seconds = effort->seconds;
    race->contenders[race->count++] = (race_contender){run_dispatch, engine};
    race->contenders[race->count++] = (race_contender){run_dispatch, engine};
    if (rival) race->contenders[race->count++] = (race_contender){run_meeting, rival};
    if (status == YOKE_OK) status = race_run(race);
    bench_engine_destroy(engine);
    return status;
}

yoke_status bench_measure_dispatch(const bench_row *row, const bench_effort *effort,
                                   bench_result *result) {
    rounds race = {0};
    yoke_status status = race_dispatch(row, effort, NULL, &race);
    if (status != YOKE_OK) return status;
    bench_race_result(&race, 1, result);
    result->value = race_times(&race, 0, 1e3);
    result->a = result->value.median;
    result->b = NAN;
    return YOKE_OK;
}

static yoke_status measure_meeting(const bench_row *row, const bench_effort *effort, bool sleeping,
                                   rounds *race, bench_result *result) {
    assembly meeting = {
        .threads = row->a->devices, .sleeping = sleeping, .gate = PTHREAD_MUTEX_INITIALIZER};
    yoke_status status = race_dispatch(row, effort, &meeting, race);
    if (status != YOKE_OK) return status;
    bench_race_result(race, 1, result);
    result->a = race_times(race, 0, 1e3).median;
    result->b = race_times(race, 2, 1e3).median;
    return YOKE_OK;
}

yoke_status bench_measure_barrier(const bench_row *row, const bench_effort *effort,
                                  bench_result *result) {
    rounds race = {0};
    yoke_status status = measure_meeting(row, effort, false, &race, result);
    if (status == YOKE_OK) result->value = race_compare(&race, 0, 2, 1);
    return status;
}

yoke_status bench_measure_futex(const bench_row *row, const bench_effort *effort,
                                bench_result *result) {
    rounds race = {0};
    yoke_status status = measure_meeting(row, effort, true, &race, result);
    if (status == YOKE_OK) result->value = race_compare(&race, 2, 0, 1);
    return status;
}
