/* How far a run is: a bar on a terminal, plain lines elsewhere; on stderr. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "yoke/trainer.h"

typedef struct progress {
    bool bar, unicode, silent, drawn;
    int log_every; /* steps from one plain line to the next; 0: by time, and no lines with a bar */
    int epochs;    /* 0: the run is one bar of steps */
    double rate;   /* images a second, smoothed */
    double last_shown; /* seconds since the run began */
    bool begun;
    uint64_t first; /* steps before this run, of the run that it resumes */
} progress;

/* epochs: equal parts of the run; 0 for a run that has a number of steps. */
void progress_begin(progress *view, int epochs, int log_every, bool silent);
void progress_step(progress *view, const yoke_event *event);
/* On a terminal: the work before the first step. */
void progress_note(progress *view, const char *text);
/* Removes the bar or the note, so that a line can take its place. */
void progress_clear(progress *view);

#endif
