/* A loss of the host program, between the stages of a step. */
#ifndef PARALLEL_OWN_LOSS_H
#define PARALLEL_OWN_LOSS_H

#include "parallel/parallel.h"

/* The batch counts by rows, whatever the model's own loss says of its labels. */
void yoke_own_loss_begin(yoke_data_parallel *parallel);
/* Gathers the outputs of the micro-batch to the host and adds its loss; in training the gradients
 * then lie in `rows`, ready to be scattered. */
yoke_status yoke_own_loss_compute(yoke_data_parallel *parallel, const yoke_own_loss *loss,
                                  const yoke_output_rows *rows);
/* In training, behind compute. */
yoke_status yoke_own_loss_scatter(yoke_data_parallel *parallel, const yoke_output_rows *rows);

#endif
