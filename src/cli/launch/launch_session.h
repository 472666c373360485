/* SPDX-License-Identifier: Apache-2.0 */
/* The workers of a run on this machine: launch_run.c starts and ends them, launch_watch.c waits for
 * them. */
#ifndef CLI_LAUNCH_SESSION_H
#define CLI_LAUNCH_SESSION_H

#include <poll.h>
#include <stdint.h>

#include "cli/launch/launch_guard.h"
#include "cli/launch/launch_worker.h"

/* What the loop watches beside the output of the workers: launch_watch.c. */
enum {
    LAUNCH_SIGNALS,
    LAUNCH_DEATHS,
    LAUNCH_SINKS,
    LAUNCH_CONTROL = LAUNCH_SINKS + 2,
    LAUNCH_WATCHED
};

typedef struct launch_session {
    launch_start start;
    launch_worker *workers; /* [count, or plan->max_ranks if that is more] */
    int count, alive;
    int wanted;             /* ranks, when all of them start again */
    struct pollfd *watched; /* [LAUNCH_WATCHED + 2 for each worker] */
    int signals, deaths;    /* a signalfd; an epoll of pidfds */
    int control;            /* where yoke resize asks; -1: nowhere */
    launch_guard guard;
    int done;              /* workers that ended well */
    int ending;            /* the signal that ends the run; 0: none */
    int presses;           /* SIGINT, SIGTERM and the like so far */
    int passed;            /* the last SIGUSR1 or SIGUSR2, which may end ranks; 0: none */
    bool killed;           /* the launcher has sent SIGKILL */
    int64_t memory_kills;  /* before the ranks started; -1: unknown */
    launch_worker *failed; /* the first that failed */
    bool not_started;      /* its program could not start */
    bool lost;             /* a log is incomplete */
    /* When to kill workers, and when to kill the children they left; 0: never. */
    uint64_t kill_ns, end_ns;
    uint64_t look_ns; /* when to look next whether all workers left are stopped; 0: never */
    int stopped;      /* looks that found them so, one after another */
    launch_sink sinks[2];
} launch_session;

void launch_signal_all(launch_session *session, int number);
/* A worker failed: reports the first failure and sends SIGTERM to the others. */
void launch_fail(launch_session *session, launch_worker *worker, const char *how);
/* Starts a prepared worker. try: 0, or the errno of a failure; start: a failure is the run's. */
int launch_try_one(launch_session *session, launch_worker *worker);
void launch_start_one(launch_session *session, launch_worker *worker);
/* Returns when all workers have ended and all their output is written. */
void launch_watch(launch_session *session);

#endif
