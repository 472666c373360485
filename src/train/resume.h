/* SPDX-License-Identifier: Apache-2.0 */
/* Going on from a checkpoint: which one, whether it fits this run, and where in the run it was. */
#ifndef TRAIN_RESUME_H
#define TRAIN_RESUME_H

#include "train/saving.h"

/* All ranks together: opens the folder of checkpoints, and goes on from one where the options say
 * so. */
yoke_status yoke_resume(yoke_run *run, yoke_saving *saving, yoke_watch *watch);

#endif
