/* Who is which rank: flags become numbers, numbers become every worker's variables. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "cli.h"
#include "launch.h"

#define RANKS_LIMIT 1000000

/* From flags. */

static bool is_word(const char *text, const char *word) {
    return strcmp(text, word) == 0;
}

static int parse_nproc(launch_plan *plan, const char *text) {
    static const char *const words[] = {"auto", "cpu", "gpu"};
    char *end;
    errno = 0;
    long number = strtol(text, &end, 10);
    if (end != text && *end == '\0') {
        if (errno != 0 || number < 1 || number > LAUNCH_PROCESSES)
            return cli_usage_error("launch", "--nproc-per-node: '%s' is not from 1 to %d", text,
                                   LAUNCH_PROCESSES);
        plan->nproc = (int)number;
        return -1;
    }
    const char *near = cli_nearest(text, words, 3);
    return cli_usage_error(
        "launch", "--nproc-per-node: '%s' is not a number, auto, cpu or gpu%s%s%s", text,
        near == NULL ? "" : "; did you mean '", near == NULL ? "" : near, near == NULL ? "" : "'?");
}

/* torchrun's words: every GPU, every core, or whichever there is. */
static int count_processes(launch_plan *plan, const launch_flags *flags) {
    const char *text = flags->nproc;
    bool any = is_word(text, "auto"), gpu = is_word(text, "gpu"), cpu = is_word(text, "cpu");
    int code = any || gpu || flags->explain ? launch_devices_read(&plan->devices) : -1;
    if (code >= 0) return code;
    if (!any && !gpu && !cpu) return parse_nproc(plan, text);
    if (gpu && !plan->devices.gpus)
        return cli_usage_error("launch", "--nproc-per-node gpu: there is no usable GPU here; "
                                         "'yoke devices' says why");
    plan->nproc = plan->devices.gpus && !cpu ? plan->devices.count : launch_core_count();
    if (plan->nproc > LAUNCH_PROCESSES) plan->nproc = LAUNCH_PROCESSES;
    return -1;
}

/* What several nodes must be told alike, and this one of itself. */
static int check_nodes(const launch_flags *flags) {
    int nodes = flags->nodes;
    if (flags->standalone)
        return cli_usage_error("launch", "--standalone is for one machine, but --nnodes is %d",
                               nodes);
    if (flags->max_restarts > 0)
        return cli_usage_error("launch",
                               "--max-restarts: %d nodes cannot agree when to start "
                               "again; let the batch system do it",
                               nodes);
    if (flags->explain || flags->print_sbatch) return -1;
    if (flags->node_rank < 0)
        return cli_usage_error("launch",
                               "--nnodes %d needs --node-rank: which of them this is, 0 "
                               "to %d",
                               nodes, nodes - 1);
    if (flags->master_addr == NULL)
        return cli_usage_error("launch",
                               "--nnodes %d needs --master-addr: the host of node 0, the "
                               "same on every node",
                               nodes);
    if (flags->master_port == 0)
        return cli_usage_error("launch",
                               "--nnodes %d needs --master-port: a free port of node 0, "
                               "the same on every node",
                               nodes);
    return -1;
}

static int check_address(const launch_flags *flags) {
    const char *host = flags->master_addr, *id = flags->rdzv_id;
    if (flags->standalone && (host != NULL || flags->master_port != 0))
        return cli_usage_error("launch", "--standalone chooses the address itself: leave out "
                                         "--master-addr and --master-port");
    if (host != NULL && strlen(host) > 255)
        return cli_usage_error("launch", "--master-addr has %zu bytes, at most 255 are possible",
                               strlen(host));
    if (host != NULL && strstr(host, "://") != NULL)
        return cli_usage_error("launch", "--master-addr: '%s' is not a host or an IP", host);
    if (id != NULL && (strlen(id) > 63 || strpbrk(id, "\r\n") != NULL))
        return cli_usage_error("launch", "--rdzv-id is one line of at most 63 bytes, not %zu",
                               strlen(id));
    return -1;
}

static int check_world(const launch_plan *plan) {
    if (plan->node_rank >= plan->nodes)
        return cli_usage_error("launch", "--node-rank is %d but --nnodes is %d: it counts from 0",
                               plan->node_rank, plan->nodes);
    if ((long)plan->nproc * plan->nodes > RANKS_LIMIT)
        return cli_usage_error("launch", "%d processes on each of %d nodes are more than %d",
                               plan->nproc, plan->nodes, RANKS_LIMIT);
    return -1;
}

