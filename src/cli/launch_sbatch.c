/* --print-sbatch: a script for SLURM. Yoke's own verbs understand srun, so srun starts every rank;
 * other programs are started by yoke launch, which srun starts once on each node. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "launch.h"

/* As one word of a shell. */
static void print_word(const char *word) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-+=./,:@%";
    if (word[0] != '\0' && strspn(word, plain) == strlen(word)) {
        fputs(word, stdout);
        return;
    }
    putchar('\'');
    for (; *word != '\0'; word++) {
        if (*word == '\'')
            fputs("'\\''", stdout);
        else
            putchar(*word);
    }
    putchar('\'');
}

static void print_command(char **command) {
    for (; *command != NULL; command++) {
        putchar(' ');
        print_word(*command);
    }
}

static void print_header(const launch_flags *flags, bool own) {
    int processes = atoi(flags->nproc);
    int gpus = flags->gpus_per_node < 0 ? processes : flags->gpus_per_node;
    printf("#!/bin/bash\n#SBATCH --job-name=yoke\n#SBATCH --nodes=%d\n", flags->nodes);
    if (own)
        printf("#SBATCH --ntasks-per-node=%d    # one process for each device\n", processes);
    else
        printf("#SBATCH --ntasks-per-node=1    # yoke launch starts %d processes\n", processes);
    if (gpus > 0) printf("#SBATCH --gpus-per-node=%d\n", gpus);
    printf("#SBATCH --cpus-per-task=%d    # cores of a task; ask for what a node has\n",
           own ? 8 : 8 * processes);
    printf("#SBATCH --time=02:00:00\n#SBATCH --output=%%x-%%j.out\n\n");
}

/* Nodes meet over the network: a secret keeps strangers out. Never on a command line. */
static void print_token(void) {
    printf("# Who may join: whoever can read this file.\n"
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
                               "--print-sbatch needs a number of --nproc-per-node, 1 to "
                               "%d, not '%s': the nodes may be unlike this machine",
                               LAUNCH_PROCESSES, flags->nproc);
    if (command[0] == NULL)
        return cli_usage_error("launch", "--print-sbatch needs a command: -- train ...");
    bool own = cli_find_verb(command[0]) != NULL;
    print_header(flags, own);
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
