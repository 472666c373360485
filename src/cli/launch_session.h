/* The life of a run's workers on this machine: what launch_run.c begins and ends, and
 * launch_watch.c sees through. */
#ifndef CLI_LAUNCH_SESSION_H
#define CLI_LAUNCH_SESSION_H

#include <poll.h>
#include <stdint.h>

#include "launch_guard.h"
#include "launch_worker.h"

typedef struct launch_session {
    launch_start start;
    launch_worker *workers; /* [count] */
    int count, alive;
    struct pollfd *watched; /* [4 + 2 count] */
    int signals, deaths;    /* a signalfd; an epoll of pidfds, which tells them in order of time */
    launch_guard guard;
    int ending;            /* the signal that ends the run; 0: none */
    int presses;           /* signals that asked for the end */
    launch_worker *failed; /* the first in time */
    bool not_started;      /* ... never became the program */
    bool lost;             /* a log */
    /* When patience ends, with workers and with what they left running; 0: it does not. */
    uint64_t kill_ns, end_ns;
    launch_sink sinks[2];
} launch_session;

uint64_t launch_now_ns(void);
void launch_signal_all(launch_session *session, int number);
/* A worker failed: the first one is told, and the others are asked to end. */
void launch_fail(launch_session *session, launch_worker *worker, const char *how);
/* Until no worker lives and all they wrote has been passed on. */
void launch_watch(launch_session *session);

#endif
