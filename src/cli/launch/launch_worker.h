/* SPDX-License-Identifier: Apache-2.0 */
/* A worker: the process of one rank, and its output. */
#ifndef CLI_LAUNCH_WORKER_H
#define CLI_LAUNCH_WORKER_H

#include <signal.h>
#include <sys/types.h>

#include "cli/launch/launch.h"
#include "cli/launch/launch_output.h"

typedef struct launch_worker {
    int rank;
    pid_t pid;        /* and its process group, until reaped; 0: none */
    int death;        /* a pidfd; -1: the process has ended */
    int code;         /* the exit code, or 128 + signal */
    int starts;       /* so far */
    bool comes_again; /* it failed, and is to start again */
    bool leaves;      /* yoke resize ended it */
    bool killed, core_dumped;
    bool given_up; /* it was stopped when the others were asked to end, and got SIGKILL */
    char prefix[32];
    launch_stream out, err;
} launch_worker;

/* What all workers share. */
typedef struct launch_start {
    launch_plan *plan;
    const launch_flags *flags;
    char **command;
    const char *program;
    launch_sink *out, *err;
    pid_t launcher;
    sigset_t mask; /* of signals, as the launcher inherited it */
    void (*on_pipe)(int);
} launch_start;

void launch_worker_prepare(launch_worker *worker, const launch_start *start, int rank);
/* Needs a prepared worker. -1, or the exit code behind a printed error. */
int launch_worker_open_logs(launch_worker *worker, const launch_start *start);
/* 0 when the program runs, else an errno. */
int launch_worker_start(launch_worker *worker, const launch_start *start);
bool launch_worker_is_alive(const launch_worker *worker);
/* By a signal, not by a debugger. */
bool launch_worker_is_stopped(const launch_worker *worker);
/* Signals the worker and all its children. */
void launch_worker_signal(const launch_worker *worker, int number);
/* Reads how a worker ended, and keeps its id taken: its children may still live in its group. */
void launch_worker_end(launch_worker *worker);
/* Kills its children and frees its id. Takes a worker that never started, too. */
void launch_worker_reap(launch_worker *worker);
/* "KILL" of SIGKILL; NULL: of no signal with a name. */
const char *launch_signal_name(int number);

#endif
