/* SPDX-License-Identifier: Apache-2.0 */
/* Permanent threads that run one job after another. A thread waits at a bell: it checks its
 * condition for a short time, then sleeps on a futex until another thread rings. */
#include "base/workers.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/spin.h"
#include "base/thread.h"

#define WORKERS_MAX 1024
#define GRACE_NS 500000000u /* for workers that wait for another one to notice that it is lost */
#define CACHE_LINE 64

/* How often a thread checks its condition before it sleeps, and after how many checks it yields its
 * core. When every thread has a core, the next job arrives sooner than a thread wakes up, and only
 * another program may need the core. When threads share cores, the thread we wait for may need this
 * one: yield each time, which costs a tenth of sleeping and waking. */
#define LOOKS_ALONE 4000
#define LOOKS_CROWDED 32
#define YIELD_EVERY_ALONE 32
#define YIELD_EVERY_CROWDED 1

/* Threads sleep here until a condition holds. The thread that makes the condition true changes it,
 * then rings; a sleeper increments `sleepers`, then checks the condition. Both use sequentially
 * consistent atomics, so at least one of them sees the other. */
typedef struct yoke_bell {
    _Atomic uint32_t rings, sleepers;
} yoke_bell;

typedef struct yoke_worker {
    alignas(CACHE_LINE) yoke_bell bell; /* rung for a new job */
    _Atomic uint32_t jobs;              /* given to this worker since creation */
    _Atomic uint32_t done;              /* of these */
    uint64_t done_ns;                   /* when the last was */
    int index;
    pthread_t thread;
    yoke_workers *crew;
    yoke_error error; /* of the last job that failed */
    uint64_t failed_ns;
    bool failed; /* in the current run */
} yoke_worker;

struct yoke_workers {
    yoke_workers_options options;
    bool crowded;  /* there are fewer cores than compute threads */
    int threads;   /* running */
    pid_t process; /* theirs: a forked child has none of them */

    /* The current run. The caller writes these before it wakes the workers. */
    yoke_worker_job job; /* NULL: the thread ends */
    void *context;
    yoke_cancel_scope cancel; /* of the thread that runs the job */
    uint32_t run_count;
    uint64_t deadline_ns, until_ns; /* 0: no deadline; of a run, and when this one ends */
    atomic_bool late;               /* the deadline of this run has passed */
    atomic_bool lost; /* so has that of an earlier one, and a worker did not come back */

    alignas(CACHE_LINE) yoke_bell joined; /* rung by the last worker that finishes its job */
    _Atomic uint32_t pending;

    alignas(CACHE_LINE) yoke_bell counted; /* rung at barriers and counters */
    _Atomic uint32_t arrived, passed;      /* workers at the barrier; barriers passed */
    atomic_bool failed;                    /* a worker failed in this run */

    yoke_worker workers[]; /* [count]; worker 0 is the caller of run */
};

static void ring(yoke_bell *bell) {
    if (atomic_load(&bell->sleepers) == 0) return;
    atomic_fetch_add(&bell->rings, 1);
    syscall(SYS_futex, &bell->rings, FUTEX_WAKE_PRIVATE, WORKERS_MAX, NULL, NULL, 0);
}

/* A condition and its operands. */
typedef struct yoke_condition {
    bool (*holds)(const struct yoke_condition *condition);
    yoke_workers *crew;
    const void *word;
    uint32_t value;
} yoke_condition;

/* Sleeps until another thread rings, or until_ns has come. */
static void sleep_at(yoke_bell *bell, uint32_t rings, uint64_t until_ns) {
    struct timespec rest, *timeout = NULL;
    if (until_ns > 0) {
        uint64_t now = yoke_now_ns(), ns = until_ns > now ? until_ns - now : 0;
        rest = (struct timespec){.tv_sec = (time_t)(ns / 1000000000u),
                                 .tv_nsec = (long)(ns % 1000000000u)};
        timeout = &rest;
    }
    syscall(SYS_futex, &bell->rings, FUTEX_WAIT_PRIVATE, rings, timeout, NULL, 0);
}

