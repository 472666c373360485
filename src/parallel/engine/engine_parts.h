/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of which engine_life.c makes an engine. */
#ifndef PARALLEL_ENGINE_ENGINE_PARTS_H
#define PARALLEL_ENGINE_ENGINE_PARTS_H

#include "parallel/step/step.h"

/* engine_limits.c: copies and checks the options; limits and buckets, once ranks and shards are
 * known. */
yoke_status yoke_engine_load_options(yoke_step *step, const yoke_data_parallel_options *options,
                                     const yoke_optimizer_options *optimizer);
yoke_status yoke_engine_set_limits(yoke_step *step);

/* engine_lanes.c: devices, workers and trace; the root plans layouts and measures algorithms; then
 * every lane allocates, the others following the root. */
yoke_status yoke_engine_build_lanes(yoke_step *step);
yoke_status yoke_engine_plan_root(yoke_step *step);
yoke_status yoke_engine_open_lanes(yoke_step *step);
void yoke_engine_close_lanes(yoke_step *step); /* takes half-built ones */
/* Makes the plans for every shard size that a batch of `rows` is cut into. */
yoke_status yoke_engine_prepare(yoke_step *step, int rows, bool training);

#endif
