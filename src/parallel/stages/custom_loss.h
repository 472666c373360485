/* SPDX-License-Identifier: Apache-2.0 */
/* A loss of the host program, between the stages of a step. */
#ifndef PARALLEL_CUSTOM_LOSS_H
#define PARALLEL_CUSTOM_LOSS_H

#include "parallel/step/step.h"

/* Replaces the batch by one without labels and targets: the engine neither checks nor scatters what
 * only the host's loss reads, and which need not be what the model's own loss expects. */
yoke_status yoke_custom_loss_take(yoke_host_loss *host, const yoke_batch **given);
/* The batch counts by rows, whatever the model's own loss says of its labels. */
void yoke_custom_loss_begin(yoke_step *step);
/* compute: gathers the outputs of the micro-batch to the host and adds its loss; in training its
 * gradients then lie in the host's rows. scatter: they go to the shards. */
extern const yoke_stage_def yoke_stage_custom_loss, yoke_stage_scatter_custom;

#endif
