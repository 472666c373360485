/* SPDX-License-Identifier: Apache-2.0 */
/* A thread inherits the mask of the thread that starts it, so that no signal reaches it before it
 * could block them itself. */
#include "base/thread.h"

#include "base/signals.h"

int yoke_thread_start(pthread_t *thread, void *(*run)(void *), void *context) {
    yoke_signal_mask before;
    (void)yoke_signals_block(&before);
    int cause = pthread_create(thread, NULL, run, context);
    yoke_signals_restore(&before);
    return cause;
}
