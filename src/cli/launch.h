/* yoke launch, shared by its files: what was asked for, and the plan of who is which rank. */
#ifndef CLI_LAUNCH_H
#define CLI_LAUNCH_H

#include <stdbool.h>

#define LAUNCH_PROCESSES 1024                   /* on one machine */
#define LAUNCH_FOLDER "/tmp/yoke-launch-XXXXXX" /* where the ranks of one machine meet */

typedef struct launch_flags {
    const char *nproc, *master_addr, *rdzv_id, *log_dir, *log_ranks;
    int nodes, node_rank, master_port, max_restarts, gpus_per_node;
    double grace_s;
    bool standalone, no_python, tee, explain, json, print_sbatch;
} launch_flags;

/* Devices a rank may be given here, as `yoke devices` names them. */
typedef struct launch_devices {
    int count;
    bool gpus;
    char names[64][32]; /* the first ones */
} launch_devices;

/* Opens them in a process of its own: a GPU's context would stay with the launcher for the whole
 * run. -1; otherwise the exit code, all said. */
int launch_devices_read(launch_devices *devices);
int launch_core_count(void);

typedef struct launch_plan {
    int nproc, nodes, node_rank;
    char host[256];  /* of rank 0, for programs that meet over TCP */
    int port;        /* 0: whatever is free when the run starts */
    char store[256]; /* where Yoke's ranks meet; empty: at host and port */
    char run_id[64];
    int restart, max_restarts;
    launch_devices devices; /* read when something depends on them */
} launch_plan;

/* Reads and checks. -1; otherwise the exit code, all said. */
int launch_plan_make(launch_plan *plan, const launch_flags *flags);
/* Whether a rank is in "all" or "0,3". */
bool launch_is_listed(const char *list, int rank);

/* What a worker finds in its environment; an empty value: the name is taken out of it. */
typedef struct launch_variable {
    char name[32], value[256];
} launch_variable;
#define LAUNCH_VARIABLES 26
int launch_variables(const launch_plan *plan, int rank, launch_variable list[LAUNCH_VARIABLES]);

/* --explain and --print-sbatch start nothing. command: NULL-terminated, may be empty. */
void launch_explain(const launch_plan *plan, const launch_flags *flags);
int launch_print_sbatch(const launch_flags *flags, char **command);

/* Runs argv[1 ..] as the plan's ranks of this machine; the exit code, all said. */
int launch_run(launch_plan *plan, const launch_flags *flags, char **argv);

#endif
