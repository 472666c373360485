/* SPDX-License-Identifier: Apache-2.0 */
#include "distributed/mpi/mpi_life.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct yoke_mpi_life {
    const yoke_mpi_calls *calls;
    pthread_t thread;
    sem_t end;
    cpu_set_t cores; /* of the thread, once MPI runs */
    int code;        /* MPI's, of its start */
    atomic_bool started;
};

static void *live(void *context) {
    yoke_mpi_life *life = context;
    life->code = life->calls->initialize();
    if (sched_getaffinity(0, sizeof life->cores, &life->cores) != 0) CPU_ZERO(&life->cores);
    atomic_store(&life->started, true);
    if (life->code != 0) return NULL;
    while (sem_wait(&life->end) != 0 && errno == EINTR)
        ;
    life->calls->finalize();
    return NULL;
}

static void destroy(yoke_mpi_life *life) {
    sem_destroy(&life->end);
    free(life);
}

/* Some launchers leave it to MPI to bind a rank to its cores, and MPI binds the thread that starts
 * it. */
static void follow_binding(const yoke_mpi_life *life, const cpu_set_t *before) {
    if (CPU_COUNT(&life->cores) > 0 && !CPU_EQUAL(&life->cores, before))
        (void)sched_setaffinity(0, sizeof life->cores, &life->cores);
}

yoke_status yoke_mpi_life_begin(yoke_mpi_life **life, const yoke_mpi_calls *calls,
                                yoke_watchdog *watchdog, int *code) {
    cpu_set_t before;
    *life = NULL;
    *code = 0;
    yoke_mpi_life *made = calloc(1, sizeof *made);
    if (made == NULL) return FAIL_MEMORY(sizeof *made, "the thread that starts MPI");
    made->calls = calls;
    sem_init(&made->end, 0, 0);
    if (sched_getaffinity(0, sizeof before, &before) != 0) CPU_ZERO(&before);
    int cause = yoke_thread_start(&made->thread, live, made);
    if (cause != 0) {
        destroy(made);
        return FAIL(YOKE_ERROR_SYSTEM, "cannot start the thread that starts MPI: %s",
                    strerror(cause));
    }
    while (!atomic_load(&made->started))
        TRY(yoke_watchdog_wait(watchdog)); /* the thread keeps what it uses */
    *code = made->code;
    if (made->code == 0) {
        follow_binding(made, &before);
        *life = made;
        return YOKE_OK;
    }
    pthread_join(made->thread, NULL);
    destroy(made);
    return YOKE_OK;
}

void yoke_mpi_life_end(yoke_mpi_life *life) {
    if (life == NULL) return;
    sem_post(&life->end);
    pthread_join(life->thread, NULL);
    destroy(life);
}
