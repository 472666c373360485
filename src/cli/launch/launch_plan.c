/* SPDX-License-Identifier: Apache-2.0 */
/* Which process is which rank: from the flags and the devices of this machine. */
#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/launch/launch.h"

#define RANKS_LIMIT 1000000

/* Devices. */

static yoke_status read_devices(launch_devices *found) {
    yoke_devices *devices = NULL;
    yoke_devices_options options = {.struct_size = sizeof options, .unbound = true, .threads = 1};
    yoke_status status = yoke_devices_open(&devices, &options);
    int names = (int)(sizeof found->names / sizeof found->names[0]);
    if (status != YOKE_OK) return status;
    found->count = yoke_devices_count(devices);
    for (int i = 0; i < found->count && i < names && status == YOKE_OK; i++) {
        yoke_device_info info = {.struct_size = sizeof info};
        status = yoke_devices_describe(devices, i, &info);
        memcpy(found->names[i], info.name, sizeof info.name);
        found->gpus = found->gpus || info.capability > 0;
    }
    yoke_devices_close(devices);
    if (found->count > names) found->count = names;
    return status;
}

/* In the child. */
static int send_devices(int to) {
    launch_devices found = {0};
    yoke_status status = read_devices(&found);
    if (status != YOKE_OK) return cli_fail(status);
    return write(to, &found, sizeof found) == (ssize_t)sizeof found ? 0 : 1;
}

int launch_devices_read(launch_devices *devices) {
    int ends[2], outcome = 0;
    if (pipe(ends) != 0) return cli_system_error("cannot create a pipe");
    pid_t child = fork();
    if (child < 0) return cli_system_error("cannot start a process");
    if (child == 0) _exit(send_devices(ends[1]));
    close(ends[1]);
    ssize_t got = read(ends[0], devices, sizeof *devices);
    close(ends[0]);
    waitpid(child, &outcome, 0);
    if (got == (ssize_t)sizeof *devices) return -1;
    if (WIFEXITED(outcome) && WEXITSTATUS(outcome) != 0) return WEXITSTATUS(outcome);
    fprintf(stderr, "yoke: signal %d ended the process that lists the devices; try yoke devices\n",
            WTERMSIG(outcome));
    return yoke_status_exit_code(YOKE_ERROR_DEVICE);
}

int launch_core_count(void) {
    cpu_set_t cores;
    return sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

/* The plan. */

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
            return cli_usage_error("launch", "--nproc-per-node: '%s' is not a number from 1 to %d",
                                   text, LAUNCH_PROCESSES);
        plan->nproc = (int)number;
        return -1;
    }
    const char *near = yoke_text_nearest(text, words, 3);
    return cli_usage_error(
        "launch", "--nproc-per-node: '%s' is not a number, auto, cpu or gpu%s%s%s", text,
        near == NULL ? "" : "; did you mean '", near == NULL ? "" : near, near == NULL ? "" : "'?");
}

/* As in torchrun: gpu is every GPU, cpu every core, auto the GPUs or else the cores. */
static int count_processes(launch_plan *plan, const launch_flags *flags) {
    const char *text = flags->nproc;
    bool any = is_word(text, "auto"), gpu = is_word(text, "gpu"), cpu = is_word(text, "cpu");
    int code = any || gpu || flags->explain ? launch_devices_read(&plan->devices) : -1;
    if (code >= 0) return code;
    if (!any && !gpu && !cpu) return parse_nproc(plan, text);
    if (gpu && !plan->devices.gpus)
        return cli_usage_error("launch", "--nproc-per-node gpu: no usable GPU here; "
                                         "'yoke devices' says why");
    plan->nproc = plan->devices.gpus && !cpu ? plan->devices.count : launch_core_count();
    if (plan->nproc > LAUNCH_PROCESSES) plan->nproc = LAUNCH_PROCESSES;
    return -1;
}

