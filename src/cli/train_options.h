/* SPDX-License-Identifier: Apache-2.0 */
/* The options of yoke train. */
#ifndef CLI_TRAIN_OPTIONS_H
#define CLI_TRAIN_OPTIONS_H

#include "cli/augment_flags.h"
#include "cli/choices_place.h"
#include "cli/cli.h"
#include "cli/config.h"
#include "cli/data_flags.h"
#include "cli/loss_flags.h"
#include "cli/parameter_groups.h"
#include "cli/saving_flags.h"
#include "cli/tuning_flags.h"

typedef struct train_flags {
    const char *model, *dataset, *devices, *init, *save, *metrics, *trace, *report;
    const char *allow_missing, *allow_unknown, *straggler;
    choices_flags choices;
    group_flags groups;
    saving_flags saving;
    config_flags config;
    const char *link;
    int threads, mode, schedule, batch, epochs, optimizer, lr_schedule, precision, algorithm;
    int collectives, transport, timeout, broadcast_buffers, loss_mean;
    double bucket_mb;
    augment_flags augment;
    data_flags data;
    tuning_flags tuning;
    loss_flags loss;
    int shuffle, accumulate, shards, evaluate_every, log_every;
    uint64_t steps, warmup_steps, seed;
    double lr, momentum, weight_decay, clip_norm, interpreter_us;
    bool nesterov, sync_batch_norm, live, json, quiet;
} train_flags;

extern const train_flags train_defaults;

/* Epochs between evaluations: 0 at the end, -1 never. */
int train_evaluations(const train_flags *flags);
/* -1, or the exit code of a usage error. */
int train_flags_check(const train_flags *flags);
/* Checked flags. */
void train_flags_fill_optimizer(yoke_optimizer_options *optimizer, const train_flags *flags);
void train_flags_fill(yoke_trainer_options *run, const train_flags *flags);

#endif
