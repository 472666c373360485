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

/* hold blocks the calling thread's signals, and release restores its mask. Pairs may be nested: the
 * outermost pair counts. hold returns false if all signals were blocked already; it has then
 * changed nothing. Between hold and release, serve runs the handlers of the signals that have come.
 */
bool yoke_signals_hold(void);
void yoke_signals_release(void);
void yoke_signals_serve(void);

#endif
