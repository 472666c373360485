/* SPDX-License-Identifier: Apache-2.0 */
#include "train/run_thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "train/trainer_parts.h"

#define LOOK_NS 50000000 /* between two looks at the thread */

/* Owned by the calling thread, until it leaves the other one behind. */
typedef struct run_thread {
    yoke_trainer *trainer;
    yoke_status (*loop)(yoke_trainer *trainer);
    yoke_cancel_scope cancel; /* of the calling thread */
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t ended;
    bool is_over;
    yoke_error result;
} run_thread;

static yoke_status run_bound(run_thread *own) {
    yoke_trainer *trainer = own->trainer;
    yoke_turns_pass(&trainer->turns);
    TRY(yoke_data_parallel_bind(trainer->run.parallel));
    yoke_status status = own->loop(trainer);
    yoke_data_parallel_unbind(trainer->run.parallel);
    return status;
}

static void *run_thread_main(void *argument) {
    run_thread *own = argument;
    (void)yoke_cancel_enter(&own->cancel);
    yoke_error result = yoke_error_take(run_bound(own));
    pthread_mutex_lock(&own->mutex);
    own->result = result;
    own->is_over = true;
    pthread_cond_signal(&own->ended);
    pthread_mutex_unlock(&own->mutex);
    return NULL;
}

static bool is_over_soon(run_thread *own) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += LOOK_NS;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    pthread_mutex_lock(&own->mutex);
    int waited = 0;
    while (!own->is_over && waited != ETIMEDOUT)
        waited = pthread_cond_timedwait(&own->ended, &own->mutex, &until);
    bool over = own->is_over;
    pthread_mutex_unlock(&own->mutex);
    return over;
}

/* Until the thread ends, or hangs. */
static bool watch(run_thread *own) {
    bool over = false, hangs = false;
    while (!over && !hangs) {
        over = is_over_soon(own);
        hangs = !over && yoke_survival_leave_thread(&own->trainer->survival, &own->trainer->run);
    }
    return hangs;
}

static void run_thread_free(run_thread *own) {
    pthread_cond_destroy(&own->ended);
    pthread_mutex_destroy(&own->mutex);
    yoke_free(own);
}

static yoke_status start(run_thread **started, yoke_trainer *trainer,
                         yoke_status (*loop)(yoke_trainer *trainer)) {
    run_thread *own = yoke_calloc(1, sizeof *own);
    if (own == NULL) return FAIL_MEMORY(sizeof *own, "the thread of the run");
    own->trainer = trainer;
    own->loop = loop;
    own->cancel = yoke_cancel_scope_of_thread();
    pthread_mutex_init(&own->mutex, NULL); /* neither can fail on Linux */
    pthread_cond_init(&own->ended, NULL);
    int cause = yoke_thread_start(&own->thread, run_thread_main, own);
    if (cause == 0) {
        *started = own;
        return YOKE_OK;
    }
    run_thread_free(own);
    return FAIL(YOKE_ERROR_SYSTEM, "cannot start the thread of the run: %s", strerror(cause));
}

/* Nobody can use an engine in which a thread hangs: without other devices the run has none. */
static yoke_status go_on_without_it(yoke_trainer *trainer) {
    yoke_run *run = &trainer->run;
    yoke_status status =
        yoke_survive(trainer, FAIL(YOKE_ERROR_TIMEOUT,
                                   "a device hangs: the calling thread waited for it for longer "
                                   "than the deadline, %g s, and is left behind",
                                   run->engine.deadline));
    if (status == YOKE_OK) {
        yoke_data_parallel_unbind(run->parallel);
        return YOKE_OK;
    }
    yoke_data_parallel_destroy(run->parallel); /* leaves it behind */
    run->parallel = NULL;
    return status;
}

static yoke_status run_on_threads(yoke_trainer *trainer,
                                  yoke_status (*loop)(yoke_trainer *trainer)) {
    run_thread *own = NULL;
    for (;;) {
        TRY(start(&own, trainer, loop));
        if (!watch(own)) break;
        pthread_detach(own->thread); /* it may use `own` as long as it hangs */
        yoke_turns_pass(&trainer->turns);
        TRY(go_on_without_it(trainer));
    }
    pthread_join(own->thread, NULL);
    yoke_error result = own->result;
    run_thread_free(own);
    return yoke_error_restore(&result);
}

yoke_status yoke_run_on_thread(yoke_trainer *trainer, yoke_status (*loop)(yoke_trainer *trainer)) {
    yoke_run *run = &trainer->run;
    if (!run->options.survive || run->engine.deadline == 0 || run->ranks != NULL)
        return loop(trainer);
    yoke_data_parallel_unbind(run->parallel);
    yoke_error result = yoke_error_take(run_on_threads(trainer, loop));
    yoke_turns_pass(&trainer->turns);
    yoke_status bound = run->parallel != NULL ? yoke_data_parallel_bind(run->parallel) : YOKE_OK;
    return result.status != YOKE_OK ? yoke_error_restore(&result) : bound;
}
