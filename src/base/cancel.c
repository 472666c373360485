/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cancel.h"

#include <stddef.h>

#include "base/error.h"

static _Thread_local yoke_cancel_scope current;

void yoke_cancel(yoke_cancellation *cancellation) {
    if (cancellation != NULL) __atomic_store_n(&cancellation->requested, 1, __ATOMIC_RELEASE);
}

void yoke_cancellation_reset(yoke_cancellation *cancellation) {
    if (cancellation != NULL) __atomic_store_n(&cancellation->requested, 0, __ATOMIC_RELEASE);
}

const yoke_cancellation *yoke_cancellation_use(const yoke_cancellation *cancellation) {
    const yoke_cancellation *before = current.sources[0];
    current.sources[0] = cancellation;
    return before;
}

yoke_cancel_scope yoke_cancel_scope_of_thread(void) {
    return current;
}

yoke_cancel_scope yoke_cancel_enter(const yoke_cancel_scope *scope) {
    yoke_cancel_scope before = current;
    current = *scope;
    return before;
}

/* The first place is the thread's own. */
yoke_cancel_scope yoke_cancel_add(const yoke_cancellation *source) {
    yoke_cancel_scope before = current;
    for (int i = 1; i < YOKE_CANCEL_SOURCES && source != NULL; i++) {
        if (current.sources[i] != NULL) continue;
        current.sources[i] = source;
        break;
    }
    return before;
}

yoke_cancel_scope yoke_cancel_hold(void) {
    yoke_cancel_scope before = current;
    current.is_held = true;
    return before;
}

yoke_status yoke_check_cancelled(void) {
    for (int i = 0; i < YOKE_CANCEL_SOURCES && !current.is_held; i++) {
        const yoke_cancellation *source = current.sources[i];
        if (source != NULL && __atomic_load_n(&source->requested, __ATOMIC_ACQUIRE) != 0)
            return FAIL(YOKE_ERROR_CANCELLED, "the program cancelled the call");
    }
    return YOKE_OK;
}

bool yoke_can_be_cancelled(void) {
    bool any = false;
    for (int i = 0; i < YOKE_CANCEL_SOURCES; i++)
        any = any || current.sources[i] != NULL;
    return any && !current.is_held;
}
