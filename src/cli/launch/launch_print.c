/* SPDX-License-Identifier: Apache-2.0 */
/* --explain prints the plan, --print-sbatch a script for SLURM; neither starts anything. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/launch/launch_environment.h"
#include "cli/launch/launch_guard.h"

/* --explain */

/* The device that a rank of DDP opens: a GPU by its local rank, or a part of the CPU. */
static const char *device_name(const launch_plan *plan, int rank, char buffer[32]) {
    int local_rank = rank % plan->nproc;
    if (plan->devices.gpus) return plan->devices.names[local_rank % plan->devices.count];
    snprintf(buffer, 32, "cpu:%d", local_rank);
    return buffer;
}

static const char *find_value(const launch_variable *list, int count, const char *name) {
    for (int i = 0; i < count; i++)
        if (strcmp(list[i].name, name) == 0) return list[i].value;
    return "";
}

static void print_table(const launch_plan *plan) {
    launch_variable list[LAUNCH_VARIABLES];
    int world = plan->nproc * plan->nodes, first = plan->node_rank * plan->nproc;
    int count = launch_variables(plan, first, list);
    printf("world    %d = %d process%s x %d node%s\n", world, plan->nproc,
           plan->nproc == 1 ? "" : "es", plan->nodes, plan->nodes == 1 ? "" : "s");
    printf("address  %s port %s\n", plan->host, find_value(list, count, "MASTER_PORT"));
    if (plan->nodes > 1)
        printf("devices  of this machine; other machines may have other devices\n");
    putchar('\n');
    printf("  rank  local rank  node rank  device\n");
    char name[32];
    for (int rank = 0; rank < world; rank++)
        printf("%6d  %10d  %9d  %s\n", rank, rank % plan->nproc, rank / plan->nproc,
               device_name(plan, rank, name));
    printf("\nenvironment of rank %d\n", first);
    for (int i = 0; i < count; i++)
        if (list[i].value[0] != '\0') printf("  %s=%s\n", list[i].name, list[i].value);
}

static void json_rank(yoke_json *json, const launch_plan *plan, int rank) {
    launch_variable list[LAUNCH_VARIABLES];
    char name[32];
    int count = launch_variables(plan, rank, list);
    yoke_json_open(json, NULL, '{');
    yoke_json_integer(json, "rank", rank);
    yoke_json_integer(json, "local_rank", rank % plan->nproc);
    yoke_json_integer(json, "node_rank", rank / plan->nproc);
    yoke_json_text(json, "device", device_name(plan, rank, name));
    yoke_json_open(json, "environment", '{');
    for (int i = 0; i < count; i++)
        if (list[i].value[0] != '\0') yoke_json_text(json, list[i].name, list[i].value);
    yoke_json_close(json, '}');
    yoke_json_close(json, '}');
}

static yoke_status print_json(const launch_plan *plan) {
    yoke_json json;
    yoke_json_begin(&json);
    yoke_json_open(&json, NULL, '{');
    yoke_json_integer(&json, "world", (int64_t)plan->nproc * plan->nodes);
    yoke_json_integer(&json, "nproc_per_node", plan->nproc);
    yoke_json_integer(&json, "nnodes", plan->nodes);
    yoke_json_integer(&json, "node_rank", plan->node_rank);
    yoke_json_text(&json, "address", plan->host);
    if (plan->port > 0)
        yoke_json_integer(&json, "port", plan->port);
    else
        yoke_json_null(&json, "port");
    yoke_json_open(&json, "ranks", '[');
    for (int rank = 0; rank < plan->nproc * plan->nodes; rank++)
        json_rank(&json, plan, rank);
    yoke_json_close(&json, ']');
    yoke_json_close(&json, '}');
    return cli_print_json(&json, stdout);
}

