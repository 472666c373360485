/* SPDX-License-Identifier: Apache-2.0 */
/* Finds which launcher started this process, from the variables that it sets: one row per launcher,
 * the most specific first. */
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "distributed/rendezvous/slurm.h"
#include "yoke/distributed.h"

typedef enum field {
    RANK,
    WORLD,
    LOCAL_RANK,
    LOCAL_WORLD,
    NODE_RANK,
    NODES,
    ADDRESS,
    PORT,
    RUN,
    FIELDS
} field;

typedef struct launcher {
    const char *source;
    const char *marker; /* the variable that shows this launcher */
    const char *names[FIELDS];
} launcher;

/* PMIx sets no variable for the world size: under srun the step's is the world size. */
static const launcher launchers[] = {
    {"yoke launch",
     "YOKE_RANK",
     {"YOKE_RANK", "YOKE_WORLD_SIZE", "YOKE_LOCAL_RANK", "YOKE_LOCAL_WORLD_SIZE", "YOKE_NODE_RANK",
      "YOKE_NODES", "YOKE_MASTER_ADDR", "YOKE_MASTER_PORT", "YOKE_RUN_ID"}},
    {"torchrun",
     "RANK",
     {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
      "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"}},
    {"Open MPI",
     "OMPI_COMM_WORLD_RANK",
     {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
      "OMPI_COMM_WORLD_LOCAL_SIZE", NULL, NULL, "MASTER_ADDR", "MASTER_PORT", "PMIX_NAMESPACE"}},
    {"PMIx",
     "PMIX_RANK",
     {"PMIX_RANK", "SLURM_STEP_NUM_TASKS", NULL, NULL, NULL, NULL, "MASTER_ADDR", "MASTER_PORT",
      "PMIX_NAMESPACE"}},
    {"Hydra",
     "PMI_RANK",
     {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", NULL, NULL, "MASTER_ADDR",
      "MASTER_PORT", "PMI_JOBID"}},
    {"SLURM",
     "SLURM_STEP_NUM_TASKS",
     {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", NULL, NULL, NULL, NULL, "MASTER_ADDR", "MASTER_PORT",
      NULL}},
    {"Flux",
     "FLUX_TASK_RANK",
     {"FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID", NULL, NULL, "FLUX_JOB_NNODES",
      "MASTER_ADDR", "MASTER_PORT", "FLUX_JOB_ID"}},
    {"PALS",
     "PALS_RANKID",
     {"PALS_RANKID", "PMI_SIZE", "PALS_LOCAL_RANKID", NULL, "PALS_NODEID", NULL, "MASTER_ADDR",
      "MASTER_PORT", "PALS_APID"}},
    {"LSF",
     "JSM_NAMESPACE_RANK",
     {"JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_RANK",
      "JSM_NAMESPACE_LOCAL_SIZE", NULL, NULL, "MASTER_ADDR", "MASTER_PORT", "LSB_JOBID"}},
};
#define LAUNCHERS (sizeof launchers / sizeof launchers[0])
#define RANKS_LIMIT 1000000

typedef struct detection {
    yoke_lookup lookup;
    void *payload;
    const launcher *from;
    yoke_rank_info info;
    bool is_set[FIELDS];
} detection;

/* An empty variable counts as unset. */
static const char *variable(const detection *found, const char *name) {
    const char *text = name == NULL ? NULL : found->lookup(name, found->payload);
    return text == NULL || *text == '\0' ? NULL : text;
}

static yoke_status parse(const char *name, const char *text, int high, int *number) {
    int64_t value;
    if (!yoke_text_integer(text, 0, high, &value))
        return FAIL(YOKE_ERROR_ARGUMENT, "%s is \"%s\": a whole number from 0 to %d is expected",
                    name, text, high);
    *number = (int)value;
    return YOKE_OK;
}

static yoke_status read_named(detection *found, field what, const char *name, int *number) {
    const char *text = variable(found, name);
    if (text == NULL) return YOKE_OK;
    TRY(parse(name, text, what == PORT ? 65535 : RANKS_LIMIT, number));
    found->is_set[what] = true;
    return YOKE_OK;
}

