/* SPDX-License-Identifier: Apache-2.0 */
/* The door of stages: what a step is made of, one file for each. They see the step, and neither the
 * engine nor who watches. */
#ifndef PARALLEL_STAGES_STAGES_H
#define PARALLEL_STAGES_STAGES_H

#include "parallel/stages/custom_loss.h"
#include "parallel/stages/no_sync.h"
#include "parallel/stages/recorded.h"
#include "parallel/stages/root_loss.h"
#include "parallel/stages/stage_table.h"
#include "parallel/stages/sync_batch_norm.h"

#endif
