/* SPDX-License-Identifier: Apache-2.0 */
/* The options of yoke train. */
#ifndef CLI_TRAIN_OPTIONS_H
#define CLI_TRAIN_OPTIONS_H

#include "cli/algorithm_cache.h"
#include "cli/cli.h"
#include "cli/config.h"
#include "cli/option_values.h"
#include "cli/parameter_groups.h"

/* What a command says, in the library's own structs where they have a field for it. */
typedef struct train_setup {
    yoke_trainer_options run;
    yoke_data_parallel_options engine;
    yoke_optimizer_options optimizer;
    yoke_loss_options loss;
    yoke_async_options async;
    yoke_local_options local;
    yoke_process_group_options group;
    unsigned test_views; /* of 1, 2, 6 */
    unsigned loss_word;  /* 0: by the dataset; otherwise 1 + a yoke_loss_kind */
    class_weights class_weights;
    ignored_label ignore_index;
    color_jitter color_jitter;
    thread_count loader_threads;
    save_interval checkpoint_every;
    straggler straggler;
    device_shares shares;
    loss_scale loss_scale;
    algorithm_cache_flags algorithm_cache;
    group_flags groups;
    config_flags config;
    const char *report;
    double bucket_mb;
    int timeout_s, log_every;
    int lr_find; /* steps; 0: no range test */
    bool force, live, json, quiet;
} train_setup;

extern const train_setup train_defaults;

/* -1, or the exit code of a usage error. */
int train_setup_check(const train_setup *setup);
/* Makes a checked setup, which stays in its place, what yoke_trainer_create takes. */
void train_setup_complete(train_setup *setup);
/* Whether it says --resume auto. */
bool train_setup_is_auto(const train_setup *setup);

#endif
