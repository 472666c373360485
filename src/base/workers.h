/* SPDX-License-Identifier: Apache-2.0 */
/* Permanent threads, one for each device. The caller is worker 0: a run on N workers wakes N - 1
 * threads. A waiting thread spins for a short time, then sleeps on a futex. */
#ifndef BASE_WORKERS_H
#define BASE_WORKERS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

typedef struct yoke_workers yoke_workers;

/* A run returns the error of the job that failed first. */
typedef yoke_status (*yoke_worker_job)(int worker, void *context);

typedef struct yoke_workers_options {
    int count;       /* workers, including the caller; 1 .. 1024 */
    int spare_cores; /* cores online minus the workers' compute threads; negative: threads share
                        cores, so a waiting one yields */
    /* Called once on every new thread (not on the caller's): before its first job, and at its end.
     */
    yoke_status (*enter)(int worker, void *context);
    void (*leave)(int worker, void *context);
    void *context;
} yoke_workers_options;

yoke_status yoke_workers_create(yoke_workers **workers, const yoke_workers_options *options);
void yoke_workers_destroy(yoke_workers *workers);

/* How long each later run may take; 0, as after create: as long as it likes. A worker that is not
 * done then is lost: run returns TIMEOUT and its number. */
void yoke_workers_limit(yoke_workers *workers, uint64_t deadline_ns);
/* From another thread than that of run: worker 0 is lost, and the others stop waiting for it. */
void yoke_workers_lose_caller(yoke_workers *workers);
/* Whether a worker is lost: it may still be at work. Nothing that its job could touch may be freed,
 * destroy does nothing, and runs on more than the caller return TIMEOUT. */
bool yoke_workers_lost(const yoke_workers *workers);

/* Runs job on workers 0 .. count - 1 and waits for all. Returns the earliest failure and sets its
 * text on the calling thread; *failed (may be NULL) gets the worker that failed, -1 for none. The
 * workers can run another job afterwards. */
yoke_status yoke_workers_run(yoke_workers *workers, int count, yoke_worker_job job, void *context,
                             int *failed);

/* Inside a job: waits until all workers of this run have called it. Returns CANCELLED as soon as
 * one of them fails. */
yoke_status yoke_workers_barrier(yoke_workers *workers);

/* Inside a job: waits until *counter >= target; CANCELLED as above. yoke_workers_signal increments
 * the counter and wakes the waiting threads. */
yoke_status yoke_workers_await(yoke_workers *workers, const uint32_t *counter, uint32_t target);
void yoke_workers_signal(yoke_workers *workers, uint32_t *counter);
/* Whether *counter >= target, without waiting. */
bool yoke_workers_reached(const uint32_t *counter, uint32_t target);

#endif
