/* SPDX-License-Identifier: Apache-2.0 */
/* Cross-entropy of some rows at a time. */
#ifndef DEVICE_CPU_LOSS_H
#define DEVICE_CPU_LOSS_H

#include "device/cpu/cpu.h"

/* Rows first .. first + count - 1 of a loss's plan. */
typedef struct cpu_loss_rows {
    size_t first, count;
    const float *logits; /* of these rows alone */
    float *gradient;     /* it may be where the logits are; NULL: not wanted */
} cpu_loss_rows;

/* Adds the rows to the scalars, which those from row 0 on begin. The calls go through all rows in
 * order. */
void cpu_cross_entropy_of_rows(yoke_plan *plan, const yoke_plan_step *step,
                               const cpu_loss_rows *rows);

#endif
