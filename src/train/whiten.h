/* SPDX-License-Identifier: Apache-2.0 */
/* A first convolution that whitens patches of the training rows: yoke_trainer_options.whiten. */
#ifndef TRAIN_WHITEN_H
#define TRAIN_WHITEN_H

#include "train/run.h"

/* Writes the filters into every replica. ARGUMENT: there is no such layer, or it has too many
 * filters; rows in a stream. */
yoke_status yoke_whiten(yoke_run *run);

#endif
