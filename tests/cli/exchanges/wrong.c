/* SPDX-License-Identifier: Apache-2.0 */
/* What a student may do: WRONG says what. */
#include <stdlib.h>
#include <yoke/custom_exchange.h>

enum { FORGETS, CRASHES, LOOPS, BEHIND, BEFORE, PEEKS, NOBODY, DIVIDES, FAILS, ABORTS };

yoke_status all_reduce(void *payload, const yoke_bucket_gradients *bucket) {
    float *const *gradients = bucket->gradients;
    volatile int zero = 0;
    (void)payload;
    switch (WRONG) {
    case CRASHES:
        *(volatile int *)0 = 1;
        break;
    case LOOPS:
        while (zero == 0)
            continue;
        break;
    case BEHIND:
        gradients[1][bucket->count] = 1;
        break;
    case BEFORE:
        gradients[1][-1] = 1;
        break;
    case PEEKS:
        for (size_t i = 0; i < bucket->count; i++) {
            float sum = 0;
            for (int k = 0; k < bucket->devices; k++)
                sum += gradients[k][i];
            for (int k = 0; k < bucket->devices; k++)
                gradients[k][i] = sum;
        }
        break;
    case NOBODY:
        return bucket->send(bucket, 0, bucket->devices, 0, bucket->count);
    case DIVIDES:
        return (yoke_status)(1 / zero);
    case FAILS:
        return YOKE_ERROR_PEER;
    case ABORTS:
        abort();
    default:
        break;
    }
    return YOKE_OK;
}
