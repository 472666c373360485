/* SPDX-License-Identifier: Apache-2.0 */
/* The terminal of the live view. Between two frames the terminal is as the shell left it: no mode
 * is set, no attribute is on, the cursor is visible and stands on an empty line below the frame. So
 * the end of the process, by whatever signal, has nothing to restore. */
#ifndef CLI_LIVE_TERMINAL_H
#define CLI_LIVE_TERMINAL_H

#include <stdbool.h>
#include <sys/types.h>

#include "cli/live/live_picture.h"

typedef struct live_terminal {
    int descriptor; /* that of stderr's terminal, for this program alone; -1: none */
    pid_t owner;    /* the job in the foreground when the run began */
    int height;     /* lines of the frame above the cursor; 0: none that may be drawn over */
    bool is_torn;   /* the last frame ended in the middle */
    bool unicode, color;
} live_terminal;

/* False: stderr is no terminal that can draw. */
bool live_terminal_open(live_terminal *terminal);
void live_terminal_close(live_terminal *terminal);

/* As large as the terminal is now. */
live_canvas live_terminal_canvas(const live_terminal *terminal);
/* Draws over the last frame. A terminal that is stopped, or does not take the frame within 0.2
 * seconds, misses it. Nothing is drawn while another job has the terminal. */
void live_terminal_show(live_terminal *terminal, const live_picture *picture);
/* Removes the frame, so that a message can take its place. */
void live_terminal_erase(live_terminal *terminal);
/* Someone else writes to the terminal now: the next frame comes below. Waits for the end of a frame
 * that another thread draws. A signal handler may call it. */
void live_terminal_disturb(void);

#endif