static yoke_status read_number(detection *found, field what, int *number) {
    return read_named(found, what, found->from->names[what], number);
}

static yoke_status read_text(detection *found, field what, char *to, size_t size) {
    const char *name = found->from->names[what], *text = variable(found, name);
    if (text == NULL) return YOKE_OK;
    if (strlen(text) >= size)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s has %zu bytes: at most %zu are allowed", name,
                    strlen(text), size - 1);
    memcpy(to, text, strlen(text) + 1);
    found->is_set[what] = true;
    return YOKE_OK;
}

static yoke_status require(const detection *found, field what) {
    if (found->is_set[what]) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "%s: %s is set but %s is not: set it too, or set YOKE_RANK and YOKE_WORLD_SIZE "
                "instead",
                found->from->source, found->from->marker, found->from->names[what]);
}

static yoke_status read_numbers(detection *found) {
    yoke_rank_info *info = &found->info;
    TRY(read_number(found, RANK, &info->rank));
    TRY(read_number(found, WORLD, &info->world));
    TRY(require(found, RANK));
    TRY(require(found, WORLD));
    TRY(read_number(found, LOCAL_RANK, &info->local_rank));
    TRY(read_number(found, LOCAL_WORLD, &info->local_world));
    TRY(read_number(found, NODE_RANK, &info->node_rank));
    TRY(read_number(found, NODES, &info->nodes));
    TRY(read_text(found, ADDRESS, info->address, sizeof info->address));
    return read_number(found, PORT, &info->port);
}

/* The run id: torchrun's is usually "none", so the port and the number of restarts tell runs apart.
 * The port: torchrun's agent serves its own store at MASTER_PORT as long as the run lasts. */
static yoke_status read_torchrun(detection *found) {
    yoke_rank_info *info = &found->info;
    if (info->world > 1) {
        TRY(require(found, ADDRESS));
        TRY(require(found, PORT));
    }
    const char *id = variable(found, "TORCHELASTIC_RUN_ID");
    const char *restart = variable(found, "TORCHELASTIC_RESTART_COUNT");
    const char *agent = variable(found, "TORCHELASTIC_USE_AGENT_STORE");
    if (id == NULL) return YOKE_OK;
    snprintf(info->run_id, sizeof info->run_id, "%d-%.8s-%.40s", info->port,
             restart == NULL ? "0" : restart, id);
    if (agent != NULL && strcmp(agent, "True") == 0) info->port = 0;
    return YOKE_OK;
}

/* mpirun's address is "jobid;tcp://ip,ip:port"; rank 0 runs on that machine unless a host list says
 * otherwise. */
static void read_mpirun_address(detection *found) {
    const char *uri = variable(found, "OMPI_MCA_orte_hnp_uri");
    const char *begin = uri == NULL ? NULL : strstr(uri, ";tcp://");
    if (begin == NULL || found->is_set[ADDRESS]) return;
    begin += strlen(";tcp://");
    size_t length = strcspn(begin, ",:;");
    if (length >= sizeof found->info.address || *begin == '[') return;
    memcpy(found->info.address, begin, length);
}

static yoke_status read_slurm_places(detection *found) {
    yoke_rank_info *info = &found->info;
    TRY(read_named(found, LOCAL_RANK, "SLURM_LOCALID", &info->local_rank));
    TRY(read_named(found, NODE_RANK, "SLURM_NODEID", &info->node_rank));
    TRY(read_named(found, NODES, "SLURM_STEP_NUM_NODES", &info->nodes));
    const char *name = "SLURM_STEP_TASKS_PER_NODE", *text = variable(found, name);
    if (text == NULL) return YOKE_OK;
    yoke_slurm_tasks tasks;
    if (!yoke_slurm_tasks_parse(text, info->node_rank, &tasks))
        return FAIL(YOKE_ERROR_ARGUMENT, "%s is \"%s\": a list like 4(x2),3 is expected", name,
                    text);
    if (tasks.tasks != info->world)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s is \"%s\", %d tasks in all, but %s says %d", name,
                    text, tasks.tasks, found->from->names[WORLD], info->world);
    if (tasks.on_node == 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s is \"%s\", %d nodes, but SLURM_NODEID is %d", name,
                    text, tasks.nodes, info->node_rank);
    info->local_world = tasks.on_node;
    info->nodes = tasks.nodes;
    found->is_set[LOCAL_WORLD] = found->is_set[NODES] = true;
    return YOKE_OK;
}

