/* SPDX-License-Identifier: Apache-2.0 */
/* Parameter groups: which parameters are frozen, and the ranges of the flat buffer that have a
 * learning rate or a weight decay of their own. */
#ifndef PARALLEL_GROUPS_H
#define PARALLEL_GROUPS_H

#include <stdio.h>

#include "model/model.h"
#include "optimizer/optimizer.h"
#include "parallel/parallel.h"

typedef struct yoke_groups {
    yoke_parameter_group *list; /* [count] */
    char **patterns;            /* [count] owned; `list` points to them */
    int count;
    int *members;                 /* [tensors] index into list, or -1; NULL: no groups */
    bool *frozen;                 /* [tensors]; NULL: no groups */
    yoke_optimizer_ranges ranges; /* of the flat buffer; set by yoke_groups_cut */
} yoke_groups;

/* Reads the options' groups and finds the parameters of each. */
yoke_status yoke_groups_create(yoke_data_parallel *parallel);
/* The flat layout is known. */
yoke_status yoke_groups_cut(yoke_data_parallel *parallel);
void yoke_groups_destroy(yoke_groups *groups);

/* One line for each group: what the ranks must agree on. */
void yoke_groups_write(FILE *facts, const yoke_groups *groups);
bool yoke_groups_freeze(const yoke_groups *groups, int tensor);
/* Whether a group says that weight decay moves the parameter. */
bool yoke_groups_ask_decay(const yoke_groups *groups, int tensor);
/* NULL: the optimizer's options hold everywhere. */
const yoke_optimizer_ranges *yoke_groups_ranges(const yoke_groups *groups);

#endif
