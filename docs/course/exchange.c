/* SPDX-License-Identifier: Apache-2.0 */
/* Your own exchange: turn the gradients of several devices into their sum, on every device.
 *
 *     yoke lesson exchange exchange.c
 *
 * says whether the sums are right and how long they take. A device sees the gradients of another
 * one only by
 *
 *     bucket->send(bucket, from, to, first, count)
 *
 * which copies elements first .. first + count - 1 of from's gradients to the same place in the
 * inbox of `to`. Sends that do not need each other travel at once: the elements of a send leave when
 * they have arrived, and each device sends to one other at a time.
 *
 * A ring is as fast as it gets for many elements. With N devices cut the elements into N parts:
 *
 *   1. N - 1 rounds: device d sends part (d - round) to its neighbour d + 1, which adds it to its
 *      own. Then device d has the sum of part (d + 1).
 *   2. N - 1 rounds: device d sends part (d + 1 - round) to its neighbour, which takes it in place of
 *      its own. */
#include <yoke/custom_exchange.h>

/* Part `part` of `parts` begins there; it ends where the next one begins. */
static size_t cut(size_t count, int parts, int part) {
    return count * (size_t)part / (size_t)parts;
}

/* A number that may be negative, as one of 0 .. devices - 1. */
static int around(int number, int devices) {
    return (number % devices + devices) % devices;
}

static yoke_status pass_on(const yoke_bucket_gradients *bucket, int from, int part, int adds) {
    int to = around(from + 1, bucket->devices);
    size_t first = cut(bucket->count, bucket->devices, part);
    size_t end = cut(bucket->count, bucket->devices, part + 1);
    yoke_status status = bucket->send(bucket, from, to, first, end - first);
    (void)adds;
    for (size_t i = first; i < end; i++) {
        /* TODO: add the inbox of `to` to its gradients, or put it in their place. */
    }
    return status;
}

yoke_status all_reduce(void *payload, const yoke_bucket_gradients *bucket) {
    yoke_status status = YOKE_OK;
    (void)payload;
    for (int round = 0; round < bucket->devices - 1; round++)
        for (int d = 0; d < bucket->devices && status == YOKE_OK; d++)
            status = pass_on(bucket, d, around(d - round, bucket->devices), 1);
    /* TODO: the second half. */
    return status;
}