/* A SLURM step knows where its tasks run, also under PMI. Hydra starts its own proxies by srun:
 * their step has another size, so ignore it. */
static yoke_status read_slurm_step(detection *found) {
    const char *size = variable(found, "SLURM_STEP_NUM_TASKS");
    const char *job = variable(found, "SLURM_JOB_ID"), *step = variable(found, "SLURM_STEP_ID");
    const char *hosts = variable(found, "SLURM_STEP_NODELIST");
    yoke_rank_info *info = &found->info;
    int64_t tasks;
    if (size == NULL || !yoke_text_integer(size, 0, RANKS_LIMIT, &tasks)) return YOKE_OK;
    if (tasks != info->world) return YOKE_OK;
    TRY(read_slurm_places(found));
    if (hosts == NULL) hosts = variable(found, "SLURM_JOB_NODELIST");
    if (hosts != NULL && !found->is_set[ADDRESS] &&
        !yoke_slurm_first_host(hosts, info->address, sizeof info->address))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "SLURM's list of nodes is \"%s\": cannot read its first host", hosts);
    if (!found->is_set[RUN] && job != NULL)
        snprintf(info->run_id, sizeof info->run_id, "slurm-%.20s.%.20s", job,
                 step == NULL ? "0" : step);
    return YOKE_OK;
}

static int divide_up(int total, int part) {
    return part > 0 ? (total + part - 1) / part : 0;
}

/* Computes what the launcher left out: ranks fill node after node; without any count of nodes, all
 * are on this one. */
static void compute_places(detection *found) {
    yoke_rank_info *info = &found->info;
    const bool *is_set = found->is_set;
    if (!is_set[NODES])
        info->nodes = is_set[LOCAL_WORLD] ? divide_up(info->world, info->local_world) : 1;
    int each = is_set[LOCAL_WORLD] ? info->local_world : divide_up(info->world, info->nodes);
    if (each == 0) return; /* check_places refuses it */
    if (!is_set[NODE_RANK]) info->node_rank = info->rank / each;
    int left = info->world - info->node_rank * each;
    if (!is_set[LOCAL_WORLD]) info->local_world = left > 0 && left < each ? left : each;
    if (!is_set[LOCAL_RANK]) info->local_rank = info->rank % each;
}

/* The variable's name, or plain words if the value was computed. */
static const char *name_of(const detection *found, field what, const char *plain) {
    const char *name = found->from->names[what];
    return name != NULL && found->is_set[what] ? name : plain;
}

static yoke_status check_below(const detection *found, field index, int value, field count,
                               int limit) {
    static const char *const plain[FIELDS] = {
        "the rank", "the world", "the local rank", "the local world", "the node", "the nodes", NULL,
        NULL,       NULL};
    if (value < limit) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "%s: %s is %d but %s is %d: it counts from 0 and must be below",
                found->from->source, name_of(found, index, plain[index]), value,
                name_of(found, count, plain[count]), limit);
}

static yoke_status check_places(const detection *found) {
    const yoke_rank_info *info = &found->info;
    TRY(check_below(found, RANK, info->rank, WORLD, info->world));
    TRY(check_below(found, LOCAL_RANK, info->local_rank, LOCAL_WORLD, info->local_world));
    TRY(check_below(found, NODE_RANK, info->node_rank, NODES, info->nodes));
    if (info->local_world > info->world)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%s: %s is %d but %s is %d: one machine cannot have more ranks than the world",
                    found->from->source, name_of(found, LOCAL_WORLD, "the local world"),
                    info->local_world, name_of(found, WORLD, "the world"), info->world);
    return YOKE_OK;
}

