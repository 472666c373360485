/* SPDX-License-Identifier: Apache-2.0 */
/* A thread inherits the mask of the thread that starts it, so that no signal reaches it before it
 * could block them itself. */
#include "base/thread.h"

#include <signal.h>
#include <stddef.h>

static void block_signals(sigset_t *before) {
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGPROF};
    sigset_t blocked;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        sigdelset(&blocked, own[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, before);
}

int yoke_thread_start(pthread_t *thread, void *(*run)(void *), void *context) {
    sigset_t before;
    block_signals(&before);
    int cause = pthread_create(thread, NULL, run, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return cause;
}
