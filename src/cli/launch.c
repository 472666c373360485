/* yoke launch: starts the ranks of a run as processes, as torchrun does; see launch_run.c for what
 * happens while they live. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "launch.h"
#include "rank_options.h"

#define AT(field) offsetof(launch_flags, field)

static const cli_option options[] = {
    {"nproc-per-node", "N", "processes on this machine: a number, auto, cpu or gpu (1)", CLI_TEXT,
     AT(nproc), 0, 0},
    {"nnodes", "M", "machines, each with a launcher and as many processes (1)", CLI_INTEGER,
     AT(nodes), 1, 100000},
    {"node-rank", "K", "which of them this is, from 0", CLI_INTEGER, AT(node_rank), 0, 99999},
    {"master-addr", "HOST", "where rank 0 is, for several machines (127.0.0.1)", CLI_TEXT,
     AT(master_addr), 0, 0},
    {"master-port", "P", "where it listens; one machine needs none (one that is free)", CLI_INTEGER,
     AT(master_port), 1, 65535},
    {"rdzv-id", "ID", "name of the run (random)", CLI_TEXT, AT(rdzv_id), 0, 0},
    {"standalone", NULL, "one machine, no address (what happens without --nnodes anyway)", CLI_FLAG,
     AT(standalone), 0, 0},
    {"max-restarts", "N", "times all ranks are started again after a failure (0)", CLI_INTEGER,
     AT(max_restarts), 0, 1000},
    {"grace", "S", "seconds from SIGTERM to SIGKILL for the others after a failure (5)", CLI_REAL,
     AT(grace_s), 0, 3600},
    {"log-dir", "DIR", "keep all output in DIR/rank_K.out and DIR/rank_K.err", CLI_TEXT,
     AT(log_dir), 0, 0},
    {"log-ranks", "LIST", "ranks whose standard output is shown: 0,3 or all (0)", CLI_TEXT,
     AT(log_ranks), 0, 0},
    {"tee", NULL, "show every rank's output, each line with its rank", CLI_FLAG, AT(tee), 0, 0},
    {"explain", NULL, "print who would be which rank, and start nothing", CLI_FLAG, AT(explain), 0,
     0},
    {"json", NULL, "with --explain: as one JSON object", CLI_FLAG, AT(json), 0, 0},
    {"print-sbatch", NULL, "print a script for SLURM's sbatch, and start nothing", CLI_FLAG,
     AT(print_sbatch), 0, 0},
    {"gpus-per-node", "N", "for that script (as --nproc-per-node)", CLI_INTEGER, AT(gpus_per_node),
     0, 1024},
    {"no-python", NULL, NULL, CLI_FLAG, AT(no_python), 0, 0},
};

const cli_verb launch_verb = {
    .name = "launch",
    .operands = "[--] VERB | PROGRAM [ARGUMENT ...]",
    .summary = "start a run of several processes, on this machine or on each of several",
    .options = options,
    .option_count = CLI_OPTION_COUNT(options),
    .command = true,
    .more =
        "  yoke launch --nproc-per-node 2 -- train --mode ddp      Yoke's own verbs\n"
        "  yoke launch --nproc-per-node gpu -- ./program           any program\n"
        "  yoke launch --nproc-per-node 4 --nnodes 2 --node-rank 0 --master-addr head\n"
        "      --master-port 29500 -- ./program                    on the first of two machines\n\n"
        "Options and variables are torchrun's. The first rank that fails stops the others; its "
        "exit\n"
        "code, or 128 + the signal that ended it, is the launcher's (126, 127: the program can't "
        "be\n"
        "started). SIGINT and SIGTERM go on to all ranks, a second one ends them at once. Several\n"
        "machines share a secret: YOKE_RDZV_TOKEN, or YOKE_RDZV_TOKEN_FILE, a file of mode "
        "0600.\n"};

bool launch_is_listed(const char *list, int rank) {
    if (strcmp(list, "all") == 0) return true;
    for (const char *next = list; next != NULL; next = strchr(next, ',')) {
        if (*next == ',') next++;
        if (atoi(next) == rank) return true;
    }
    return false;
}

static int check_list(const char *list) {
    bool numbers = strspn(list, "0123456789,") == strlen(list);
    bool gaps = list[0] == ',' || list[strlen(list) - 1] == ',' || strstr(list, ",,") != NULL;
    if (strcmp(list, "all") == 0 || (numbers && !gaps)) return -1;
    return cli_usage_error("launch", "--log-ranks: '%s' is not all, nor a list like 0,3", list);
}

static int check_flags(const launch_flags *flags, int words) {
    bool dry = flags->explain || flags->print_sbatch;
    if (flags->explain && flags->print_sbatch)
        return cli_usage_error("launch", "--explain or --print-sbatch: one at a time");
    if (flags->json && !flags->explain)
        return cli_usage_error("launch", "--json goes with --explain");
    if (words == 0 && !dry)
        return cli_usage_error("launch", "launch needs a command: -- train ..., or -- ./program");
    return check_list(flags->log_ranks);
}

/* A worker would find it wrong too, after all had been started. */
static int check_token(void) {
    rank_token token;
    return rank_token_read(&token, "launch");
}

int launch_main(int argc, char **argv) {
    launch_flags flags = {.nproc = "1",
                          .nodes = 1,
                          .node_rank = -1,
                          .log_ranks = "0",
                          .grace_s = 5,
                          .gpus_per_node = -1};
    launch_plan plan;
    int words = 0, code = cli_parse(&launch_verb, argc, argv, &flags, &words);
    if (code < 0) code = check_flags(&flags, words);
    if (code < 0 && flags.print_sbatch) return launch_print_sbatch(&flags, argv + 1);
    if (code < 0) code = launch_plan_make(&plan, &flags);
    if (code >= 0) return code;
    if (flags.explain) {
        launch_explain(&plan, &flags);
        return 0;
    }
    code = check_token();
    return code >= 0 ? code : launch_run(&plan, &flags, argv);
}