static yoke_status read_launcher(detection *found) {
    yoke_rank_info *info = &found->info;
    snprintf(info->source, sizeof info->source, "%s", found->from->source);
    TRY(read_numbers(found));
    if (strcmp(info->source, "torchrun") == 0) {
        TRY(read_torchrun(found));
    } else {
        TRY(read_text(found, RUN, info->run_id, sizeof info->run_id));
    }
    if (strcmp(info->source, "Open MPI") == 0)
        read_mpirun_address(found);
    else if (strcmp(info->source, "PMIx") == 0 || strcmp(info->source, "Hydra") == 0 ||
             strcmp(info->source, "SLURM") == 0)
        TRY(read_slurm_step(found));
    compute_places(found);
    TRY(check_places(found));
    /* Batch scripts often export WORLD_SIZE for programs that take their rank from elsewhere. */
    const char *name = "WORLD_SIZE", *text = variable(found, name);
    int size = 0;
    if (text == NULL || found->from == &launchers[0] || found->from == &launchers[1])
        return YOKE_OK;
    TRY(parse(name, text, RANKS_LIMIT, &size));
    if (size == found->info.world) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "WORLD_SIZE is %d but %s started %d ranks: unset it, or set RANK too", size,
                found->from->source, found->info.world);
}

/* In a batch script SLURM sets SLURM_NTASKS but starts one process: rank 0 would wait for tasks
 * that nobody started. In an interactive shell that is no mistake. */
static yoke_status check_batch_script(const detection *found) {
    const char *tasks = variable(found, "SLURM_NTASKS"), *job = variable(found, "SLURM_JOB_NAME");
    int64_t count;
    if (variable(found, "SLURM_PROCID") == NULL || tasks == NULL) return YOKE_OK;
    if (!yoke_text_integer(tasks, 2, RANKS_LIMIT, &count)) return YOKE_OK;
    if (job != NULL && (strcmp(job, "bash") == 0 || strcmp(job, "interactive") == 0))
        return YOKE_OK;
    return FAIL(
        YOKE_ERROR_ARGUMENT,
        "srun is missing: SLURM runs a batch script once, and SLURM_NTASKS is %s; put srun before "
        "the command, or request --ntasks=1",
        tasks);
}

/* A world size without a rank means that half of a launcher's variables are missing. */
static yoke_status check_alone(const detection *found) {
    TRY(check_batch_script(found));
    for (size_t i = 0; i < LAUNCHERS; i++) {
        const char *size = launchers[i].names[WORLD], *text = variable(found, size);
        int world = 0;
        if (text == NULL) continue;
        TRY(parse(size, text, RANKS_LIMIT, &world));
        if (world > 1)
            return FAIL(YOKE_ERROR_ARGUMENT, "%s is %d but %s is not set: set it too, or unset %s",
                        size, world, launchers[i].names[RANK], size);
    }
    return YOKE_OK;
}

yoke_status yoke_rank_detect(yoke_rank_info *info, yoke_lookup lookup, void *payload) {
    TRY(yoke_pointer_check(info, "info"));
    if (lookup == NULL) return FAIL(YOKE_ERROR_ARGUMENT, "lookup is NULL");
    detection found = {
        .lookup = lookup,
        .payload = payload,
        .info = {.struct_size = sizeof(yoke_rank_info), .world = 1, .local_world = 1, .nodes = 1}};
    for (size_t i = 0; i < LAUNCHERS && found.from == NULL; i++) {
        if (variable(&found, launchers[i].marker) != NULL) found.from = &launchers[i];
    }
    TRY(found.from == NULL ? check_alone(&found) : read_launcher(&found));
    return yoke_options_store(info, &found.info, sizeof found.info, "yoke_rank_info");
}
