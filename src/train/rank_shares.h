/* SPDX-License-Identifier: Apache-2.0 */
/* Unequal ranks: auto_shares of DDP. Now and then the ranks compare how long each computes, and
 * deal the shards anew where the slowest would be done clearly earlier. In one process the engine
 * does so by itself (parallel/observers/speeds.c); ranks make another engine and other loaders. */
#ifndef TRAIN_RANK_SHARES_H
#define TRAIN_RANK_SHARES_H

#include "train/run.h"

/* Between two steps; the same on all ranks. */
bool yoke_rank_shares_are_due(const yoke_run *run);
/* All ranks together. dealt: the run has another engine, and the caller begins the
 * epoch's loader again. */
yoke_status yoke_rank_shares_compare(yoke_trainer *trainer, bool *dealt);
/* The ranks are others from now on: they begin with equal shares. */
void yoke_rank_shares_forget(yoke_run *run);

#endif
