/* SPDX-License-Identifier: Apache-2.0 */
/* A loss of the host program, between the stages of a step. */
#ifndef PARALLEL_OWN_LOSS_H
#define PARALLEL_OWN_LOSS_H

#include "parallel/parallel.h"

typedef struct yoke_host_loss {
    const yoke_own_loss *loss;    /* NULL: the model's */
    const yoke_output_rows *rows; /* host memory: outputs, and in training their gradients */
    yoke_batch given, unlabelled; /* of the host program; without its labels and targets */
} yoke_host_loss;

/* Replaces the batch by one without labels and targets: the engine neither checks nor scatters what
 * only the host's loss reads, and which need not be what the model's own loss expects. */
yoke_status yoke_own_loss_take(yoke_host_loss *host, const yoke_batch **given);
/* The batch counts by rows, whatever the model's own loss says of its labels. */
void yoke_own_loss_begin(yoke_data_parallel *parallel);
/* Gathers the outputs of the micro-batch to the host and adds its loss; in training the gradients
 * then lie in host->rows, ready to be scattered. */
yoke_status yoke_own_loss_compute(yoke_data_parallel *parallel, const yoke_host_loss *host);
/* In training, behind compute. */
yoke_status yoke_own_loss_scatter(yoke_data_parallel *parallel, const yoke_output_rows *rows);

#endif
