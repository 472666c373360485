/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * The stages of a step, a function each; samples/03_stages_by_hand runs a step with them. The order
 * is scatter, replicate, forward_replicas, loss_replicas, backward_replicas, reduce, update,
 * gather. A stage returns ARGUMENT unless those it depends on have run on this batch. A batch has
 * at most as many rows as one of yoke_data_parallel_forward.
 */
#ifndef YOKE_STAGES_H
#define YOKE_STAGES_H

#include "yoke/data_parallel.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Cuts a batch by torch.chunk's rule and uploads each shard to its device.
 *
 * @param parallel  The engine.
 * @param batch     Read until yoke_data_parallel_gather returns.
 * @return ARGUMENT: the batch is too large or incomplete.
 */
YOKE_API yoke_status yoke_data_parallel_scatter(yoke_data_parallel *parallel,
                                                const yoke_batch *batch);

/** Gives the root's weights to every replica that is behind.
 *
 * @param parallel  The engine.
 * @return See above.
 */
YOKE_API yoke_status yoke_data_parallel_replicate(yoke_data_parallel *parallel);

/** Computes every shard's outputs on its device.
 *
 * @param parallel  The engine.
 * @param training  true: batch statistics and dropout; false: running statistics.
 * @return See above.
 */
YOKE_API yoke_status yoke_data_parallel_forward_replicas(yoke_data_parallel *parallel,
                                                         bool training);

/** Computes every shard's loss, and its gradient, divided by what the labels of the whole batch
 * weigh, as in yoke_step_result.weight.
 *
 * @param parallel  The engine.
 * @return See above.
 */
YOKE_API yoke_status yoke_data_parallel_loss_replicas(yoke_data_parallel *parallel);

/** Computes every replica's gradient.
 *
 * @param parallel  The engine.
 * @return See above.
 */
YOKE_API yoke_status yoke_data_parallel_backward_replicas(yoke_data_parallel *parallel);

/** Sums the replicas' gradients on the root; in DDP over all ranks. With those that no_sync added
 * up, which it also takes when other batches have come since.
 *
 * @param parallel  The engine.
 * @return See above.
 */
YOKE_API yoke_status yoke_data_parallel_reduce(yoke_data_parallel *parallel);

/** Updates the root's weights with the gradient on the root; the other replicas become stale.
 *
 * @param parallel       The engine.
 * @param learning_rate  As in yoke_data_parallel_step.
 * @return See above; also ARGUMENT in DDP's sharded schedule, where only a whole step can update,
 *         and when an update has used this gradient. NUMERIC: the gradient is not finite; the text
 *         names the parameter, and no weight changes.
 */
YOKE_API yoke_status yoke_data_parallel_update(yoke_data_parallel *parallel, double learning_rate);

/** PyTorch's no_sync. While it is on, backward by hand adds the gradients to those of the backward
 * calls before it, in the replicas, and exchanges nothing. After it is off, the next
 * yoke_data_parallel_backward, or yoke_data_parallel_reduce, sums them all once, over devices and
 * ranks. In DDP all ranks call it.
 *
 * The model's own loss divides by the weight of its batch: to get the mean over several batches,
 * set their first_row and whole_rows as parts of one; with class_weights or ignore_index their
 * whole_weight, too. A gradient of the host's own is added as it is.
 *
 * @param parallel  The engine. The first call allocates one more gradient on each device.
 * @param on        true: gradients add up; false, the default: each backward starts anew, as after
 *                  zero_grad.
 * @return MEMORY: as yoke_data_parallel_create. yoke_data_parallel_step returns ARGUMENT while
 *         no_sync is on or gradients wait.
 */
YOKE_API yoke_status yoke_data_parallel_no_sync(yoke_data_parallel *parallel, bool on);

/** Forgets the gradient on the root, and those that wait in the replicas: PyTorch's
 * optimizer.zero_grad(). yoke_data_parallel_update and yoke_data_parallel_reduce then need a
 * backward first.
 *
 * @param parallel  The engine.
 * @return ARGUMENT: `parallel` is NULL. NUMERIC: on GPUs, the gradient of the step before was not
 *         finite.
 */
YOKE_API yoke_status yoke_data_parallel_zero_grad(yoke_data_parallel *parallel);

/** Sums losses and counts of correct rows on the host.
 *
 * @param parallel     The engine.
 * @param[out] result  Set struct_size first. May be NULL.
 * @return See above. A loss that is not finite is a result: the caller decides about the update.
 */
YOKE_API yoke_status yoke_data_parallel_gather(yoke_data_parallel *parallel,
                                               yoke_step_result *result);

#ifdef __cplusplus
}
#endif

#endif
