/* SPDX-License-Identifier: Apache-2.0 */
/* Memory nodes (NUMA): which core lies near which memory, which cores share their arithmetic, and
 * how the teams of CPU devices take cores. */
#ifndef DEVICE_CPU_NODES_H
#define DEVICE_CPU_NODES_H

#include "device/backend.h"

/* A core is what the system calls a CPU; two siblings are hyperthreads of one processor core. */
typedef struct cpu_nodes {
    int count;                   /* nodes with cores that we may use; at least 1 */
    int numbers[CPU_SETSIZE];    /* the system's numbers of these nodes, ascending */
    short node_of[CPU_SETSIZE];  /* of a core: position in `numbers` */
    short first_of[CPU_SETSIZE]; /* of a core: the first of its siblings that we may use */
} cpu_nodes;

#define CPU_NODES_ROOT "/sys/devices/system"

/* Reads the folder `root`. What it does not say: all cores lie on one node, and have no sibling. */
void cpu_nodes_read(cpu_nodes *nodes, const char *root, const cpu_set_t *allowed);

typedef struct cpu_teams {
    int count;   /* of teams on this machine, those of other processes included */
    int threads; /* of each */
} cpu_teams;

/* The cores of team `team`. Siblings are used where the teams need more cores than there are
 * without them. A team takes cores of one node; where cores of several nodes alone are left, those.
 * Nodes get teams in proportion to their cores, neighbouring teams the same node. Only where all
 * teams need more cores than there are do teams share them. */
void cpu_teams_deal(const cpu_teams *teams, int team, const cpu_nodes *nodes,
                    const cpu_set_t *allowed, cpu_set_t *cores);
/* The number of the node that all these cores lie on; -1: of several, or there is no core. */
int cpu_nodes_of(const cpu_nodes *nodes, const cpu_set_t *cores);
/* The numbers of the nodes that these cores lie on, as a list; "" where there is one node. */
void cpu_nodes_write(const cpu_nodes *nodes, const cpu_set_t *cores, char *text, size_t size);

#endif
