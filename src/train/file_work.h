/* SPDX-License-Identifier: Apache-2.0 */
/* Reading and writing by rank 0 while the other ranks wait. */
#ifndef TRAIN_FILE_WORK_H
#define TRAIN_FILE_WORK_H

#include "train/run.h"

/* All ranks call it together. Rank 0 does the work, on a thread of its own; the others wait for its
 * end. The work uses neither the engine nor the process group and emits no event. Rank 0, or a run
 * without ranks, gets the work's status. */
typedef yoke_status yoke_file_work(void *context);
yoke_status yoke_run_file_work(yoke_run *run, yoke_file_work *work, void *context);

#endif
