/* SPDX-License-Identifier: Apache-2.0 */
#include "distributed/mpi/mpi_thread.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct yoke_mpi_thread {
    const yoke_mpi_calls *calls;
    pthread_t thread;
    sem_t end;
    cpu_set_t cores; /* of the thread, once MPI runs */
    int code;        /* MPI's, of its start */
    atomic_bool started;
};

static void *run_mpi(void *context) {
    yoke_mpi_thread *self = context;
    self->code = self->calls->initialize();
    if (sched_getaffinity(0, sizeof self->cores, &self->cores) != 0) CPU_ZERO(&self->cores);
    atomic_store(&self->started, true);
    if (self->code != 0) return NULL;
    while (sem_wait(&self->end) != 0 && errno == EINTR)
        ;
    self->calls->finalize();
    return NULL;
}

static void destroy(yoke_mpi_thread *self) {
    sem_destroy(&self->end);
    yoke_free(self);
}

yoke_status yoke_mpi_thread_begin(yoke_mpi_thread **self, const yoke_mpi_calls *calls,
                                  yoke_watchdog *watchdog, int *code) {
    cpu_set_t before;
    *self = NULL;
    *code = 0;
    yoke_mpi_thread *made = yoke_calloc(1, sizeof *made);
    if (made == NULL) return FAIL_MEMORY(sizeof *made, "the thread that starts MPI");
    made->calls = calls;
    sem_init(&made->end, 0, 0);
    if (sched_getaffinity(0, sizeof before, &before) != 0) CPU_ZERO(&before);
    int cause = yoke_thread_start(&made->thread, run_mpi, made);
    if (cause != 0) {
        destroy(made);
        return FAIL(YOKE_ERROR_SYSTEM, "cannot start the thread that starts MPI: %s",
                    strerror(cause));
    }
    while (!atomic_load(&made->started))
        TRY(yoke_watchdog_wait(watchdog)); /* the thread keeps what it uses */
    *code = made->code;
    if (made->code == 0) {
        /* Some launchers leave it to MPI to bind a rank to its cores, and MPI binds the thread that
         * starts it. */
        if (CPU_COUNT(&made->cores) > 0 && !CPU_EQUAL(&made->cores, &before))
            (void)sched_setaffinity(0, sizeof made->cores, &made->cores);
        *self = made;
        return YOKE_OK;
    }
    pthread_join(made->thread, NULL);
    destroy(made);
    return YOKE_OK;
}

void yoke_mpi_thread_end(yoke_mpi_thread *self) {
    if (self == NULL) return;
    sem_post(&self->end);
    pthread_join(self->thread, NULL);
    destroy(self);
}
