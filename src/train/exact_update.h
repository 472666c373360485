/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizers in float64, as plain loops over one parameter. */
#ifndef TRAIN_EXACT_UPDATE_H
#define TRAIN_EXACT_UPDATE_H

#include "optimizer/optimizer.h"

typedef struct yoke_exact_tensor {
    double *weights, *states[YOKE_UPDATE_STATES]; /* [count] each */
    const double *gradients;
    size_t count;
    size_t rows, columns; /* of a matrix, as yoke_model_matrix has them; otherwise 0 */
} yoke_exact_tensor;

/* One update by the rule of loaded options, with the gradients times gradient_scale. */
yoke_status yoke_exact_update(const yoke_optimizer_options *options,
                              const yoke_exact_tensor *tensor, const yoke_update_scalars *scalars,
                              double gradient_scale);

#endif
