/* SPDX-License-Identifier: Apache-2.0 */
#include "train/crew.h"

#include <stdlib.h>
#include <string.h>

/* The worker's thread. */

static void *run_worker(void *context) {
    yoke_worker *own = context;
    yoke_crew *crew = own->crew;
    pthread_mutex_lock(&crew->mutex);
    for (;;) {
        while (!crew->ending && (!own->is_busy || own->is_done))
            pthread_cond_wait(&crew->given, &crew->mutex);
        if (crew->ending) break;
        pthread_mutex_unlock(&crew->mutex);
        yoke_error error = yoke_error_take(crew->work(own));
        pthread_mutex_lock(&crew->mutex);
        own->error = error;
        own->order = crew->ends++;
        own->is_done = true;
        pthread_cond_broadcast(&crew->done);
    }
    pthread_mutex_unlock(&crew->mutex);
    return NULL;
}

/* Life. */

static yoke_status open_engine(yoke_worker *own, yoke_run *run, int count) {
    yoke_data_parallel_options engine = run->engine;
    yoke_devices_options one = {.struct_size = sizeof one,
                                .list = run->options.devices,
                                .threads = run->options.threads,
                                .local_rank = own->index,
                                .local_world = count};
    if (engine.straggler != own->index) engine.straggler_factor = 0;
    engine.straggler = 0;
    engine.seed += (uint64_t)own->index; /* of dropout: the weights are the server's */
    TRY(yoke_devices_open(&own->devices, &one));
    TRY(yoke_data_parallel_create(&own->engine, run->model, own->devices, run->options.optimizer,
                                  &engine));
    TRY(yoke_data_parallel_flat(own->engine, &own->flat));
    own->pulled = yoke_malloc(own->flat.elements * sizeof *own->pulled);
    if (own->pulled == NULL)
        return FAIL_MEMORY(own->flat.elements * sizeof *own->pulled, "a device's own weights");
    return YOKE_OK;
}

static yoke_status start(yoke_worker *own) {
    int cause = yoke_thread_start(&own->thread, run_worker, own);
    own->has_thread = cause == 0;
    return cause == 0
               ? YOKE_OK
               : FAIL(YOKE_ERROR_SYSTEM, "cannot start a device's thread: %s", strerror(cause));
}

static yoke_status count_devices(const yoke_run *run, int *count) {
    yoke_devices *all = NULL;
    yoke_devices_options options = {.struct_size = sizeof options,
                                    .list = run->options.devices,
                                    .threads = run->options.threads};
    TRY(yoke_devices_open(&all, &options));
    *count = yoke_devices_count(all);
    yoke_devices_close(all);
    return YOKE_OK;
}

static yoke_status build(yoke_crew *crew, yoke_run *run) {
    int count;
    pthread_mutex_init(&crew->mutex, NULL); /* none of these can fail on Linux */
    pthread_cond_init(&crew->given, NULL);
    pthread_cond_init(&crew->done, NULL);
    TRY(count_devices(run, &count));
    TRY(yoke_data_parallel_flat(run->parallel, &crew->server));
    for (int i = 0; i < count; i++) {
        yoke_worker *worker = &crew->workers[i];
        worker->crew = crew;
        worker->index = i;
        crew->count = i + 1;
        TRY(open_engine(worker, run, count));
        TRY(start(worker));
    }
    return YOKE_OK;
}

yoke_status yoke_crew_create(yoke_crew **crew, yoke_run *run, yoke_crew_work *work) {
    *crew = NULL;
    yoke_crew *made = yoke_calloc(1, sizeof *made);
    if (made == NULL) return FAIL_MEMORY(sizeof *made, "devices that train beside each other");
    made->work = work;
    yoke_status status = build(made, run);
    if (status == YOKE_OK) {
        *crew = made;
        return YOKE_OK;
    }
    yoke_error error = yoke_error_take(status);
    yoke_crew_destroy(made);
    return yoke_error_restore(&error);
}

void yoke_crew_destroy(yoke_crew *crew) {
    if (crew == NULL) return;
    pthread_mutex_lock(&crew->mutex);
    crew->ending = true;
    pthread_cond_broadcast(&crew->given);
    pthread_mutex_unlock(&crew->mutex);
    for (int i = 0; i < crew->count; i++) {
        yoke_worker *worker = &crew->workers[i];
        if (worker->has_thread) pthread_join(worker->thread, NULL);
        yoke_data_parallel_destroy(worker->engine);
        yoke_devices_close(worker->devices);
        yoke_free(worker->pulled);
    }
    pthread_cond_destroy(&crew->done);
    pthread_cond_destroy(&crew->given);
    pthread_mutex_destroy(&crew->mutex);
    yoke_free(crew);
}

/* Work. */

yoke_status yoke_crew_pull(yoke_crew *crew, yoke_worker *worker) {
    const yoke_flat_view *from = &crew->server, *to = &worker->flat;
    memcpy(to->parameters, from->parameters, from->elements * sizeof *to->parameters);
    memcpy(worker->pulled, from->parameters, from->elements * sizeof *worker->pulled);
    if (from->buffer_elements > 0)
        memcpy(to->buffers, from->buffers, from->buffer_elements * sizeof *to->buffers);
    return yoke_data_parallel_wrote_weights(worker->engine);
}

yoke_status yoke_crew_give(yoke_crew *crew, yoke_worker *worker, const yoke_batch *rows) {
    TRY(yoke_data_parallel_scatter(worker->engine, rows));
    pthread_mutex_lock(&crew->mutex);
    worker->is_busy = true;
    worker->is_done = false;
    pthread_cond_broadcast(&crew->given);
    pthread_mutex_unlock(&crew->mutex);
    return YOKE_OK;
}

/* The worker that ended first among those that are done. */
static yoke_worker *first_done(yoke_crew *crew, int index) {
    yoke_worker *first = NULL;
    for (int i = 0; i < crew->count; i++) {
        yoke_worker *one = &crew->workers[i];
        if (!one->is_busy || !one->is_done || (index >= 0 && i != index)) continue;
        if (first == NULL || one->order < first->order) first = one;
    }
    return first;
}

yoke_worker *yoke_crew_take(yoke_crew *crew, int index) {
    yoke_worker *found = NULL;
    bool waits = index >= 0 ? crew->workers[index].is_busy : yoke_crew_busy(crew) > 0;
    pthread_mutex_lock(&crew->mutex);
    while (waits && (found = first_done(crew, index)) == NULL)
        pthread_cond_wait(&crew->done, &crew->mutex);
    if (found != NULL) found->is_busy = found->is_done = false;
    pthread_mutex_unlock(&crew->mutex);
    return found;
}

int yoke_crew_busy(const yoke_crew *crew) {
    int busy = 0;
    for (int i = 0; i < crew->count; i++)
        busy += crew->workers[i].is_busy; /* the caller alone changes it */
    return busy;
}
