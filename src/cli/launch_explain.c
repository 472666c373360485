/* --explain: the plan as a table, or as JSON; nothing is started. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "launch.h"

/* As a rank of DDP opens its own: GPUs are dealt out, a CPU is divided. */
static const char *device_name(const launch_plan *plan, int rank, char buffer[32]) {
    int local_rank = rank % plan->nproc;
    if (plan->devices.gpus) return plan->devices.names[local_rank % plan->devices.count];
    snprintf(buffer, 32, "cpu:%d", local_rank);
    return buffer;
}

/* As the first worker is told it. */
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
    if (plan->nodes > 1) printf("devices  of this machine; the others' may differ\n");
    putchar('\n');
    printf("  rank  local rank  node rank  device\n");
    char name[32];
    for (int rank = 0; rank < world; rank++)
        printf("%6d  %10d  %9d  %s\n", rank, rank % plan->nproc, rank / plan->nproc,
               device_name(plan, rank, name));
    printf("\nrank %d finds\n", first);
    for (int i = 0; i < count; i++)
        if (list[i].value[0] != '\0') printf("  %s=%s\n", list[i].name, list[i].value);
}

static void emit_rank(emit *json, const launch_plan *plan, int rank) {
    launch_variable list[LAUNCH_VARIABLES];
    char name[32];
    int count = launch_variables(plan, rank, list);
    emit_open(json, NULL, '{');
    emit_integer(json, "rank", rank);
    emit_integer(json, "local_rank", rank % plan->nproc);
    emit_integer(json, "node_rank", rank / plan->nproc);
    emit_text(json, "device", device_name(plan, rank, name));
    emit_open(json, "environment", '{');
    for (int i = 0; i < count; i++)
        if (list[i].value[0] != '\0') emit_text(json, list[i].name, list[i].value);
    emit_close(json, '}');
    emit_close(json, '}');
}

static void print_json(const launch_plan *plan) {
    emit json;
    emit_begin(&json, stdout);
    emit_open(&json, NULL, '{');
    emit_integer(&json, "world", (int64_t)plan->nproc * plan->nodes);
    emit_integer(&json, "nproc_per_node", plan->nproc);
    emit_integer(&json, "nnodes", plan->nodes);
    emit_integer(&json, "node_rank", plan->node_rank);
    emit_text(&json, "address", plan->host);
    emit_real(&json, "port", plan->port > 0 ? plan->port : (double)NAN);
    emit_open(&json, "ranks", '[');
    for (int rank = 0; rank < plan->nproc * plan->nodes; rank++)
        emit_rank(&json, plan, rank);
    emit_close(&json, ']');
    emit_close(&json, '}');
    emit_end(&json);
}

void launch_explain(const launch_plan *plan, const launch_flags *flags) {
    launch_plan shown = *plan;
    if (plan->nodes == 1 && plan->port == 0)
        snprintf(shown.store, sizeof shown.store, "file://%s/0", LAUNCH_FOLDER);
    if (plan->nodes == 1 && flags->rdzv_id == NULL)
        snprintf(shown.run_id, sizeof shown.run_id, "<random>");
    if (flags->json)
        print_json(&shown);
    else
        print_table(&shown);
}
