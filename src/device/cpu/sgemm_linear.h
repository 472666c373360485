/* SPDX-License-Identifier: Apache-2.0 */
/* Linear by dnnl_sgemm. */
#ifndef DEVICE_CPU_SGEMM_LINEAR_H
#define DEVICE_CPU_SGEMM_LINEAR_H

#include "device/cpu/cpu.h"

/* Whether it is this plan's: float32 on plain matrices, by YOKE_ALGORITHM_DIRECT's fixed rule or on
 * a processor for which oneDNN has nothing faster. */
yoke_status cpu_takes_sgemm_linear(bool *takes, cpu_device *device,
                                   const yoke_plan_request *request);
cpu_planner cpu_plan_sgemm_linear;

#endif