/* Whether the condition holds; false only once until_ns has come, which 0 never does. */
static bool wait_until(yoke_bell *bell, const yoke_condition *condition, uint64_t until_ns) {
    bool crowded = condition->crew->crowded;
    int looks = crowded ? LOOKS_CROWDED : LOOKS_ALONE;
    int yield_every = crowded ? YIELD_EVERY_CROWDED : YIELD_EVERY_ALONE;
    for (int look = 1; look <= looks; look++) {
        if (condition->holds(condition)) return true;
        if (look % yield_every == 0)
            sched_yield();
        else
            yoke_spin_pause();
    }
    while (!condition->holds(condition)) {
        atomic_fetch_add(&bell->sleepers, 1);
        uint32_t rings = atomic_load(&bell->rings);
        bool late = until_ns > 0 && yoke_now_ns() >= until_ns;
        if (!late && !condition->holds(condition)) sleep_at(bell, rings, until_ns);
        atomic_fetch_sub(&bell->sleepers, 1);
        if (late) return condition->holds(condition);
    }
    return true;
}

static bool has_job(const yoke_condition *condition) {
    return atomic_load((const _Atomic uint32_t *)condition->word) != condition->value;
}

static bool all_done(const yoke_condition *condition) {
    return atomic_load(&condition->crew->pending) == 0;
}

static bool barrier_open(const yoke_condition *condition) {
    return atomic_load(&condition->crew->passed) != condition->value ||
           atomic_load(&condition->crew->failed);
}

static bool counter_reached(const yoke_condition *condition) {
    const uint32_t *counter = condition->word;
    return yoke_workers_reached(counter, condition->value) || atomic_load(&condition->crew->failed);
}

static void note(yoke_worker *self, yoke_status status) {
    self->failed = status != YOKE_OK;
    if (!self->failed) return;
    self->failed_ns = yoke_now_ns();
    self->error = yoke_error_take(status);
    atomic_store(&self->crew->failed, true);
    ring(&self->crew->counted);
}

static void report_done(yoke_workers *crew) {
    if (atomic_fetch_sub(&crew->pending, 1) == 1) ring(&crew->joined);
}

static void *work(void *argument) {
    yoke_worker *self = argument;
    yoke_workers *crew = self->crew;
    const yoke_workers_options *options = &crew->options;
    if (options->enter != NULL) note(self, options->enter(self->index, options->context));
    bool entered = !self->failed;
    report_done(crew);
    for (uint32_t jobs = 0; entered; jobs++) {
        (void)wait_until(
            &self->bell,
            &(yoke_condition){.holds = has_job, .crew = crew, .word = &self->jobs, .value = jobs},
            0);
        if (crew->job == NULL) break;
        (void)yoke_cancel_enter(&crew->cancel);
        note(self, crew->job(self->index, crew->context));
        self->done_ns = crew->deadline_ns > 0 ? yoke_now_ns() : 0;
        atomic_fetch_add(&self->done, 1);
        report_done(crew);
    }
    if (entered && options->leave != NULL) options->leave(self->index, options->context);
    return NULL;
}

static void wake_with_job(yoke_worker *worker) {
    atomic_fetch_add(&worker->jobs, 1);
    ring(&worker->bell);
}

/* The earliest failure is the cause. A cancelled worker is the cause only when no other failed. */
static bool is_cause(const yoke_worker *candidate, const yoke_worker *cause) {
    if (!candidate->failed || cause == NULL) return candidate->failed;
    bool candidate_cancelled = candidate->error.status == YOKE_ERROR_CANCELLED;
    bool cause_cancelled = cause->error.status == YOKE_ERROR_CANCELLED;
    if (candidate_cancelled != cause_cancelled) return cause_cancelled;
    return candidate->failed_ns < cause->failed_ns;
}

/* After the deadline the others stop waiting. A worker that does not come back is lost. */
static bool find_lost(yoke_workers *crew, int count, int *failed) {
    atomic_store(&crew->late, true);
    atomic_store(&crew->failed, true);
    ring(&crew->counted);
    yoke_condition all = {.holds = all_done, .crew = crew};
    if (wait_until(&crew->joined, &all, yoke_now_ns() + GRACE_NS)) return false;
    for (int i = 1; i < count; i++) {
        yoke_worker *worker = &crew->workers[i];
        if (atomic_load(&worker->done) == atomic_load(&worker->jobs)) continue;
        atomic_store(&crew->lost, true);
        *failed = i;
        return true;
    }
    return false;
}

static bool was_cancelled(const yoke_worker *worker) {
    return worker->failed && worker->error.status == YOKE_ERROR_CANCELLED;
}

