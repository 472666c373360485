/* SPDX-License-Identifier: Apache-2.0 */
/* The trainer as one of several ranks: its device, its process group, and stopping together. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/run.h"

/* Opens the device of this rank, one of `world` ranks that share the cores. */
static yoke_status open_device(yoke_trainer *trainer, int rank, int world) {
    yoke_devices_options own = {.struct_size = sizeof own,
                                .list = trainer->options.devices,
                                .threads = trainer->options.threads,
                                .local_rank = rank,
                                .local_world = world,
                                .shards = trainer->engine.shards};
    yoke_devices_close(trainer->devices);
    trainer->devices = NULL;
    return yoke_devices_open(&trainer->devices, &own);
}

/* The cores that a rank may use. */
typedef struct rank_place {
    int64_t node;
    cpu_set_t cores;
} rank_place;
#define PLACE_WORDS (sizeof(rank_place) / sizeof(int64_t))

/* The threads of a rank's device with shards: a share of all cores that ranks of its machine may
 * use, however a launcher has bound them. 0: without shards, or as the options say. */
static int threads_with_shards(const yoke_trainer *trainer, const rank_place *places,
                               const rank_place *own) {
    const yoke_trainer_options *options = &trainer->options;
    cpu_set_t cores;
    if (options->engine->shards <= 0 || options->threads > 0) return options->threads;
    CPU_ZERO(&cores);
    for (int rank = 0; rank < yoke_process_group_world(trainer->ranks); rank++)
        if (places[rank].node == own->node) CPU_OR(&cores, &cores, &places[rank].cores);
    int share = CPU_COUNT(&cores) / options->engine->shards;
    return share > 0 ? share : 1;
}

/* A launcher may have bound ranks to cores. Ranks bound to the same set of cores divide it. */
static yoke_status divide_cores(yoke_trainer *trainer, const yoke_rank_info *info) {
    rank_place own = {.node = info->node_rank};
    int world = yoke_process_group_world(trainer->ranks), before = 0, all = 0;
    rank_place *places = calloc((size_t)world, sizeof *places);
    if (places == NULL) return FAIL_MEMORY((size_t)world * sizeof *places, "the ranks' cores");
    (void)sched_getaffinity(0, sizeof own.cores, &own.cores);
    yoke_status status = yoke_process_group_all_gather(trainer->ranks, places, &own, PLACE_WORDS,
                                                       YOKE_ELEMENT_INT64);
    for (int rank = 0; rank < world && status == YOKE_OK; rank++) {
        if (memcmp(&places[rank], &own, sizeof own) != 0) continue;
        before += rank < info->rank;
        all++;
    }
    int threads = threads_with_shards(trainer, places, &own);
    bool other_threads = status == YOKE_OK && threads != trainer->options.threads;
    free(places);
    TRY(status);
    if (other_threads) {
        trainer->options.threads = threads;
        return open_device(trainer, before, all);
    }
    return before == info->local_rank && all == info->local_world
               ? YOKE_OK
               : open_device(trainer, before, all);
}

static void fill_in_local_ranks(yoke_rank_info *info) {
    if (info->world == 0) info->world = 1;
    if (info->local_world > 0) return;
    info->local_world = info->world;
    info->local_rank = info->rank;
}

yoke_status yoke_trainer_join(yoke_trainer *trainer) {
    if (trainer->options.process_group == NULL)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "mode DDP needs `process_group`, which says which rank this process is");
    yoke_process_group_options options;
    TRY(yoke_options_load(&options, sizeof options, trainer->options.process_group,
                          "yoke_process_group_options"));
    yoke_rank_info rank;
    TRY(yoke_options_load(&rank, sizeof rank, options.rank, "yoke_rank_info"));
    fill_in_local_ranks(&rank);
    options.rank = &rank;
    trainer->node = rank.node_rank;
    TRY(open_device(trainer, rank.local_rank, rank.local_world));
    bool on_host = yoke_devices_share_memory(trainer->devices);
    options.devices = on_host ? NULL : trainer->devices;
    TRY(yoke_process_group_create(&trainer->ranks, &options));
    return on_host ? divide_cores(trainer, &rank) : YOKE_OK;
}

/* The loader loads this rank's rows of each batch. */
void yoke_trainer_set_shard(const yoke_trainer *trainer, yoke_loader_options *loader) {
    if (trainer->ranks == NULL) return;
    loader->rank = yoke_process_group_rank(trainer->ranks);
    loader->world = yoke_process_group_world(trainer->ranks);
    loader->shards = trainer->engine.shards;
}

bool yoke_trainer_writes(const yoke_trainer *trainer) {
    return trainer->ranks == NULL || yoke_process_group_rank(trainer->ranks) == 0;
}

yoke_status yoke_trainer_any(yoke_trainer *trainer, bool *value) {
    int64_t any = *value;
    if (trainer->ranks == NULL) return YOKE_OK;
    TRY(yoke_process_group_all_reduce(trainer->ranks, &any, 1, YOKE_ELEMENT_INT64, YOKE_MAX));
    *value = any != 0;
    return YOKE_OK;
}

yoke_status yoke_trainer_poll(yoke_trainer *trainer, yoke_requests *asked) {
    int64_t any[2] = {atomic_load(&trainer->stopping), yoke_trainer_save_is_due(trainer)};
    yoke_status status = YOKE_OK;
    if (trainer->ranks != NULL)
        status =
            yoke_process_group_all_reduce(trainer->ranks, any, 2, YOKE_ELEMENT_INT64, YOKE_MAX);
    *asked = (yoke_requests){.stop = any[0] != 0, .save = any[1] != 0};
    return status;
}
