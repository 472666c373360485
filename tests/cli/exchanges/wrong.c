/* SPDX-License-Identifier: Apache-2.0 */
/* What a student may do: WRONG says what. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <yoke/custom_exchange.h>

enum {
    FORGETS,
    CRASHES,
    LOOPS,
    BEHIND,
    BEFORE,
    PEEKS,
    NOBODY,
    DIVIDES,
    FAILS,
    ABORTS,
    EXITS,
    RESISTS,
    LEAVES,
    WRITES,
    LOADS,
    TRAINS,
    PRINTS,
    SAYS
};

/* Opening a shared object runs this. */
__attribute__((constructor)) static void begin(void) {
    if (WRONG == LOADS) exit(0);
}

/* A process in a session of its own. */
static void leave(void) {
    if (fork() != 0) return;
    setsid();
    if (fork() != 0) _exit(0);
    for (;;)
        pause();
}

static void write_much(void) {
    static char zeros[1 << 20];
    FILE *file = tmpfile();
    for (int i = 0; file != NULL && i < 300; i++)
        fwrite(zeros, 1, sizeof zeros, file);
}

/* No case of the trial has so many. */
static int trains(const yoke_bucket_gradients *bucket) {
    return bucket->count > 4097 && bucket->count != 272474;
}

/* By device 0. */
static yoke_status sum(const yoke_bucket_gradients *bucket) {
    float *const *gradients = bucket->gradients;
    yoke_status status = YOKE_OK;
    for (int k = 1; k < bucket->devices && status == YOKE_OK; k++) {
        status = bucket->send(bucket, k, 0, 0, bucket->count);
        for (size_t i = 0; i < bucket->count; i++)
            gradients[0][i] += bucket->inboxes[0][i];
    }
    for (int k = 1; k < bucket->devices && status == YOKE_OK; k++) {
        if (WRONG != PEEKS) status = bucket->send(bucket, 0, k, 0, bucket->count);
        for (size_t i = 0; i < bucket->count; i++)
            gradients[k][i] = gradients[0][i];
    }
    return status;
}

yoke_status all_reduce(void *payload, const yoke_bucket_gradients *bucket) {
    yoke_status status = YOKE_OK;
    volatile int zero = 0;
    (void)payload;
    if (WRONG != FORGETS) status = sum(bucket);
    switch (WRONG) {
    case CRASHES:
        *(volatile int *)8 = zero;
        break;
    case LOOPS:
        while (zero == 0)
            continue;
        break;
    case BEHIND:
        bucket->gradients[1][bucket->count] = 1;
        break;
    case BEFORE:
        bucket->inboxes[1][-2] = 1;
        break;
    case NOBODY:
        return bucket->send(bucket, 0, bucket->devices, 0, bucket->count);
    case DIVIDES:
        return (yoke_status)(7 / zero);
    case FAILS:
        return YOKE_ERROR_PEER;
    case ABORTS:
        abort();
    case EXITS:
        _Exit(0);
    case RESISTS:
        alarm(0);
        signal(SIGALRM, SIG_IGN);
        signal(SIGTERM, SIG_IGN);
        for (;;)
            pause();
    case LEAVES:
        leave();
        return YOKE_ERROR_PEER;
    case WRITES:
        write_much();
        break;
    case TRAINS:
        if (trains(bucket)) exit(0);
        break;
    case PRINTS:
        puts("{\"model\":");
        fflush(stdout);
        break;
    case SAYS:
        return yoke_error_raise(YOKE_ERROR_PEER, "no route to device %d", bucket->devices - 1);
    default:
        break;
    }
    return status;
}
