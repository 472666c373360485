/* Which launcher started this process, told by the variables it leaves: one row a launcher, asked
 * in order of how much they say about the run at hand. */
#include <stdio.h>
#include <string.h>

#include "distributed/distributed.h"
#include "distributed/slurm.h"

typedef enum meaning {
    RANK,
    WORLD,
    LOCAL_RANK,
    LOCAL_WORLD,
    NODE_RANK,
    NODES,
    ADDRESS,
    PORT,
    RUN,
    MEANINGS
} meaning;

typedef struct launcher {
    const char *source;
    const char *sign; /* set: this launcher was here */
    const char *names[MEANINGS];
} launcher;

/* PMIx tells no size by a variable: under srun the step's is taken. */
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
    bool told[MEANINGS];
} detection;

/* Empty is as good as unset. */
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

static yoke_status read_named(detection *found, meaning what, const char *name, int *number) {
    const char *text = variable(found, name);
    if (text == NULL) return YOKE_OK;
    TRY(parse(name, text, what == PORT ? 65535 : RANKS_LIMIT, number));
    found->told[what] = true;
    return YOKE_OK;
}

static yoke_status read_number(detection *found, meaning what, int *number) {
    return read_named(found, what, found->from->names[what], number);
}

static yoke_status read_text(detection *found, meaning what, char *to, size_t size) {
    const char *name = found->from->names[what], *text = variable(found, name);
    if (text == NULL) return YOKE_OK;
    if (strlen(text) >= size)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s has %zu bytes, at most %zu are allowed", name,
                    strlen(text), size - 1);
    memcpy(to, text, strlen(text) + 1);
    found->told[what] = true;
    return YOKE_OK;
}

static yoke_status require(const detection *found, meaning what) {
    if (found->told[what]) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "%s: %s is set but %s is not: set it too, or tell who this is by YOKE_RANK and "
                "YOKE_WORLD_SIZE",
                found->from->source, found->from->sign, found->from->names[what]);
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

/* torchrun's agent keeps a store of its own at MASTER_PORT, for as long as the run lives; that port
 * and the count of restarts tell runs apart, "none" being the usual run id. */
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

/* mpirun runs at "jobid;tcp://ip,ip:port", and so does rank 0 unless the hosts say otherwise. */
static void read_mpirun_address(detection *found) {
    const char *uri = variable(found, "OMPI_MCA_orte_hnp_uri");
    const char *begin = uri == NULL ? NULL : strstr(uri, ";tcp://");
    if (begin == NULL || found->told[ADDRESS]) return;
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
    found->told[LOCAL_WORLD] = found->told[NODES] = true;
    return YOKE_OK;
}

/* A step of SLURM knows the places of its tasks, also when they speak PMI. Hydra starts its own
 * proxies by srun: their step, of another size, is none of ours. */
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
    if (hosts != NULL && !found->told[ADDRESS] &&
        !yoke_slurm_first_host(hosts, info->address, sizeof info->address))
        return FAIL(YOKE_ERROR_ARGUMENT, "SLURM's list of nodes, \"%s\", has no first host", hosts);
    if (!found->told[RUN] && job != NULL)
        snprintf(info->run_id, sizeof info->run_id, "slurm-%.20s.%.20s", job,
                 step == NULL ? "0" : step);
    return YOKE_OK;
}

static int divide_up(int total, int part) {
    return part > 0 ? (total + part - 1) / part : 0;
}

/* What the launcher left out, as if ranks were laid node by node; without any word of nodes, on
 * this one. */
static void compute_places(detection *found) {
    yoke_rank_info *info = &found->info;
    const bool *told = found->told;
    if (!told[NODES])
        info->nodes = told[LOCAL_WORLD] ? divide_up(info->world, info->local_world) : 1;
    int each = told[LOCAL_WORLD] ? info->local_world : divide_up(info->world, info->nodes);
    if (each == 0) return; /* refused by check_places */
    if (!told[NODE_RANK]) info->node_rank = info->rank / each;
    int left = info->world - info->node_rank * each;
    if (!told[LOCAL_WORLD]) info->local_world = left > 0 && left < each ? left : each;
    if (!told[LOCAL_RANK]) info->local_rank = info->rank % each;
}

/* Names the meaning by its variable, or plainly when it was computed. */
static const char *name_of(const detection *found, meaning what, const char *plain) {
    const char *name = found->from->names[what];
    return name != NULL && found->told[what] ? name : plain;
}

static yoke_status check_below(const detection *found, meaning index, int value, meaning count,
                               int limit) {
    static const char *const plain[MEANINGS] = {
        "the rank", "the world", "the local rank", "the local world", "the node", "the nodes", NULL,
        NULL,       NULL};
    if (value < limit) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT, "%s: %s is %d but %s is %d: it counts from 0 and stays below",
                found->from->source, name_of(found, index, plain[index]), value,
                name_of(found, count, plain[count]), limit);
}

static yoke_status check_places(const detection *found) {
    const yoke_rank_info *info = &found->info;
    TRY(check_below(found, RANK, info->rank, WORLD, info->world));
    TRY(check_below(found, LOCAL_RANK, info->local_rank, LOCAL_WORLD, info->local_world));
    TRY(check_below(found, NODE_RANK, info->node_rank, NODES, info->nodes));
    if (info->local_world > info->world)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s: %s is %d but %s is %d: a machine holds a part of it",
                    found->from->source, name_of(found, LOCAL_WORLD, "the local world"),
                    info->local_world, name_of(found, WORLD, "the world"), info->world);
    return YOKE_OK;
}

/* WORLD_SIZE is often exported by a batch script for programs that take their rank elsewhere. */
static yoke_status check_world_size(const detection *found) {
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
    return check_world_size(found);
}

/* In a batch script SLURM sets the rank of a task that was never started: rank 0 would wait for
 * ever. A person at a prompt is left alone. */
static yoke_status check_batch_script(const detection *found) {
    const char *tasks = variable(found, "SLURM_NTASKS"), *job = variable(found, "SLURM_JOB_NAME");
    int64_t count;
    if (variable(found, "SLURM_PROCID") == NULL || tasks == NULL) return YOKE_OK;
    if (!yoke_text_integer(tasks, 2, RANKS_LIMIT, &count)) return YOKE_OK;
    if (job != NULL && (strcmp(job, "bash") == 0 || strcmp(job, "interactive") == 0))
        return YOKE_OK;
    return FAIL(
        YOKE_ERROR_ARGUMENT,
        "srun was forgotten: this is SLURM's batch script, which runs once, and SLURM_NTASKS "
        "is %s; put srun before the command, or ask for --ntasks=1",
        tasks);
}

/* Half a launcher: its size without its rank. */
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
        if (variable(&found, launchers[i].sign) != NULL) found.from = &launchers[i];
    }
    TRY(found.from == NULL ? check_alone(&found) : read_launcher(&found));
    return yoke_options_store(info, &found.info, sizeof found.info, "yoke_rank_info");
}
