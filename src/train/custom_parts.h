/* SPDX-License-Identifier: Apache-2.0 */
/* The parts that a host program may bring, a model, a loss and metrics, and what stands in for
 * them. */
#ifndef TRAIN_CUSTOM_PARTS_H
#define TRAIN_CUSTOM_PARTS_H

#include "train/custom_metrics.h"
#include "train/run.h"

typedef struct yoke_custom_parts {
    yoke_model *preset;                             /* NULL: the model is the host's */
    yoke_model *shorter[YOKE_LENGTH_BUCKETS_LIMIT]; /* the same preset for shorter rows */
    const yoke_model **shorter_list; /* [run.shorter_count] owned: these, or the host's */
    yoke_custom_loss loss;           /* options.custom_loss points to it, if the host has one */
    yoke_custom_metrics metrics;
    yoke_output_rows outputs; /* what the host's loss and metrics and the tally read */
} yoke_custom_parts;

/* Copies what the host brings, and refuses what contradicts it, before anything is opened. */
yoke_status yoke_custom_parts_check(yoke_custom_parts *parts, yoke_trainer_options *options);
/* Opens the run's model, the host's or the preset, and memory for its outputs. */
yoke_status yoke_custom_parts_open(yoke_custom_parts *parts, yoke_run *run);
void yoke_custom_parts_close(yoke_custom_parts *parts);

#endif