int launch_explain(const launch_plan *plan, const launch_flags *flags) {
    launch_plan shown = *plan;
    if (plan->nodes == 1 && plan->port == 0) {
        char folder[LAUNCH_FOLDER_BYTES];
        launch_folder_template(folder, "launch");
        snprintf(shown.store, sizeof shown.store, "file://%s/0", folder);
    }
    if (plan->nodes == 1 && flags->rdzv_id == NULL)
        snprintf(shown.run_id, sizeof shown.run_id, "<random>");
    if (!flags->json) {
        print_table(&shown);
        return 0;
    }
    yoke_status status = print_json(&shown);
    return status == YOKE_OK ? 0 : cli_fail(status);
}

/* --print-sbatch. Yoke's verbs understand srun, so srun starts every rank of them. Other programs
 * need a launcher: srun starts one `yoke launch` on each node. */

static void print_command(char **command) {
    for (; *command != NULL; command++) {
        putchar(' ');
        cli_print_word(stdout, *command);
    }
}

static void print_sbatch_header(const launch_flags *flags, bool own) {
    int processes = atoi(flags->nproc);
    int gpus = flags->gpus_per_node < 0 ? processes : flags->gpus_per_node;
    printf("#!/bin/bash\n#SBATCH --job-name=yoke\n#SBATCH --nodes=%d\n", flags->nodes);
    if (own)
        printf("#SBATCH --ntasks-per-node=%d    # one process for each device\n", processes);
    else
        printf("#SBATCH --ntasks-per-node=1    # yoke launch starts %d processes\n", processes);
    if (gpus > 0) printf("#SBATCH --gpus-per-node=%d\n", gpus);
    printf("#SBATCH --cpus-per-task=%d    # cores of a task; adapt it to your nodes\n",
           own ? 8 : 8 * processes);
    printf("#SBATCH --time=02:00:00\n#SBATCH --output=%%x-%%j.out\n\n");
}

/* Nodes meet over the network, where anybody can connect: they share a secret. */
static void print_token(void) {
    printf("# Only a process that can read this file may join the run.\n"
           "export YOKE_RDZV_TOKEN_FILE=\"$HOME/.yoke-token.$SLURM_JOB_ID\"\n"
           "( umask 077; head -c 32 /dev/urandom | base64 > \"$YOKE_RDZV_TOKEN_FILE\" )\n"
           "trap 'rm -f \"$YOKE_RDZV_TOKEN_FILE\"' EXIT\n\n");
}

static void print_launch(const launch_flags *flags, char **command) {
    printf(
        "export MASTER_ADDR=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\n"
        "export MASTER_PORT=$((20000 + SLURM_JOB_ID %% 12000))\n"
        "srun --kill-on-bad-exit=1 bash -c 'exec yoke launch --nnodes %d --nproc-per-node %s \\\n"
        "    --node-rank \"$SLURM_NODEID\" --master-addr \"$MASTER_ADDR\" --master-port "
        "\"$MASTER_PORT\" \\\n    --rdzv-id \"$SLURM_JOB_ID\" -- \"$@\"' launch",
        flags->nodes, flags->nproc);
    print_command(command);
    putchar('\n');
}

int launch_print_sbatch(const launch_flags *flags, char **command) {
    bool digits = strspn(flags->nproc, "0123456789") == strlen(flags->nproc);
    if (!digits || atoi(flags->nproc) < 1 || atoi(flags->nproc) > LAUNCH_PROCESSES)
        return cli_usage_error("launch",
                               "--print-sbatch needs --nproc-per-node as a number, 1 to "
                               "%d, not '%s': the nodes may differ from this machine",
                               LAUNCH_PROCESSES, flags->nproc);
    if (command[0] == NULL)
        return cli_usage_error("launch", "--print-sbatch needs a command: -- train ...");
    bool own = cli_find_verb(command[0]) != NULL;
    print_sbatch_header(flags, own);
    if (flags->nodes > 1) print_token();
    if (own) {
        printf("srun --kill-on-bad-exit=1 yoke");
        print_command(command);
        putchar('\n');
    } else {
        print_launch(flags, command);
    }
    return 0;
}