/* All workers came back, but after the deadline: which one did the others wait for? The system may
 * wake those that waited after the slowest one is done, so they do not count. */
static int find_slowest(const yoke_workers *crew, int count) {
    const yoke_worker *slowest = &crew->workers[0];
    for (int i = 1; i < count; i++) {
        const yoke_worker *worker = &crew->workers[i];
        bool waited = was_cancelled(worker), other_waited = was_cancelled(slowest);
        if (waited == other_waited ? worker->done_ns > slowest->done_ns : other_waited)
            slowest = worker;
    }
    return slowest->index;
}

static int find_cause(const yoke_workers *crew, int count) {
    const yoke_worker *cause = NULL;
    for (int i = 0; i < count; i++)
        if (is_cause(&crew->workers[i], cause)) cause = &crew->workers[i];
    return cause != NULL ? cause->index : -1;
}

static yoke_status join(yoke_workers *crew, int count, int *failed) {
    int own;
    if (failed == NULL) failed = &own;
    yoke_condition all = {.holds = all_done, .crew = crew};
    if (!wait_until(&crew->joined, &all, crew->until_ns) && find_lost(crew, count, failed))
        return FAIL(YOKE_ERROR_TIMEOUT,
                    "hangs: it was not done after %.3g s, the deadline. Its thread is left behind",
                    (double)crew->deadline_ns * 1e-9);
    *failed = -1;
    if (!atomic_load(&crew->failed)) return YOKE_OK;
    *failed = find_cause(crew, count);
    bool has_cause = *failed >= 0 && crew->workers[*failed].error.status != YOKE_ERROR_CANCELLED;
    if (has_cause || !atomic_load(&crew->late))
        return yoke_error_restore(&crew->workers[*failed].error);
    *failed = find_slowest(crew, count);
    return FAIL(YOKE_ERROR_TIMEOUT, "was done after the deadline of %.3g s",
                (double)crew->deadline_ns * 1e-9);
}

yoke_status yoke_workers_run(yoke_workers *workers, int count, yoke_worker_job job, void *context,
                             int *failed) {
    TRY(yoke_process_check(workers->process, "these worker threads"));
    if (count < 1 || count > workers->options.count)
        return FAIL(YOKE_ERROR_ARGUMENT, "a run on %d workers: there are 1 to %d", count,
                    workers->options.count);
    if (atomic_load(&workers->lost) && count > 1)
        return FAIL(YOKE_ERROR_TIMEOUT, "a worker thread hangs since an earlier call");
    if (atomic_load(&workers->lost)) return job(0, context);
    workers->job = job;
    workers->context = context;
    workers->cancel = yoke_cancel_scope_of_thread();
    workers->run_count = (uint32_t)count;
    workers->until_ns = workers->deadline_ns > 0 ? yoke_now_ns() + workers->deadline_ns : 0;
    atomic_store_explicit(&workers->arrived, 0, memory_order_relaxed);
    atomic_store_explicit(&workers->failed, false, memory_order_relaxed);
    atomic_store_explicit(&workers->late, false, memory_order_relaxed);
    atomic_store_explicit(&workers->pending, (uint32_t)count - 1, memory_order_relaxed);
    for (int i = 1; i < count; i++)
        wake_with_job(&workers->workers[i]);
    note(&workers->workers[0], job(0, context));
    workers->workers[0].done_ns = workers->deadline_ns > 0 ? yoke_now_ns() : 0;
    return join(workers, count, failed);
}

/* Not the cause: that is the worker it waited for. */
static yoke_status give_up(yoke_workers *crew) {
    atomic_store(&crew->late, true);
    return FAIL(YOKE_ERROR_CANCELLED, "waited for another worker until the deadline");
}

yoke_status yoke_workers_barrier(yoke_workers *workers) {
    uint32_t passed = atomic_load(&workers->passed);
    if (atomic_fetch_add(&workers->arrived, 1) + 1 == workers->run_count) {
        atomic_store(&workers->arrived, 0);
        atomic_fetch_add(&workers->passed, 1);
        ring(&workers->counted);
        return YOKE_OK;
    }
    bool open =
        wait_until(&workers->counted,
                   &(yoke_condition){.holds = barrier_open, .crew = workers, .value = passed},
                   workers->until_ns);
    if (!open) return give_up(workers);
    if (atomic_load(&workers->passed) != passed) return YOKE_OK;
    return FAIL(YOKE_ERROR_CANCELLED, "stopped at a barrier because another worker failed");
}

