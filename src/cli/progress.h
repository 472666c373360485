/* How far a run is: a bar on a terminal, plain lines elsewhere; on stderr. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "yoke/trainer.h"

typedef struct progress {
    bool bar, unicode, silent, drawn;
    int log_every;     /* plain lines every so many steps; 0: by time, and none beside a bar */
    int epochs;        /* 0: the run is one bar of steps */
    double rate;       /* images a second, smoothed */
    double last_shown; /* seconds since the run began */
} progress;

/* epochs: into how many equal parts the run's steps fall; 0 when steps were asked for. */
void progress_begin(progress *view, int epochs, int log_every, bool silent);
void progress_step(progress *view, const yoke_event *event);
/* On a terminal: what is being done while there is no step yet. */
void progress_note(progress *view, const char *text);
/* Takes the bar or the note away, so that a line can be printed in its place. */
void progress_clear(progress *view);

#endif
