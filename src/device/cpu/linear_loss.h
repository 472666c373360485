/* SPDX-License-Identifier: Apache-2.0 */
/* Linear with the loss behind it, without a whole table of logits. */
#ifndef DEVICE_CPU_LINEAR_LOSS_H
#define DEVICE_CPU_LINEAR_LOSS_H

#include "device/cpu/cpu.h"

/* Whether the request offers the loss, and the logits of the largest plan are worth it. */
yoke_status cpu_takes_linear_loss(bool *takes, cpu_device *device,
                                  const yoke_plan_request *request);
cpu_planner cpu_plan_linear_loss;

#endif
