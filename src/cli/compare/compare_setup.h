/* SPDX-License-Identifier: Apache-2.0 */
/* What all contenders of a comparison share, from the options that yoke compare and yoke verify
 * have in common. */
#ifndef CLI_COMPARE_SETUP_H
#define CLI_COMPARE_SETUP_H

#include "yoke/yoke.h"

struct device_view; /* cli/result.h */

typedef struct compare_setup {
    char model[64], dataset[1024];
    size_t limit_rows; /* as dataset_rows, and skip_bad; without pointers: ranks get a copy */
    bool skip_bad;
    char link[96];      /* "": none */
    char names[64][32]; /* of the devices, the root first; a contender uses the first few */
    char variants[96];  /* yoke_device_info.variants of all of them */
    int device_count;
    int threads;      /* compute threads of each device; all cores has more */
    int batch;        /* rows on all devices together */
    int shards;       /* as yoke_data_parallel_options */
    double bucket_mb; /* of every bucket; 0: as yoke_data_parallel_options */
    uint64_t seed;
    yoke_precision precision;
    yoke_algorithm algorithm;
    char algorithm_cache[1024]; /* yoke_data_parallel_options.algorithm_cache; "": NULL */
    bool replace_broken_cache;  /* likewise */
    yoke_collectives collectives;
    yoke_schedule ddp_schedule; /* of ranks */
    yoke_optimizer_options optimizer;
    int straggler; /* as yoke_data_parallel_options; contenders without this device have none */
    double straggler_factor;
    double interpreter_us; /* of python; NAN: it does not race */
    int sync_every;        /* of local: steps from one mean to the next */
    double shares[64];     /* of the devices or ranks; contenders on fewer have the first few */
    int share_count;       /* 0: all have as many rows */
    char torch[1024];      /* the interpreter of the torch contenders; "": they do not race */
    double torch_deadline; /* seconds in which they answer */
    int learn_steps;       /* of a trainer and of torch, which learn so many; 0: they race */
} compare_setup;

/* Refuses to run as a rank: -1, or the exit code behind a printed error. */
int compare_check_launcher(const char *verb);
/* Likewise: copies the names, or says that one is too long. */
int compare_setup_names(compare_setup *setup, const char *verb, const char *model,
                        const char *dataset);

/* Opens the training split with the rows that the setup leaves; names_bad: the first call prints
 * the files that cannot be read. Every contender opens its own. */
yoke_status compare_setup_open(const compare_setup *setup, bool names_bad, yoke_dataset **dataset);

/* Opens the devices of a list; NULL: every GPU, or the CPU as two devices. */
yoke_status compare_open_devices(struct device_view *view, const char *list, int threads);
/* threads: as the user gave them, for GPUs. */
void compare_setup_devices(compare_setup *setup, const struct device_view *view, int threads);
/* The first `count` devices, as yoke_devices_options.list. */
#define COMPARE_LIST_BYTES 1024
void compare_setup_list(const compare_setup *setup, int count, char list[COMPARE_LIST_BYTES]);
typedef struct compare_rows {
    int first, count;
} compare_rows;
/* The rows of one of several devices or ranks in a batch: torch.chunk's, or by shares those that
 * yoke_data_parallel_options.shares gives. */
compare_rows compare_setup_rows(const compare_setup *setup, int participants, int index);
/* The rate of a race: weights stay the same, so that all rounds compute with the same numbers. */
#define COMPARE_RACE_RATE 1e-9
/* Whether two of the first `count` devices are one GPU: NCCL allows one rank for each. */
bool compare_share_a_gpu(const struct device_view *view, int count);

#endif