bool yoke_workers_reached(const uint32_t *counter, uint32_t target) {
    return __atomic_load_n(counter, __ATOMIC_SEQ_CST) >= target;
}

yoke_status yoke_workers_await(yoke_workers *workers, const uint32_t *counter, uint32_t target) {
    bool reached =
        wait_until(&workers->counted,
                   &(yoke_condition){
                       .holds = counter_reached, .crew = workers, .word = counter, .value = target},
                   workers->until_ns);
    if (!reached) return give_up(workers);
    if (yoke_workers_reached(counter, target)) return YOKE_OK;
    return FAIL(YOKE_ERROR_CANCELLED, "stopped waiting because another worker failed");
}

void yoke_workers_signal(yoke_workers *workers, uint32_t *counter) {
    __atomic_fetch_add(counter, 1, __ATOMIC_SEQ_CST);
    ring(&workers->counted);
}

/* One enters after the other: what each takes from the system, the next one finds taken. */
static yoke_status start_threads(yoke_workers *crew) {
    for (int i = 1; i < crew->options.count; i++) {
        yoke_worker *worker = &crew->workers[i];
        atomic_fetch_add(&crew->pending, 1);
        int cause = yoke_thread_start(&worker->thread, work, worker);
        if (cause != 0) {
            atomic_fetch_sub(&crew->pending, 1);
            return FAIL(YOKE_ERROR_SYSTEM, "cannot start worker thread %d of %d: %s", i,
                        crew->options.count, strerror(cause));
        }
        crew->threads++;
        char name[17]; /* 1024 workers at most: the kernel takes 15 characters */
        snprintf(name, sizeof name, "yoke-%d", i);
        pthread_setname_np(worker->thread, name);
        TRY(join(crew, i + 1, NULL));
    }
    return YOKE_OK;
}

static yoke_status build(yoke_workers *crew, const yoke_workers_options *options) {
    crew->options = *options;
    crew->process = getpid();
    crew->crowded = options->spare_cores < 0;
    for (int i = 0; i < options->count; i++) {
        crew->workers[i].index = i;
        crew->workers[i].crew = crew;
    }
    yoke_status status = start_threads(crew);
    yoke_error error = yoke_error_take(status);
    yoke_status entered = join(crew, crew->threads + 1, NULL);
    return status != YOKE_OK ? yoke_error_restore(&error) : entered;
}

yoke_status yoke_workers_create(yoke_workers **workers, const yoke_workers_options *options) {
    *workers = NULL;
    if (options->count < 1 || options->count > WORKERS_MAX)
        return FAIL(YOKE_ERROR_ARGUMENT, "%d workers: 1 to %d are supported", options->count,
                    WORKERS_MAX);
    size_t bytes = sizeof(yoke_workers) + (size_t)options->count * sizeof(yoke_worker);
    yoke_workers *crew = yoke_aligned_alloc(CACHE_LINE, bytes);
    if (crew == NULL) return FAIL_MEMORY(bytes, "worker threads");
    memset(crew, 0, bytes);
    yoke_status status = build(crew, options);
    if (status != YOKE_OK) {
        yoke_workers_destroy(crew);
        return status;
    }
    *workers = crew;
    return YOKE_OK;
}

void yoke_workers_destroy(yoke_workers *workers) {
    if (workers == NULL) return;
    if (yoke_workers_lost(workers)) return;
    bool forked = getpid() != workers->process;
    workers->job = NULL;
    for (int i = 1; i <= workers->threads && !forked; i++)
        wake_with_job(&workers->workers[i]);
    for (int i = 1; i <= workers->threads && !forked; i++)
        pthread_join(workers->workers[i].thread, NULL);
    yoke_free(workers);
}

void yoke_workers_limit(yoke_workers *workers, uint64_t deadline_ns) {
    workers->deadline_ns = deadline_ns;
}

void yoke_workers_lose_caller(yoke_workers *workers) {
    atomic_store(&workers->lost, true);
    atomic_store(&workers->failed, true);
    ring(&workers->counted);
}

bool yoke_workers_lost(const yoke_workers *workers) {
    return workers != NULL && atomic_load(&workers->lost);
}
