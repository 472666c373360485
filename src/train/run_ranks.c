/* SPDX-License-Identifier: Apache-2.0 */
#include "train/run_ranks.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/run_options.h"

/* Opens the device of this rank, one of `world` ranks that share the cores. */
static yoke_status open_device(yoke_run *run, int rank, int world) {
    yoke_devices_options own = {.struct_size = sizeof own,
                                .list = run->options.devices,
                                .threads = run->options.threads,
                                .local_rank = rank,
                                .local_world = world,
                                .shards = run->engine.shards};
    yoke_devices_close(run->devices);
    run->devices = NULL;
    run->opened_rank = rank;
    run->opened_world = world;
    return yoke_devices_open(&run->devices, &own);
}

/* The cores that a rank may use. */
typedef struct rank_place {
    int64_t node;
    cpu_set_t cores;
} rank_place;
#define PLACE_WORDS (sizeof(rank_place) / sizeof(int64_t))

/* The threads of a rank's device with shards: a share of all cores that ranks of its machine may
 * use, however a launcher has bound them. 0: without shards, or as the options say. */
static int threads_with_shards(const yoke_run *run, const rank_place *places,
                               const rank_place *own) {
    const yoke_trainer_options *options = &run->options;
    cpu_set_t cores;
    if (run->engine.shards <= 0 || options->threads > 0) return options->threads;
    CPU_ZERO(&cores);
    for (int rank = 0; rank < yoke_process_group_world(run->ranks); rank++)
        if (places[rank].node == own->node) CPU_OR(&cores, &cores, &places[rank].cores);
    int share = CPU_COUNT(&cores) / run->engine.shards;
    return share > 0 ? share : 1;
}

/* A launcher may have bound ranks to cores. Ranks bound to the same set of cores divide it. */
static yoke_status divide_cores(yoke_run *run) {
    rank_place own = {.node = run->node};
    int world = yoke_process_group_world(run->ranks), before = 0, all = 0;
    rank_place *places = yoke_calloc((size_t)world, sizeof *places);
    if (places == NULL) return FAIL_MEMORY((size_t)world * sizeof *places, "the ranks' cores");
    (void)sched_getaffinity(0, sizeof own.cores, &own.cores);
    yoke_status status =
        yoke_process_group_all_gather(run->ranks, places, &own, PLACE_WORDS, YOKE_ELEMENT_INT64);
    for (int rank = 0; rank < world && status == YOKE_OK; rank++) {
        if (memcmp(&places[rank], &own, sizeof own) != 0) continue;
        before += rank < yoke_process_group_rank(run->ranks);
        all++;
    }
    int threads = threads_with_shards(run, places, &own);
    yoke_free(places);
    TRY(status);
    if (threads == run->options.threads && before == run->opened_rank && all == run->opened_world)
        return YOKE_OK;
    run->options.threads = threads;
    return open_device(run, before, all);
}

yoke_status yoke_run_join(yoke_run *run) {
    if (run->options.process_group == NULL)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "mode DDP needs `process_group`, which says which rank this process is");
    yoke_process_group_options options;
    TRY(yoke_options_load(&options, sizeof options, run->options.process_group,
                          "yoke_process_group_options"));
    yoke_rank_info rank;
    TRY(yoke_options_load(&rank, sizeof rank, options.rank, "yoke_rank_info"));
    if (rank.world == 0) rank.world = 1;
    if (rank.local_world <= 0) {
        rank.local_world = rank.world;
        rank.local_rank = rank.rank;
    }
    options.rank = &rank;
    run->node = rank.node_rank;
    run->seat = rank.rank;
    TRY(open_device(run, rank.local_rank, rank.local_world));
    bool on_host = yoke_devices_share_memory(run->devices);
    options.devices = on_host ? NULL : run->devices;
    TRY(yoke_process_group_create(&run->ranks, &options));
    return on_host ? divide_cores(run) : YOKE_OK;
}

/* A GPU stays the rank's own; cores are divided anew. */
yoke_status yoke_run_rejoin(yoke_run *run, bool hangs) {
    TRY(yoke_process_group_next(&run->ranks, hangs));
    return yoke_devices_share_memory(run->devices) ? divide_cores(run) : YOKE_OK;
}

/* Compares the options that decide the number of steps and their batches. */
yoke_status yoke_run_check_ranks(const yoke_run *run, size_t test_rows) {
    char *text = NULL;
    size_t bytes = 0;
    if (run->ranks == NULL) return YOKE_OK;
    FILE *lines = yoke_memory_stream(&text, &bytes);
    if (lines != NULL) {
        yoke_options_write_agreed(lines, &yoke_run_options, run);
        fprintf(lines, "test rows %zu\n", test_rows);
    }
    bool complete = lines != NULL && fclose(lines) == 0;
    yoke_status status = complete ? yoke_ranks_agree(run->ranks, text)
                                  : FAIL_MEMORY(bytes, "what the ranks must agree on");
    yoke_free(text);
    return status;
}
