/* SPDX-License-Identifier: Apache-2.0 */
#include "train/run_ranks.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/run_facts.h"

/* Opens the device of this rank, one of `world` ranks that share the cores. */
static yoke_status open_device(yoke_run *run, int rank, int world) {
    yoke_devices_options own = {.struct_size = sizeof own,
                                .list = run->options.devices,
                                .threads = run->options.threads,
                                .local_rank = rank,
                                .local_world = world,
                                .shards = run->options.shards};
    yoke_devices_close(run->devices);
    run->devices = NULL;
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
    if (options->shards <= 0 || options->threads > 0) return options->threads;
    CPU_ZERO(&cores);
    for (int rank = 0; rank < yoke_process_group_world(run->ranks); rank++)
        if (places[rank].node == own->node) CPU_OR(&cores, &cores, &places[rank].cores);
    int share = CPU_COUNT(&cores) / options->shards;
    return share > 0 ? share : 1;
}

/* A launcher may have bound ranks to cores. Ranks bound to the same set of cores divide it. */
static yoke_status divide_cores(yoke_run *run, const yoke_rank_info *info) {
    rank_place own = {.node = info->node_rank};
    int world = yoke_process_group_world(run->ranks), before = 0, all = 0;
    rank_place *places = calloc((size_t)world, sizeof *places);
    if (places == NULL) return FAIL_MEMORY((size_t)world * sizeof *places, "the ranks' cores");
    (void)sched_getaffinity(0, sizeof own.cores, &own.cores);
    yoke_status status =
        yoke_process_group_all_gather(run->ranks, places, &own, PLACE_WORDS, YOKE_ELEMENT_INT64);
    for (int rank = 0; rank < world && status == YOKE_OK; rank++) {
        if (memcmp(&places[rank], &own, sizeof own) != 0) continue;
        before += rank < info->rank;
        all++;
    }
    int threads = threads_with_shards(run, places, &own);
    free(places);
    TRY(status);
    if (threads == run->options.threads && before == info->local_rank && all == info->local_world)
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
    TRY(open_device(run, rank.local_rank, rank.local_world));
    bool on_host = yoke_devices_share_memory(run->devices);
    options.devices = on_host ? NULL : run->devices;
    TRY(yoke_process_group_create(&run->ranks, &options));
    return on_host ? divide_cores(run, &rank) : YOKE_OK;
}

/* Compares the options that decide the number of steps and their batches. */
yoke_status yoke_run_check_ranks(const yoke_run *run, size_t test_rows) {
    const yoke_trainer_options *options = &run->options;
    const yoke_dataset_info *rows = &run->training.info;
    char facts[1200], rate[32], smoothing[32], delta[32], gamma[32];
    char augmentation[YOKE_AUGMENTATION_BYTES];
    if (run->ranks == NULL) return YOKE_OK;
    snprintf(facts, sizeof facts,
             "dataset %s of %zu rows %dx%dx%d in %d classes\nepochs %d\nsteps %llu\nshuffle %d\n"
             "augment %s\nlr_schedule %d\nlearning_rate %s\nwarmup_steps %llu\n"
             "label_smoothing %s\nevaluate_every %d\ntest rows %zu\ninit %d\nsave %d\n"
             "checkpoint_dir %d\nkeep_best %d\nresume %d\ntrace %d\nmistakes %d\n"
             "sampling %d\ndrop_last %d\nlabels %s\nlr_gamma %s\nlr_patience %d\npatience %d\n"
             "min_delta %s\nown_loss %d\nmetric_count %d\n",
             rows->name, rows->rows, rows->shape.channels, rows->shape.height, rows->shape.width,
             rows->classes, options->epochs, (unsigned long long)options->steps,
             !options->no_shuffle, yoke_augmentation_text(options, augmentation),
             (int)options->lr_schedule,
             yoke_text_of_real(options->optimizer->learning_rate, rate, sizeof rate),
             (unsigned long long)options->warmup_steps,
             yoke_text_of_real(options->label_smoothing, smoothing, sizeof smoothing),
             options->evaluate_every, test_rows, options->init != NULL, options->save != NULL,
             options->checkpoint_dir != NULL, options->keep_best, options->resume != NULL,
             options->trace != NULL, options->mistakes, (int)options->sampling, options->drop_last,
             run->labels, yoke_text_of_real(options->lr_gamma, gamma, sizeof gamma),
             options->lr_patience, options->patience,
             yoke_text_of_real(options->min_delta, delta, sizeof delta), options->own_loss != NULL,
             options->metric_count);
    return yoke_ranks_agree(run->ranks, facts);
}
