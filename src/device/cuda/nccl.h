/* SPDX-License-Identifier: Apache-2.0 */
/* What groups of one process and communicators of several share of NCCL. */
#ifndef DEVICE_CUDA_NCCL_H
#define DEVICE_CUDA_NCCL_H

#include "device/cuda/cuda.h"

#ifdef YOKE_HAS_NCCL

#include <pthread.h>

#define CUDA_NCCL_TIMEOUT_MS 60000
#define CUDA_NCCL_CAUSE_BYTES 192

static inline cudaStream_t cuda_nccl_stream(yoke_device *device) {
    return cuda_of(device)->streams[YOKE_STREAM_COMMUNICATION];
}

/* "nccl 2.28.9" */
ncclResult_t cuda_nccl_name(char *name, size_t size);

/* The communicators of one thread, and another thread that aborts them when a call on them takes
 * too long. A call that may wait for other ranks stands between enter and leave. */
typedef struct cuda_nccl_watchdog {
    ncclComm_t communicators[YOKE_DEVICES_LIMIT]; /* NULL: not made, aborted or destroyed */
    int count;
    int ordinal; /* of the GPU of one of them */
    /* Whether a call may go on waiting; NULL: until timeout_ms. Only called during a call, by the
     * watchdog's thread. */
    yoke_status (*check)(void *context);
    void *context;
    int timeout_ms;

    pthread_t thread;
    pthread_mutex_t mutex; /* for all that follows, and for check */
    pthread_cond_t changed;
    bool runs, stopping;
    bool inside;         /* a call is in flight */
    int looks;           /* of the thread at this call */
    bool fired, aborted; /* the thread began to abort; it has done so */
    yoke_error error;    /* check's */
} cuda_nccl_watchdog;

/* The caller has set what stands before `thread`. */
yoke_status cuda_nccl_watchdog_start(cuda_nccl_watchdog *watchdog);
void cuda_nccl_watchdog_stop(cuda_nccl_watchdog *watchdog); /* also one that was never started */

void cuda_nccl_enter(cuda_nccl_watchdog *watchdog);
/* The call's result, or ncclInProgress: the watchdog has aborted the communicators. */
ncclResult_t cuda_nccl_leave(cuda_nccl_watchdog *watchdog, ncclResult_t result);

/* Aborts what communicators there are as one group, between calls. */
void cuda_nccl_abort(cuda_nccl_watchdog *watchdog);

/* The text of a failure. */
const char *cuda_nccl_cause(const cuda_nccl_watchdog *watchdog, ncclResult_t result,
                            char text[CUDA_NCCL_CAUSE_BYTES]);

#endif
#endif
