/* SPDX-License-Identifier: Apache-2.0 */
/* The door of step: what a step is made of, and the runner of its stages. */
#ifndef PARALLEL_STEP_STEP_H
#define PARALLEL_STEP_STEP_H

#include "parallel/step/deal.h"
#include "parallel/step/flight.h"
#include "parallel/step/groups.h"
#include "parallel/step/host_stream.h"
#include "parallel/step/lanes.h"
#include "parallel/step/loss_scaler.h"
#include "parallel/step/models.h"
#include "parallel/step/moving_average.h"
#include "parallel/step/parts.h"
#include "parallel/step/ranks.h"
#include "parallel/step/reach.h"
#include "parallel/step/runner.h"
#include "parallel/step/shards.h"

#endif
