/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that go on when others fail, and take in others: they meet in a new process group, make new
 * engines, agree on the newest state that all have kept, and do the steps since again. */
#ifndef TRAIN_RANK_SURVIVAL_H
#define TRAIN_RANK_SURVIVAL_H

#include "train/run.h"

/* As yoke_survive. */
yoke_status yoke_ranks_survive(yoke_trainer *trainer, yoke_status status);
/* Between two steps, when a process waits to be taken in: all ranks end the loop with this status
 * and meet in the next group. */
yoke_status yoke_ranks_admit(yoke_trainer *trainer);
/* A newcomer's part: takes the state, once it has an engine. Otherwise it does nothing. */
yoke_status yoke_ranks_come(yoke_trainer *trainer);

#endif
