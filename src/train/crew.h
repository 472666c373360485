/* SPDX-License-Identifier: Apache-2.0 */
/* Devices that train beside each other, with an engine and a thread each, and the run's own engine,
 * the server, which has the weights that count. The thread that trains gives them work. */
#ifndef TRAIN_CREW_H
#define TRAIN_CREW_H

#include <pthread.h>

#include "train/run.h"

typedef struct yoke_crew yoke_crew;

typedef struct yoke_worker {
    yoke_crew *crew;
    int index;
    yoke_devices *devices;
    yoke_data_parallel *engine;
    yoke_flat_view flat;
    float *pulled;    /* [elements] the server's weights when it pulled them */
    uint64_t version; /* the server's updates then */
    pthread_t thread;
    bool has_thread, is_busy, is_done; /* done: its result waits */
    uint64_t order;                    /* of its end among all */
    double rate;                       /* of a local step */
    yoke_step_result result;
    yoke_error error;
} yoke_worker;

typedef yoke_status yoke_crew_work(yoke_worker *worker); /* on its thread, on scattered rows */

struct yoke_crew {
    int count;
    yoke_worker workers[YOKE_DEVICES_LIMIT];
    yoke_crew_work *work;
    pthread_mutex_t mutex;
    pthread_cond_t given, done;
    uint64_t ends; /* so far */
    bool ending;
    yoke_flat_view server;
};

/* Makes a worker for each device of options.devices; its engine begins with the server's weights.
 */
yoke_status yoke_crew_create(yoke_crew **crew, yoke_run *run, yoke_crew_work *work);
void yoke_crew_destroy(yoke_crew *crew); /* takes NULL */
/* Copies the server's weights and running statistics to the worker. */
yoke_status yoke_crew_pull(yoke_crew *crew, yoke_worker *worker);
/* Copies the rows to the worker and lets it begin. */
yoke_status yoke_crew_give(yoke_crew *crew, yoke_worker *worker, const yoke_batch *rows);
/* Waits for the worker, or for the one that ended first of those that are done, or ends first;
 * NULL: nobody is busy. Its error is the caller's. */
yoke_worker *yoke_crew_take(yoke_crew *crew, int index); /* -1: any */
int yoke_crew_busy(const yoke_crew *crew);

#endif