/* Runs of one machine need not agree on a name: none is like another. */
static void name_run(launch_plan *plan, const launch_flags *flags) {
    uint64_t number = 0;
    if (flags->rdzv_id != NULL || flags->nodes > 1) {
        snprintf(plan->run_id, sizeof plan->run_id, "%s",
                 flags->rdzv_id == NULL ? "none" : flags->rdzv_id);
        return;
    }
    if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number) number = (uintptr_t)plan;
    snprintf(plan->run_id, sizeof plan->run_id, "%016llx", (unsigned long long)number);
}

int launch_plan_make(launch_plan *plan, const launch_flags *flags) {
    *plan = (launch_plan){.nodes = flags->nodes,
                          .node_rank = flags->node_rank < 0 ? 0 : flags->node_rank,
                          .port = flags->master_port,
                          .max_restarts = flags->max_restarts};
    int code = flags->nodes > 1 ? check_nodes(flags) : -1;
    if (code < 0) code = check_address(flags);
    if (code < 0) code = count_processes(plan, flags);
    if (code < 0) code = check_world(plan);
    if (code >= 0) return code;
    const char *otherwise = flags->nodes > 1 ? "<--master-addr>" : "127.0.0.1";
    snprintf(plan->host, sizeof plan->host, "%s",
             flags->master_addr == NULL ? otherwise : flags->master_addr);
    name_run(plan, flags);
    return -1;
}

/* Into variables. */

typedef struct variables {
    launch_variable *list;
    int count;
} variables;

static void add_text(variables *to, const char *name, const char *value) {
    launch_variable *next = &to->list[to->count++];
    snprintf(next->name, sizeof next->name, "%s", name);
    snprintf(next->value, sizeof next->value, "%s", value);
}

static void add_number(variables *to, const char *name, int value) {
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    add_text(to, name, text);
}

static void add_port(variables *to, const char *name, const launch_plan *plan) {
    if (plan->port > 0)
        add_number(to, name, plan->port);
    else
        add_text(to, name, plan->nodes > 1 ? "<--master-port>" : "<free>");
}

/* What torchrun tells, so that its programs run here. A store of the agent there is none: rank 0
 * keeps it. */
static void add_torchrun(variables *to, const launch_plan *plan, int rank) {
    int world = plan->nproc * plan->nodes;
    add_number(to, "LOCAL_RANK", rank % plan->nproc);
    add_number(to, "RANK", rank);
    add_number(to, "GROUP_RANK", rank / plan->nproc);
    add_number(to, "ROLE_RANK", rank);
    add_text(to, "ROLE_NAME", "default");
    add_number(to, "LOCAL_WORLD_SIZE", plan->nproc);
    add_number(to, "WORLD_SIZE", world);
    add_number(to, "GROUP_WORLD_SIZE", plan->nodes);
    add_number(to, "ROLE_WORLD_SIZE", world);
    add_text(to, "MASTER_ADDR", plan->host);
    add_port(to, "MASTER_PORT", plan);
    add_number(to, "TORCHELASTIC_RESTART_COUNT", plan->restart);
    add_number(to, "TORCHELASTIC_MAX_RESTARTS", plan->max_restarts);
    add_text(to, "TORCHELASTIC_RUN_ID", plan->run_id);
    add_text(to, "TORCHELASTIC_USE_AGENT_STORE", "False");
    if (plan->nproc > 1 && getenv("OMP_NUM_THREADS") == NULL) add_text(to, "OMP_NUM_THREADS", "1");
}

static void add_yoke(variables *to, const launch_plan *plan, int rank) {
    bool folder = plan->store[0] != '\0';
    add_number(to, "YOKE_RANK", rank);
    add_number(to, "YOKE_WORLD_SIZE", plan->nproc * plan->nodes);
    add_number(to, "YOKE_LOCAL_RANK", rank % plan->nproc);
    add_number(to, "YOKE_LOCAL_WORLD_SIZE", plan->nproc);
    add_number(to, "YOKE_NODE_RANK", rank / plan->nproc);
    add_number(to, "YOKE_NODES", plan->nodes);
    add_text(to, "YOKE_MASTER_ADDR", folder ? plan->store : plan->host);
    if (folder)
        add_text(to, "YOKE_MASTER_PORT", "");
    else
        add_port(to, "YOKE_MASTER_PORT", plan);
    add_text(to, "YOKE_RUN_ID", plan->run_id);
}

int launch_variables(const launch_plan *plan, int rank, launch_variable list[LAUNCH_VARIABLES]) {
    variables to = {.list = list};
    add_torchrun(&to, plan, rank);
    add_yoke(&to, plan, rank);
    return to.count;
}
