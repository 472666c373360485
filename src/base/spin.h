/* SPDX-License-Identifier: Apache-2.0 */
/* The processor's hint in a loop that waits for another core. */
#ifndef BASE_SPIN_H
#define BASE_SPIN_H

static inline void yoke_spin_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb"); /* takes about as long as x86's pause; most cores skip a yield */
#endif
}

#endif
