/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a run: what it keeps, after success, a stop or a failure. */
#ifndef TRAIN_FINISH_H
#define TRAIN_FINISH_H

#include "yoke/trainer.h"

/* Returns the run's first failure and reports later ones as warnings. */
yoke_status yoke_trainer_finish(yoke_trainer *trainer, yoke_status status);

#endif
