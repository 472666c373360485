/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/signal_stack.h"

#include <stddef.h>

#define STACK_BYTES 65536 /* a frame holds all vector registers: 3 KiB, 11 KiB with AMX */

void cli_handle_signal(int number, void (*handler)(int), int flags, struct sigaction *old) {
    static char memory[STACK_BYTES];
    stack_t stack = {.ss_sp = memory, .ss_size = sizeof memory};
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags | SA_ONSTACK};
    sigaltstack(&stack, NULL);
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, old);
}