/* Several nodes need the same address on each, and a rank of their own. */
static int check_nodes(const launch_flags *flags) {
    int nodes = flags->nodes;
    if (flags->standalone)
        return cli_usage_error(
            "launch", "--standalone is for one machine, but --nnodes is %d; leave one out", nodes);
    if (flags->max_restarts > 0)
        return cli_usage_error("launch",
                               "--max-restarts works on one machine, but --nnodes is %d; let the "
                               "batch system restart the job",
                               nodes);
    if (flags->explain || flags->print_sbatch) return -1;
    if (flags->node_rank < 0)
        return cli_usage_error("launch",
                               "--nnodes %d needs --node-rank: the number of this machine, 0 "
                               "to %d",
                               nodes, nodes - 1);
    if (flags->master_addr == NULL)
        return cli_usage_error("launch",
                               "--nnodes %d needs --master-addr: the host of node 0, the "
                               "same on all machines",
                               nodes);
    if (flags->master_port == 0)
        return cli_usage_error("launch",
                               "--nnodes %d needs --master-port: a free port of node 0, "
                               "the same on all machines",
                               nodes);
    return -1;
}

static int check_address(const launch_flags *flags) {
    const char *host = flags->master_addr, *id = flags->rdzv_id;
    if (flags->standalone && (host != NULL || flags->master_port != 0))
        return cli_usage_error("launch", "--standalone chooses the address itself: leave out "
                                         "--master-addr and --master-port");
    if (host != NULL && strlen(host) > 255)
        return cli_usage_error("launch", "--master-addr has %zu bytes; at most 255 are allowed",
                               strlen(host));
    if (host != NULL && strstr(host, "://") != NULL)
        return cli_usage_error("launch", "--master-addr: '%s' is not a host name or an IP address",
                               host);
    if (id != NULL && (strlen(id) > 63 || strpbrk(id, "\r\n") != NULL))
        return cli_usage_error(
            "launch", "--rdzv-id must be one line of at most 63 bytes; it has %zu", strlen(id));
    return -1;
}

static int check_world(const launch_plan *plan) {
    if (plan->node_rank >= plan->nodes)
        return cli_usage_error("launch",
                               "--node-rank is %d but --nnodes is %d; ranks of nodes count from 0",
                               plan->node_rank, plan->nodes);
    if ((long)plan->nproc * plan->nodes > RANKS_LIMIT)
        return cli_usage_error("launch", "%d processes on each of %d nodes are more than %d ranks",
                               plan->nproc, plan->nodes, RANKS_LIMIT);
    return -1;
}

static int check_survivors(launch_plan *plan, const launch_flags *flags) {
    if (flags->max_ranks > 0 && plan->min_ranks == 0)
        return cli_usage_error("launch", "--max-ranks needs --min-ranks, which lets ranks come and "
                                         "go");
    if (plan->min_ranks == 0) return -1;
    if (plan->nodes > 1)
        return cli_usage_error("launch",
                               "--min-ranks works on one machine, but --nnodes is %d; let the "
                               "batch system restart the job",
                               plan->nodes);
    if (plan->nproc > LAUNCH_SURVIVORS)
        return cli_usage_error("launch",
                               "--min-ranks: %d processes; at most %d can go on without "
                               "each other",
                               plan->nproc, LAUNCH_SURVIVORS);
    if (plan->min_ranks > plan->nproc)
        return cli_usage_error("launch", "--min-ranks is %d, but --nproc-per-node is %d",
                               plan->min_ranks, plan->nproc);
    plan->max_ranks = flags->max_ranks > 0 ? flags->max_ranks : plan->nproc;
    if (plan->max_ranks < plan->nproc)
        return cli_usage_error("launch", "--max-ranks is %d, but --nproc-per-node is %d",
                               plan->max_ranks, plan->nproc);
    return -1;
}

/* A run of one machine gets a random name: nobody else needs to know it. */
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
                          .max_restarts = flags->max_restarts,
                          .min_ranks = flags->min_ranks};
    int code = flags->nodes > 1 ? check_nodes(flags) : -1;
    if (code < 0) code = check_address(flags);
    if (code < 0) code = count_processes(plan, flags);
    if (code < 0) code = check_world(plan);
    if (code < 0) code = check_survivors(plan, flags);
    if (code >= 0) return code;
    const char *otherwise = flags->nodes > 1 ? "<--master-addr>" : "127.0.0.1";
    snprintf(plan->host, sizeof plan->host, "%s",
             flags->master_addr == NULL ? otherwise : flags->master_addr);
    name_run(plan, flags);
    return -1;
}
