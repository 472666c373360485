/* SPDX-License-Identifier: Apache-2.0 */
/* yoke launch, shared by its files: the options, and the plan of which process is which rank. */
#ifndef CLI_LAUNCH_H
#define CLI_LAUNCH_H

#include <stdbool.h>

#define LAUNCH_PROCESSES 1024 /* on one machine */
#define LAUNCH_SURVIVORS 64   /* ranks that can go on without each other */

typedef struct launch_flags {
    const char *nproc, *master_addr, *rdzv_id, *log_dir, *log_ranks;
    int nodes, node_rank, master_port, max_restarts, min_ranks, max_ranks, gpus_per_node;
    double grace_s;
    bool standalone, no_python, tee, explain, json, print_sbatch;
} launch_flags;

/* The devices of this machine, as `yoke devices` names them. */
typedef struct launch_devices {
    int count;
    bool gpus;
    char names[64][32]; /* the first ones */
} launch_devices;

/* A child process opens them: here a GPU's context would stay for the whole run. -1, or the exit
 * code behind a printed error. */
int launch_devices_read(launch_devices *devices);
int launch_core_count(void);

typedef struct launch_plan {
    int nproc, nodes, node_rank;
    char host[256];  /* of rank 0 */
    int port;        /* 0: a free one when the run starts */
    char store[256]; /* of Yoke's ranks; empty: at host and port */
    char run_id[64];
    int restart, max_restarts; /* of all ranks; at most, with those of single ranks */
    int returns;               /* single ranks that started again */
    int min_ranks;   /* with which the run goes on when others fail; 0: it ends with the first */
    int max_ranks;   /* that yoke resize may ask for; 0: no ranks may come */
    int roll_memory; /* a memfd; 0: none */
    char roll[64];   /* its path; empty: none */
    launch_devices devices; /* read only when the plan depends on them */
} launch_plan;

/* From checked flags. -1, or the exit code behind a printed error. */
int launch_plan_make(launch_plan *plan, const launch_flags *flags);
/* Whether `list`, "all" or "0,3", names the rank. */
bool launch_is_listed(const char *list, int rank);

/* --explain and --print-sbatch print, start nothing and return the exit code. command: NULL ends
 * it; may be empty. */
int launch_explain(const launch_plan *plan, const launch_flags *flags);
int launch_print_sbatch(const launch_flags *flags, char **command);

/* Runs argv[1 ..] as the ranks of this machine; returns the exit code behind printed errors. */
int launch_run(launch_plan *plan, const launch_flags *flags, char **argv);

#endif
