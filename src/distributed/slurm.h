/* SLURM's shorthand for lists of nodes and of their tasks. */
#ifndef DISTRIBUTED_SLURM_H
#define DISTRIBUTED_SLURM_H

#include <stdbool.h>
#include <stddef.h>

/* "4(x2),3" is three nodes with 4, 4 and 3 tasks. False when it is no such list. */
typedef struct yoke_slurm_tasks {
    int nodes, tasks;
    int on_node; /* tasks of the node that was asked for; 0: there is no such node */
} yoke_slurm_tasks;
bool yoke_slurm_tasks_parse(const char *text, int node, yoke_slurm_tasks *tasks);

/* "gpu[03-05,9],head" begins with gpu03. False when it is too long or ends inside brackets. */
bool yoke_slurm_first_host(const char *list, char *host, size_t size);

#endif
