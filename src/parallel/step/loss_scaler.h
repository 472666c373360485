/* SPDX-License-Identifier: Apache-2.0 */
/* The scale of the loss: backward computes the gradient of loss * scale, which small gradients in
 * float16 survive. A batch begins with the scale as the factor of its gradients
 * (step->gradient.factor): the loss multiplies by it, and updates, gates and norms divide it out. A
 * dynamic scale follows torch.amp.GradScaler: a gradient that is not finite halves it, and the step
 * changes nothing; after `interval` steps without one it doubles. It is a power of two, so that no
 * other bit changes. */
#ifndef PARALLEL_STEP_LOSS_SCALER_H
#define PARALLEL_STEP_LOSS_SCALER_H

#include "parallel/step/parts.h"

/* ARGUMENT: options.loss_scale or its interval is none. */
yoke_status yoke_loss_scaler_open(yoke_step *step);

/* The step has updated the weights; uncount: devices have found later that the latest one has not.
 */
void yoke_loss_scaler_count(yoke_step *step);
void yoke_loss_scaler_uncount(yoke_step *step);
/* The step changes nothing. NUMERIC: the scale is as small as it can be. */
yoke_status yoke_loss_scaler_skip(yoke_step *step);

/* What another engine has come to, where a scale that is not dynamic stays as it is; rank 0's for
 * all ranks. */
void yoke_loss_scaler_set(yoke_step *step, const yoke_scale_state *state);
yoke_status yoke_loss_scaler_share(yoke_step *step);

/* Updates so far, which optimizers count: steps but the skipped ones. */
uint64_t yoke_updates_of(const yoke_step *step);

/* Gradients that a caller gives get the factor, and those that it reads lose it: on the device's
 * compute stream, or on the host, where device is NULL. */
yoke_status yoke_gradient_scale(const yoke_step *step, yoke_device *device, float *values,
                                size_t elements);
yoke_status yoke_gradient_unscale(const yoke_step *step, yoke_device *device, float *values,
                                  size_t elements);

#endif
