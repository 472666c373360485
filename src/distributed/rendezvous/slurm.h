/* SPDX-License-Identifier: Apache-2.0 */
/* SLURM's abbreviated lists of nodes and of tasks per node. */
#ifndef DISTRIBUTED_SLURM_H
#define DISTRIBUTED_SLURM_H

#include <stdbool.h>
#include <stddef.h>

/* "4(x2),3" is three nodes with 4, 4 and 3 tasks. False: the text is not such a list. */
typedef struct yoke_slurm_tasks {
    int nodes, tasks;
    int on_node; /* tasks of `node`; 0: there is no such node */
} yoke_slurm_tasks;
bool yoke_slurm_tasks_parse(const char *text, int node, yoke_slurm_tasks *tasks);

/* The first host of "gpu[03-05,9],head" is gpu03. False: the name is too long or a bracket is open.
 */
bool yoke_slurm_first_host(const char *list, char *host, size_t size);

#endif
