/* Ctrl-C ends a run after its step. */
#ifndef CLI_STOP_SIGNALS_H
#define CLI_STOP_SIGNALS_H

#include "yoke/trainer.h"

/* SIGINT and SIGTERM stop the trainer; a second one ends the process. */
void stop_signals_begin(yoke_trainer *trainer);
/* Before the trainer ends. Returns the signal that came; 0: none. */
int stop_signals_end(void);

#endif
