/* A crew of permanent threads, one a device. The caller is worker 0: dispatch to N workers wakes
 * N - 1 threads. Waiting spins shortly, yielding in between, then sleeps on a futex. */
#ifndef BASE_WORKERS_H
#define BASE_WORKERS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

typedef struct yoke_workers yoke_workers;

/* May fail; its error becomes the run's if it is the first in time. */
typedef yoke_status (*yoke_worker_job)(int worker, void *context);

typedef struct yoke_workers_options {
    int count;       /* workers, the caller included; 1 .. 1024 */
    int spare_cores; /* cores online minus workers' compute threads; negative: waiting must not spin
                        long, since somebody else needs the core */
    /* Called once on every new thread (not the caller's) before its first job, and at its end. */
    yoke_status (*enter)(int worker, void *context);
    void (*leave)(int worker, void *context);
    void *context;
} yoke_workers_options;

yoke_status yoke_workers_create(yoke_workers **workers, const yoke_workers_options *options);
void yoke_workers_destroy(yoke_workers *workers);

/* Runs job on workers 0 .. count - 1 and waits for all. The first failure in time is returned, its
 * text set on the calling thread; *failed (may be NULL) gets its worker, -1 when all went well. The
 * crew is usable again afterwards. */
yoke_status yoke_workers_run(yoke_workers *workers, int count, yoke_worker_job job, void *context,
                             int *failed);

/* Inside a job: waits until all workers of this run are here; each of them comes or fails.
 * CANCELLED, without waiting further, when one has failed: nobody waits for the dead. */
yoke_status yoke_workers_barrier(yoke_workers *workers);

/* Inside a job: waits until *counter >= target, CANCELLED as above. The counter is raised with
 * yoke_workers_signal, which wakes waiters. */
yoke_status yoke_workers_await(yoke_workers *workers, const uint32_t *counter, uint32_t target);
void yoke_workers_signal(yoke_workers *workers, uint32_t *counter);
/* Whether it is so already, without waiting. */
bool yoke_workers_reached(const uint32_t *counter, uint32_t target);

#endif
