/* SPDX-License-Identifier: Apache-2.0 */
/* How far a run is: a bar on a terminal, plain lines elsewhere; on stderr. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "yoke/trainer.h"

typedef struct progress progress;

/* Draws a run in place of the bar; all NULL: the bar. */
typedef struct progress_drawer {
    /* Draws over its last picture. False: there is no room; plain lines take its place. */
    bool (*draw)(void *context, const progress *view, const yoke_event *event);
    void (*erase)(void *context);
    void *context;
    double seconds; /* from one picture to the next */
} progress_drawer;

struct progress {
    bool bar, unicode, silent, drawn;
    bool no_room;  /* the drawer has none */
    int log_every; /* steps from one plain line to the next; 0: by time, and no lines with a bar */
    int epochs;    /* 0: the run is one bar of steps */
    double rate;   /* rows a second, smoothed */
    const char *unit;             /* of the rate: "img/s" */
    double last_drawn, last_line; /* seconds since the run began */
    bool begun;
    uint64_t first;  /* steps before this run, of the run that it resumes */
    yoke_event last; /* step */
    progress_drawer drawer;
};

/* epochs: equal parts of the run; 0 for a run that has a number of steps. */
void progress_begin(progress *view, int epochs, int log_every, bool silent);
void progress_step(progress *view, const yoke_event *event);
/* On a terminal: the work before the first step. */
void progress_note(progress *view, const char *text);
/* Removes the bar or the note, so that a line can take its place. */
void progress_clear(progress *view);
/* The run is over. is_whole: the last step is drawn by a drawer, and stays. Otherwise what it drew
 * last stays. The bar goes. */
void progress_end(progress *view, bool is_whole);

/* For drawers. The part of the run that the bar shows: this epoch, or all steps. */
typedef struct progress_part {
    char name[48];
    uint64_t done, all; /* steps */
} progress_part;
progress_part progress_part_of(const progress *view, const yoke_event *event);
double progress_seconds_left(const progress *view, const yoke_event *event);
/* "03:25", "1:03:25". */
const char *progress_clock_text(double seconds, char text[16]);

#endif
