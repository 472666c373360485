/* SPDX-License-Identifier: Apache-2.0 */
/* A run as one of several ranks. */
#ifndef TRAIN_RUN_RANKS_H
#define TRAIN_RUN_RANKS_H

#include "train/run.h"

/* Opens this rank's device and joins the other ranks. */
yoke_status yoke_run_join(yoke_run *run);
/* Leaves the group for the next one, as yoke_process_group_next. */
yoke_status yoke_run_rejoin(yoke_run *run, bool hangs);
/* Compares what the ranks train on; nothing without ranks. */
yoke_status yoke_run_check_ranks(const yoke_run *run, size_t test_rows);

#endif
