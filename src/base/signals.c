/* SPDX-License-Identifier: Apache-2.0 */
/* The mask of the calling thread. glibc keeps two signals of its own open: 32, which cancels a
 * thread, and 33, by which setuid reaches every thread. */
#include "base/signals.h"

#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>

_Static_assert(sizeof(sigset_t) <= sizeof(yoke_signal_mask), "a mask holds a sigset_t");

static _Thread_local struct {
    int depth;
    yoke_signal_mask before;
} held;

static void choose(sigset_t *blocked) {
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGKILL, SIGSTOP};
    sigfillset(blocked);
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        sigdelset(blocked, own[i]);
}

bool yoke_signals_block(yoke_signal_mask *before) {
    sigset_t blocked, own;
    choose(&blocked);
    pthread_sigmask(SIG_BLOCK, &blocked, &own); /* what the host blocks stays blocked */
    memcpy(before, &own, sizeof own);
    for (int number = 1; number < NSIG; number++)
        if (sigismember(&blocked, number) == 1 && sigismember(&own, number) == 0) return true;
    return false;
}

void yoke_signals_restore(const yoke_signal_mask *before) {
    sigset_t own;
    memcpy(&own, before, sizeof own);
    pthread_sigmask(SIG_SETMASK, &own, NULL);
}

bool yoke_signals_hold(void) {
    if (held.depth == 0 && !yoke_signals_block(&held.before)) return false;
    held.depth++;
    return true;
}

void yoke_signals_release(void) {
    if (held.depth > 0 && --held.depth == 0) yoke_signals_restore(&held.before);
}

void yoke_signals_serve(void) {
    yoke_signal_mask again;
    if (held.depth == 0) return;
    yoke_signals_restore(&held.before);
    (void)yoke_signals_block(&again); /* a handler may not change the mask for good */
}
