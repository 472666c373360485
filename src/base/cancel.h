/* SPDX-License-Identifier: Apache-2.0 */
/* Which requests end the calls of a thread (yoke/cancellation.h). A call's work checks them between
 * two operations, measurements or rows; threads that work for a call take over its thread's. */
#ifndef BASE_CANCEL_H
#define BASE_CANCEL_H

#include <stdbool.h>
#include <stdint.h>

#include "yoke/cancellation.h"

#define YOKE_CANCEL_SOURCES 3
/* How long a waiting thread sleeps before it looks again. */
#define YOKE_CANCEL_LOOK_NS 20000000u

/* The requests that a thread checks; zeroed: none. */
typedef struct yoke_cancel_scope {
    const yoke_cancellation *sources[YOKE_CANCEL_SOURCES]; /* NULL: none */
    bool is_held; /* nothing ends now: what is in progress must not stay half done */
} yoke_cancel_scope;

yoke_cancel_scope yoke_cancel_scope_of_thread(void);
/* Makes `scope` the thread's; returns the one before, to be given back. */
yoke_cancel_scope yoke_cancel_enter(const yoke_cancel_scope *scope);
/* Adds a source to the thread's scope; NULL: nothing changes. Returns the one before. */
yoke_cancel_scope yoke_cancel_add(const yoke_cancellation *source);
/* Until the scope that it returns is entered again, nothing ends. */
yoke_cancel_scope yoke_cancel_hold(void);

/* CANCELLED: one of the thread's requests was made. */
yoke_status yoke_check_cancelled(void);
/* Whether the thread has requests to look at, so that it may not sleep for long. */
bool yoke_can_be_cancelled(void);

#endif
