/* SPDX-License-Identifier: Apache-2.0 */
/* Linear for few rows on weights in their plain order. */
#ifndef DEVICE_CPU_FEW_ROWS_H
#define DEVICE_CPU_FEW_ROWS_H

#include "device/cpu/cpu.h"

#define CPU_FEW_ROWS 8 /* with more, oneDNN's products take less time */

bool cpu_takes_few_rows(const yoke_plan_request *request);
yoke_status cpu_plan_few_rows(yoke_plan **plan, cpu_device *device,
                              const yoke_plan_request *request);

#endif
