/* SPDX-License-Identifier: Apache-2.0 */
/* The scale of the loss: backward computes the gradient of loss * scale, which small gradients in
 * float16 survive, and updates divide it out. A dynamic scale follows torch.amp.GradScaler: a
 * gradient that is not finite halves it, and the step changes nothing; after `interval` steps
 * without one it doubles. It is a power of two, so that no other bit changes. */
#ifndef PARALLEL_STEP_LOSS_SCALER_H
#define PARALLEL_STEP_LOSS_SCALER_H

#include "parallel/step/parts.h"

/* ARGUMENT: options.loss_scale or its interval is none. */
yoke_status yoke_loss_scaler_open(yoke_step *step);

/* The step has updated the weights. On devices that queue it may turn out later that its gradient
 * was not finite: taken_back. */
void yoke_loss_scaler_count(yoke_step *step);
void yoke_loss_scaler_take_back(yoke_step *step);
/* The step changes nothing. NUMERIC: the scale is as small as it can be. */
yoke_status yoke_loss_scaler_skip(yoke_step *step);
/* Whether the latest step was skipped. */
bool yoke_loss_scaler_skipped(const yoke_step *step);

/* What another engine has come to. A scale that is not dynamic stays as it is. */
void yoke_loss_scaler_set(yoke_step *step, const yoke_scale_state *state);

/* Updates so far, which optimizers count: steps but the skipped ones. */
uint64_t yoke_updates_of(const yoke_step *step);

/* values[i] *= factor, on the device's compute stream; or on the host. Nothing for 1. */
yoke_status yoke_scale_values(yoke_device *device, float *values, size_t elements, double factor);
void yoke_scale_on_host(float *values, size_t elements, double factor);

#endif
