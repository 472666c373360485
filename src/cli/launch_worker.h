/* A worker: one rank of this machine, a process and what it writes. */
#ifndef CLI_LAUNCH_WORKER_H
#define CLI_LAUNCH_WORKER_H

#include <signal.h>
#include <sys/types.h>

#include "launch.h"
#include "launch_output.h"

typedef struct launch_worker {
    int rank;
    pid_t pid; /* and its process group; kept until reaped. 0: none */
    int death; /* a pidfd; -1: it has ended */
    int code;  /* of its end: the exit code, or 128 + signal */
    bool killed, core_dumped;
    char prefix[32];
    launch_stream out, err;
} launch_worker;

/* What all workers have in common. */
typedef struct launch_start {
    const launch_plan *plan;
    const launch_flags *flags;
    char **command;
    const char *program;
    launch_sink *out, *err;
    pid_t launcher;
    sigset_t mask; /* of signals, as the launcher found it */
    void (*on_pipe)(int);
} launch_start;

void launch_worker_prepare(launch_worker *worker, const launch_start *start, int rank);
/* Of one that is prepared. -1; otherwise the exit code, all said. */
int launch_worker_open_logs(launch_worker *worker, const launch_start *start);
/* 0 when the program runs; otherwise an errno. */
int launch_worker_start(launch_worker *worker, const launch_start *start);
bool launch_worker_is_alive(const launch_worker *worker);
/* To it and all it started. */
void launch_worker_signal(const launch_worker *worker, int number);
/* It has ended: reads how. What it started may still live, so that its id stays taken. */
void launch_worker_end(launch_worker *worker);
/* Kills what it left and gives the id back. Takes one that was only prepared. */
void launch_worker_reap(launch_worker *worker);

#endif
