/* SPDX-License-Identifier: Apache-2.0 */
/* Signal handlers with a stack of their own. oneDNN's kernels on the CPU use the stack pointer as
 * an ordinary register: a handler that ran on it would write into the memory of a layer. */
#ifndef CLI_SIGNAL_STACK_H
#define CLI_SIGNAL_STACK_H

#include <signal.h>

/* Installs a handler for the calling thread's signals; *old, unless NULL, gets what was there.
 * flags: SA_RESTART, or 0. */
void cli_handle_signal(int number, void (*handler)(int), int flags, struct sigaction *old);

#endif
