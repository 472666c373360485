/* SPDX-License-Identifier: Apache-2.0 */
/* Parameter groups. */
#ifndef PARALLEL_STEP_GROUPS_H
#define PARALLEL_STEP_GROUPS_H

#include <stdio.h>

#include "parallel/step/parts.h"

/* Copies groups. The caller's array may come from other headers: its own struct_size is the
 * distance between two of them. */
yoke_status yoke_groups_load(yoke_groups *groups, const yoke_parameter_group *given, int count);
/* Reads the options' groups and finds the parameters of each. */
yoke_status yoke_groups_create(yoke_step *step);
/* The flat layout is known. */
yoke_status yoke_groups_cut(yoke_step *step);
void yoke_groups_destroy(yoke_groups *groups);

/* One line for each group: what the ranks must agree on. */
void yoke_groups_write(FILE *facts, const yoke_groups *groups);
bool yoke_groups_freeze(const yoke_groups *groups, int tensor);
/* Whether a group says that weight decay moves the parameter. */
bool yoke_groups_ask_decay(const yoke_groups *groups, int tensor);
/* NULL: the optimizer's options hold everywhere. */
const yoke_optimizer_ranges *yoke_groups_ranges(const yoke_groups *groups);

#endif
