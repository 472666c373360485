/* SPDX-License-Identifier: Apache-2.0 */
/* The mask of the calling thread. glibc keeps two signals of its own open: 32, which cancels a
 * thread, and 33, by which setuid reaches every thread. */
#include "base/signals.h"

#include <pthread.h>
#include <stddef.h>

static _Thread_local struct {
    int depth;
    sigset_t before;
} held;

static void choose(sigset_t *blocked) {
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGKILL, SIGSTOP};
    sigfillset(blocked);
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        sigdelset(blocked, own[i]);
}

bool yoke_signals_block(sigset_t *before) {
    sigset_t blocked;
    choose(&blocked);
    pthread_sigmask(SIG_SETMASK, &blocked, before);
    for (int number = 1; number < NSIG; number++)
        if (sigismember(&blocked, number) == 1 && sigismember(before, number) == 0) return true;
    return false;
}

bool yoke_signals_hold(void) {
    if (held.depth == 0 && !yoke_signals_block(&held.before)) return false;
    held.depth++;
    return true;
}

void yoke_signals_release(void) {
    if (held.depth == 0 || --held.depth > 0) return;
    pthread_sigmask(SIG_SETMASK, &held.before, NULL);
}

void yoke_signals_serve(void) {
    sigset_t blocked;
    if (held.depth == 0) return;
    pthread_sigmask(SIG_SETMASK, &held.before, &blocked);
    pthread_sigmask(SIG_SETMASK, &blocked, NULL);
}
