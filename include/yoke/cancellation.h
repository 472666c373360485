/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Ending calls early, from another thread or a signal handler.
 */
#ifndef YOKE_CANCELLATION_H
#define YOKE_CANCELLATION_H

#include "yoke/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A request to end calls. It belongs to the host program and must outlive the calls that use it;
 * zeroed, nothing is requested. */
typedef struct yoke_cancellation {
    int requested; /**< Not 0: calls end. Read and write it by the functions below. */
} yoke_cancellation;

/** Requests that calls which use this cancellation end: those that run, and those to come, until
 * yoke_cancellation_reset. They return CANCELLED within 100 ms behind the kernel, or the callback
 * of the host program, that runs at the moment. A training step that was cancelled has changed
 * nothing. Any thread and any signal handler may call it.
 *
 * @param cancellation  NULL: nothing happens.
 */
YOKE_API void yoke_cancel(yoke_cancellation *cancellation);

/** Withdraws the request.
 *
 * @param cancellation  NULL: nothing happens.
 */
YOKE_API void yoke_cancellation_reset(yoke_cancellation *cancellation);

/** Makes all later calls on this thread use a cancellation, with the work that they give to other
 * threads. yoke_net_options.cancellation does so for the calls of a net.
 *
 * @param cancellation  NULL: none.
 * @return What the thread used before; NULL: none. Give it back when the call is over.
 */
YOKE_API const yoke_cancellation *yoke_cancellation_use(const yoke_cancellation *cancellation);

#ifdef __cplusplus
}
#endif

#endif
