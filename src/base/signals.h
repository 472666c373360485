/* SPDX-License-Identifier: Apache-2.0 */
/* Signals of the host program, kept away from threads that compute: oneDNN's kernels use the stack
 * pointer as an ordinary register (uxlfoundation/oneDNN#4845), so that the kernel of the system
 * would write a handler's frame into the heap. */
#ifndef BASE_SIGNALS_H
#define BASE_SIGNALS_H

#include <stdbool.h>
#include <stdint.h>

/* A sigset_t, whose header brings half of unistd.h along. */
typedef struct yoke_signal_mask {
    uint64_t opaque[16];
} yoke_signal_mask;

/* Blocks every signal but those that a thread's own instructions cause; *before gets the mask that
 * was. Returns whether one of them was open. */
bool yoke_signals_block(yoke_signal_mask *before);
void yoke_signals_restore(const yoke_signal_mask *before);

/* Of the calling thread; pairs may be nested, and the last release restores the mask. hold returns
 * whether a signal was open, and without one it needs no release, which then does nothing. serve:
 * between the two, the handlers of the signals that came meanwhile run now. */
bool yoke_signals_hold(void);
void yoke_signals_release(void);
void yoke_signals_serve(void);

#endif
