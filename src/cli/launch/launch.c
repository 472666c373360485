/* SPDX-License-Identifier: Apache-2.0 */
/* yoke launch: starts the ranks of a run as processes, as torchrun does. launch_run.c runs them. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/launch/launch.h"
#include "cli/launch/launch_environment.h"

#define AT(field) CLI_FIELD(launch_flags, field)
#define GRACE_S 90 /* longer than the time-out of a rank that waits for another, and then saves */

static const cli_option options[] = {
    {"nproc-per-node", "N", "processes on this machine: a number, auto, cpu or gpu (1)", AT(nproc)},
    {"nnodes", "M", "machines; start one launcher on each (1)", AT(nodes), 1, 100000},
    {"node-rank", "K", "number of this machine, from 0", AT(node_rank), 0, 99999},
    {"master-addr", "HOST", "host of rank 0, for several machines (127.0.0.1)", AT(master_addr)},
    {"master-port", "P", "port that rank 0 listens on, for several machines (a free one)",
     AT(master_port), 1, 65535},
    {"rdzv-id", "ID", "name of the run, the same on all machines (random)", AT(rdzv_id)},
    {"standalone", NULL, "one machine without an address, which is the default", AT(standalone)},
    {"max-restarts", "N", "restart all ranks after a failure, N times at most (0)",
     AT(max_restarts), 0, 1000},
    {"min-ranks", "M",
     "go on when ranks fail, with M at least; --max-restarts then starts these ranks again alone",
     AT(min_ranks), 1, LAUNCH_SURVIVORS},
    {"max-ranks", "N",
     "with --min-ranks: up to how many ranks yoke resize --ranks may start (as many as started)",
     AT(max_ranks), 1, LAUNCH_SURVIVORS},
    {"grace", "S", "seconds that ranks get to end after a failure or a signal (90)", AT(grace_s), 0,
     3600},
    {"log-dir", "DIR", "write all output of rank K to DIR/rank_K.out and DIR/rank_K.err",
     AT(log_dir)},
    {"log-ranks", "LIST", "show the standard output of these ranks: 0,3 or all (0)", AT(log_ranks)},
    {"tee", NULL, "show the output of all ranks, each line with its rank", AT(tee)},
    {"explain", NULL, "show each rank's host and device; start nothing", AT(explain)},
    {"json", NULL, "with --explain: print one JSON object", AT(json)},
    {"print-sbatch", NULL, "print a script for SLURM's sbatch; start nothing", AT(print_sbatch)},
    {"gpus-per-node", "N", "GPUs that the script asks for (as --nproc-per-node)", AT(gpus_per_node),
     0, 1024},
    {"no-python", NULL, NULL, AT(no_python)},
};

const cli_verb launch_verb = {
    .name = "launch",
    .operands = "[--] VERB | PROGRAM [ARGUMENT ...]",
    .summary = "start the processes of a run, on this machine or on several",
    .options = options,
    .option_count = CLI_OPTION_COUNT(options),
    .command = true,
    .more =
        "  yoke launch --nproc-per-node 2 -- train --mode ddp      Yoke's own verbs\n"
        "  yoke launch --nproc-per-node gpu -- ./program           any program\n"
        "  yoke launch --nproc-per-node 4 --nnodes 2 --node-rank 0 --master-addr head\n"
        "      --master-port 29500 -- ./program                    on the first of two machines\n\n"
        "Options and variables are torchrun's. When a rank fails, the launcher stops the others "
        "and\n"
        "exits with the code of that rank, or 128 + its signal (126, 127: it cannot start the\n"
        "program). It passes SIGINT, SIGTERM, SIGHUP and SIGQUIT on to all ranks. After --grace\n"
        "seconds, or at a second signal, it kills those that still run. Several machines share a\n"
        "secret: set YOKE_RDZV_TOKEN, or YOKE_RDZV_TOKEN_FILE to a file of mode 0600.\n"
        "With --min-ranks the ranks of yoke train --mode ddp go on when others fail, on one "
        "machine;\n"
        "yoke resize starts and ends ranks of such a run.\n"};

bool launch_is_listed(const char *list, int rank) {
    if (strcmp(list, "all") == 0) return true;
    for (const char *next = list; next != NULL; next = strchr(next, ',')) {
        if (*next == ',') next++;
        if (atoi(next) == rank) return true;
    }
    return false;
}

static int check_flags(const launch_flags *flags, int words) {
    bool dry = flags->explain || flags->print_sbatch;
    if (flags->explain && flags->print_sbatch)
        return cli_usage_error("launch", "--explain and --print-sbatch: give one at a time");
    if (flags->json && !flags->explain) return cli_usage_error("launch", "--json needs --explain");
    if (words == 0 && !dry)
        return cli_usage_error("launch", "launch needs a command: -- train ..., or -- ./program");
    const char *list = flags->log_ranks;
    bool numbers = strspn(list, "0123456789,") == strlen(list);
    bool gaps = list[0] == ',' || list[strlen(list) - 1] == ',' || strstr(list, ",,") != NULL;
    if (strcmp(list, "all") == 0 || (numbers && !gaps)) return -1;
    return cli_usage_error("launch", "--log-ranks: '%s' is neither all nor a list like 0,3", list);
}

int launch_main(int argc, char **argv) {
    launch_flags flags = {.nproc = "1",
                          .nodes = 1,
                          .node_rank = -1,
                          .log_ranks = "0",
                          .grace_s = GRACE_S,
                          .gpus_per_node = -1};
    launch_plan plan;
    int words = 0, code = cli_parse(&launch_verb, argc, argv, &flags, &words);
    if (code < 0) code = check_flags(&flags, words);
    if (code < 0 && flags.print_sbatch) return launch_print_sbatch(&flags, argv + 1);
    if (code < 0) code = launch_plan_make(&plan, &flags);
    if (code >= 0) return code;
    if (flags.explain) return launch_explain(&plan, &flags);
    rank_token token; /* before any worker starts: each would fail for the same reason */
    code = rank_token_read(&token, "launch");
    return code >= 0 ? code : launch_run(&plan, &flags, argv);
}
