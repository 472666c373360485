/* SPDX-License-Identifier: Apache-2.0 */
/* Runs on a row stream, whose info says 0 rows: how many steps an epoch has shows at its end. For
 * other rows these do nothing. */
#ifndef TRAIN_UNKNOWN_LENGTH_H
#define TRAIN_UNKNOWN_LENGTH_H

#include "train/run.h"

/* How many epochs end the run, where the number of steps is unknown. ARGUMENT: an option needs that
 * number, or more passes than there are. */
yoke_status yoke_run_plan_stream(yoke_run *run, const yoke_rows *test);
/* All ranks, after each batch of these rows. PEER: their streams differ. */
yoke_status yoke_run_compare_streams(const yoke_run *run, const yoke_rows *rows,
                                     const yoke_batch *batch);

#endif
