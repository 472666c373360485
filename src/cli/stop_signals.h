/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever asks the process to end ends a run after its step, so that the run saves. */
#ifndef CLI_STOP_SIGNALS_H
#define CLI_STOP_SIGNALS_H

#include <stdbool.h>

#include "yoke/trainer.h"

/* SIGINT, SIGTERM, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE, SIGXFSZ and SIGXCPU stop the
 * trainer; one that the process ignores stays ignored. A second SIGINT, SIGTERM or SIGQUIT ends the
 * process, but not one rank of several: users and launchers may signal it at once, and its launcher
 * sends SIGKILL to those that do not end. */
void stop_signals_begin(yoke_trainer *trainer, bool is_rank);
/* The first signal that came; 0: none. */
int stop_signals_caught(void);
/* Before the trainer is destroyed. After a run that a signal stopped, no signal but those that
 * users send ends the process: its exit code stays, also where the terminal or the pipe is gone. */
void stop_signals_end(void);

#endif
