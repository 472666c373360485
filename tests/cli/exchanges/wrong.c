/* SPDX-License-Identifier: Apache-2.0 */
/* What a student may do: WRONG says what. */
#include <stdlib.h>
#include <yoke/custom_exchange.h>

enum { FORGETS, CRASHES, LOOPS, BEHIND, BEFORE, PEEKS, NOBODY, DIVIDES, FAILS, ABORTS, EXITS };

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
    default:
        break;
    }
    return status;
}
