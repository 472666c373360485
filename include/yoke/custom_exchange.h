/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * An exchange of the host program: how the gradients of several devices become their sum on each of
 * them. For courses and research; as PyTorch's communication hooks of DDP
 * (register_comm_hook). docs/lesson.md has an exercise.
 */
#ifndef YOKE_CUSTOM_EXCHANGE_H
#define YOKE_CUSTOM_EXCHANGE_H

#include <stddef.h>

#include "yoke/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The gradients of one bucket on all devices. A device sees those of another one only by a
 * send. */
typedef struct yoke_bucket_gradients {
    size_t struct_size;      /**< sizeof(yoke_bucket_gradients) of the library. */
    int devices;             /**< At least 2. */
    int bucket;              /**< Its number, from 0, which is the last layer's. */
    size_t count;            /**< Elements of each array below. */
    float *const *gradients; /**< [devices]: the device's own gradient; in the end, the sum over all
                                  devices. */
    float *const *inboxes;   /**< [devices]: what the last sends have brought. */
    /** Copies elements first .. first + count - 1 of `from`'s gradients to the same place in the
     * inbox of `to`. On modelled links it takes their time, from when what `from` has received of
     * these elements has arrived; sends that do not need each other travel at once. ARGUMENT: there
     * is no such device or element. */
    yoke_status (*send)(const struct yoke_bucket_gradients *bucket, int from, int to, size_t first,
                        size_t count);
    /** The same with elements rounded to bfloat16 on their way: half of the bytes. */
    yoke_status (*send_bfloat16)(const struct yoke_bucket_gradients *bucket, int from, int to,
                                 size_t first, size_t count);
    void *wire; /**< For the two functions. */
} yoke_bucket_gradients;

/** An exchange. */
typedef struct yoke_custom_exchange {
    size_t struct_size; /**< sizeof(yoke_custom_exchange). */
    /** Turns the gradients of a bucket into their sum, on every device. It runs on one thread, one
     * bucket after the other. The sum of device 0 updates the weights. What it returns is what the
     * step returns; yoke_error_raise sets its text. It may not call the engine (ARGUMENT), nor send
     * when it has returned. */
    yoke_status (*all_reduce)(void *payload, const yoke_bucket_gradients *bucket);
    void *payload; /**< Passed to it. */
} yoke_custom_exchange;

/** All zero but the size. */
#define YOKE_CUSTOM_EXCHANGE_INIT                                                                  \
    { sizeof(yoke_custom_exchange), NULL, NULL }

#ifdef __cplusplus
}
#endif

#endif
