/* SPDX-License-Identifier: Apache-2.0 */
/* --freeze, --group and --no-decay: parameter groups on the command line. */
#ifndef CLI_PARAMETER_GROUPS_H
#define CLI_PARAMETER_GROUPS_H

#include <stdio.h>

#include "yoke/yoke.h"

/* What the user typed; NULL: not given. */
typedef struct group_flags {
    const char *freeze, *group, *no_decay;
} group_flags;

#define CLI_GROUPS_MAX 32
typedef struct group_list {
    yoke_parameter_group groups[CLI_GROUPS_MAX]; /* in the order of the flags above */
    int count;
    char *text; /* owns the patterns of --group */
} group_list;

/* -1, or the exit code of a usage error. Free the list afterwards in both cases. */
int group_list_read(group_list *list, const group_flags *flags);
void group_list_free(group_list *list);

/* A line for each group: its parameters and what holds for them. */
void print_groups(FILE *out, yoke_trainer *trainer, const group_list *list);

#endif
