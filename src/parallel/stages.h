/* SPDX-License-Identifier: Apache-2.0 */
/* The stages that travel: what the steps call beside the public stages of yoke/data_parallel.h. */
#ifndef PARALLEL_STAGES_H
#define PARALLEL_STAGES_H

#include "parallel/parallel.h"

/* scatter.c: cuts the current micro-batch and uploads each shard; uploads output gradients. */
yoke_status yoke_scatter_micro_batch(yoke_data_parallel *parallel, const yoke_batch *batch);
yoke_status yoke_scatter_output_gradients(yoke_data_parallel *parallel,
                                          const float *const *gradients); /* [outputs]; NULL: 0 */

/* scatter.c: yoke_scatter for a forward whose mode is known. Without training the ranks do not
 * count what their labels weigh: no gradient follows. */
yoke_status yoke_scatter_for(yoke_data_parallel *parallel, const yoke_batch *batch, bool training);

/* replicate.c: the root's weights and, if `buffers`, running statistics go to stale replicas. */
yoke_status yoke_replicate_stale(yoke_data_parallel *parallel, bool buffers);

/* gather.c: scalars of the micro-batch are added to the result; outputs come back in row order. */
yoke_status yoke_gather_scalars(yoke_data_parallel *parallel);
yoke_status yoke_gather_outputs(yoke_data_parallel *parallel,
                                float *const *outputs); /* [outputs]; NULL: not this one */
/* check: before any work, whether the caller's struct can hold a result. */
yoke_status yoke_result_check(yoke_step_result *result);
yoke_status yoke_result_store(const yoke_data_parallel *parallel, yoke_step_result *result);

#endif
