/* SPDX-License-Identifier: Apache-2.0 */
/* The exercise of docs/course/exchange.c, solved. */
#include <yoke/custom_exchange.h>

static size_t cut(size_t count, int parts, int part) {
    return count * (size_t)part / (size_t)parts;
}

static int around(int number, int devices) {
    return (number % devices + devices) % devices;
}

static yoke_status pass_on(const yoke_bucket_gradients *bucket, int from, int part, int adds) {
    int to = around(from + 1, bucket->devices);
    size_t first = cut(bucket->count, bucket->devices, part);
    size_t end = cut(bucket->count, bucket->devices, part + 1);
    yoke_status status = bucket->send(bucket, from, to, first, end - first);
    for (size_t i = first; i < end; i++)
        bucket->gradients[to][i] = bucket->inboxes[to][i] + (adds ? bucket->gradients[to][i] : 0);
    return status;
}

yoke_status all_reduce(void *payload, const yoke_bucket_gradients *bucket) {
    yoke_status status = YOKE_OK;
    (void)payload;
    for (int half = 0; half < 2; half++)
        for (int round = 0; round < bucket->devices - 1; round++)
            for (int d = 0; d < bucket->devices && status == YOKE_OK; d++)
                status = pass_on(bucket, d, around(d + half - round, bucket->devices), half == 0);
    return status;
}
