/* SPDX-License-Identifier: Apache-2.0 */
/* Ends calls of NCCL that wait too long for another rank.
 *
 * Communicators are blocking: a call returns when its work is queued. A non-blocking communicator
 * would never wait, but NCCL begins a thread for each call and group of one, in every step.
 *
 * NCCL fixes at creation whether a communicator is blocking, and its documentation says that only
 * non-blocking ones can be aborted safely: no thread may be inside a call of a communicator that
 * another thread frees. So an abort has two parts, which an NCCL group separates. Inside a group
 * ncclCommAbort raises the flags that end every wait of the host and of the kernels, also that of a
 * communicator which still joins; NCCL frees communicators at the end of the group, and the
 * watchdog ends the group when the call has returned. The group is needed in any case: alone, the
 * abort of one communicator may wait for the work of the next. (NCCL before 2.22 has no aborts in
 * groups: Yoke refuses it.) */
#include "device/cuda/nccl.h"

#include <stdio.h>
#include <string.h>

#ifdef YOKE_HAS_NCCL

#define LOOK_MS 100 /* between two looks at whether a call is in flight */

/* Communicators whose flags are raised, and which end_abort frees. */
static void begin_abort(cuda_nccl_watchdog *watchdog) {
    cuda_nccl()->ncclGroupStart();
    for (int k = 0; k < watchdog->count; k++)
        if (watchdog->communicators[k] != NULL)
            cuda_nccl()->ncclCommAbort(watchdog->communicators[k]);
}

static void end_abort(cuda_nccl_watchdog *watchdog) {
    cuda_nccl()->ncclGroupEnd();
    memset(watchdog->communicators, 0, sizeof watchdog->communicators);
}

void cuda_nccl_abort(cuda_nccl_watchdog *watchdog) {
    begin_abort(watchdog);
    end_abort(watchdog);
}

/* The thread. */

/* Counts looks, not time: a process that was stopped has not waited meanwhile. */
static bool is_overdue(cuda_nccl_watchdog *watchdog) {
    watchdog->looks++;
    if (watchdog->looks < 2) return false; /* the call may have begun just now */
    if (watchdog->check == NULL) return watchdog->looks > watchdog->timeout_ms / LOOK_MS;
    watchdog->error = yoke_error_take(watchdog->check(watchdog->context));
    return watchdog->error.status != YOKE_OK;
}

static void abort_call(cuda_nccl_watchdog *watchdog) {
    watchdog->fired = true;
    begin_abort(watchdog);
    while (watchdog->inside)
        pthread_cond_wait(&watchdog->changed, &watchdog->mutex);
    end_abort(watchdog);
    watchdog->aborted = true;
    pthread_cond_broadcast(&watchdog->changed);
}

static void *watch(void *context) {
    cuda_nccl_watchdog *watchdog = context;
    cudaSetDevice(watchdog->ordinal); /* an abort would make GPU 0 current, and take memory there */
    pthread_mutex_lock(&watchdog->mutex);
    while (!watchdog->stopping && !watchdog->fired) {
        /* Until the next look, or until somebody signals. */
        uint64_t until = yoke_now_ns() + LOOK_MS * (uint64_t)1000000;
        const struct timespec time = {.tv_sec = (time_t)(until / 1000000000u),
                                      .tv_nsec = (long)(until % 1000000000u)};
        pthread_cond_timedwait(&watchdog->changed, &watchdog->mutex, &time);
        if (watchdog->inside && is_overdue(watchdog)) abort_call(watchdog);
    }
    pthread_mutex_unlock(&watchdog->mutex);
    return NULL;
}

yoke_status cuda_nccl_watchdog_start(cuda_nccl_watchdog *watchdog) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&watchdog->mutex, NULL);
    pthread_cond_init(&watchdog->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    int cause = yoke_thread_start(&watchdog->thread, watch, watchdog);
    watchdog->runs = cause == 0;
    if (watchdog->runs) return YOKE_OK;
    pthread_cond_destroy(&watchdog->changed);
    pthread_mutex_destroy(&watchdog->mutex);
    return FAIL(YOKE_ERROR_SYSTEM, "cannot start the thread that watches NCCL: %s; see ulimit -u",
                strerror(cause));
}

void cuda_nccl_watchdog_stop(cuda_nccl_watchdog *watchdog) {
    if (!watchdog->runs) return;
    pthread_mutex_lock(&watchdog->mutex);
    watchdog->stopping = true;
    pthread_cond_broadcast(&watchdog->changed);
    pthread_mutex_unlock(&watchdog->mutex);
    pthread_join(watchdog->thread, NULL);
    pthread_cond_destroy(&watchdog->changed);
    pthread_mutex_destroy(&watchdog->mutex);
}

/* Calls. */

void cuda_nccl_enter(cuda_nccl_watchdog *watchdog) {
    pthread_mutex_lock(&watchdog->mutex);
    watchdog->inside = true;
    watchdog->looks = 0;
    pthread_mutex_unlock(&watchdog->mutex);
}

ncclResult_t cuda_nccl_leave(cuda_nccl_watchdog *watchdog, ncclResult_t result) {
    pthread_mutex_lock(&watchdog->mutex);
    watchdog->inside = false;
    if (watchdog->fired) pthread_cond_broadcast(&watchdog->changed);
    while (watchdog->fired && !watchdog->aborted)
        pthread_cond_wait(&watchdog->changed, &watchdog->mutex);
    pthread_mutex_unlock(&watchdog->mutex);
    return watchdog->fired ? ncclInProgress : result;
}

const char *cuda_nccl_cause(const cuda_nccl_watchdog *watchdog, ncclResult_t result,
                            char text[CUDA_NCCL_CAUSE_BYTES]) {
    if (result != ncclInProgress)
        snprintf(text, CUDA_NCCL_CAUSE_BYTES, "%s (%s)", cuda_nccl()->ncclGetErrorString(result),
                 cuda_nccl()->ncclGetLastError(NULL));
    else if (watchdog->fired)
        snprintf(text, CUDA_NCCL_CAUSE_BYTES, "no answer after %d ms", watchdog->timeout_ms);
    else
        snprintf(text, CUDA_NCCL_CAUSE_BYTES,
                 "the communicator is non-blocking: unset NCCL_COMM_BLOCKING");
    return text;
}

#endif
