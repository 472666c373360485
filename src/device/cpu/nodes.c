/* SPDX-License-Identifier: Apache-2.0 */
/* The memory nodes of this machine, as the system lists them below /sys. */
#include "device/cpu/nodes.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNKNOWN (-1)

/* Nodes. */

/* Numbers of the folders root/node/node0, node1, ..., which may have gaps. */
static void find_numbers(const char *root, cpu_set_t *numbers) {
    char path[512];
    CPU_ZERO(numbers);
    snprintf(path, sizeof path, "%s/node", root);
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        const char *at = entry->d_name + strlen("node");
        long number;
        if (strncmp(entry->d_name, "node", strlen("node")) != 0) continue;
        if (yoke_core_list_number(&at, &number) && *at == '\0' && number < CPU_SETSIZE)
            CPU_SET((size_t)number, numbers);
    }
    if (folder != NULL) closedir(folder);
}

/* A node without cores that we may use has no position: it is memory alone, or lies outside the
 * process's cpuset. */
static void add_node(cpu_nodes *nodes, int number, const cpu_set_t *cores,
                     const cpu_set_t *allowed) {
    bool any = false;
    for (size_t core = 0; core < CPU_SETSIZE; core++) {
        if (!CPU_ISSET(core, cores) || !CPU_ISSET(core, allowed)) continue;
        if (nodes->node_of[core] != UNKNOWN) continue;
        nodes->node_of[core] = (short)nodes->count;
        any = true;
    }
    if (any) nodes->numbers[nodes->count++] = number;
}

static void read_nodes(cpu_nodes *nodes, const char *root, const cpu_set_t *allowed) {
    cpu_set_t numbers, cores;
    find_numbers(root, &numbers);
    for (int number = 0; number < CPU_SETSIZE; number++) {
        char path[512];
        if (!CPU_ISSET((size_t)number, &numbers)) continue;
        snprintf(path, sizeof path, "%s/node/node%d/cpulist", root, number);
        if (yoke_core_list_read(path, &cores)) add_node(nodes, number, &cores, allowed);
    }
    if (nodes->count == 0) nodes->numbers[nodes->count++] = 0;
    for (size_t core = 0; core < CPU_SETSIZE; core++)
        if (nodes->node_of[core] == UNKNOWN) nodes->node_of[core] = 0; /* on no node's list */
}

static void read_siblings(cpu_nodes *nodes, const char *root, const cpu_set_t *allowed) {
    for (size_t core = 0; core < CPU_SETSIZE; core++) {
        char path[512];
        cpu_set_t siblings;
        if (!CPU_ISSET(core, allowed) || nodes->first_of[core] < (short)core) continue;
        snprintf(path, sizeof path, "%s/cpu/cpu%zu/topology/thread_siblings_list", root, core);
        if (!yoke_core_list_read(path, &siblings)) continue;
        for (size_t other = core + 1; other < CPU_SETSIZE; other++)
            if (CPU_ISSET(other, &siblings) && nodes->node_of[other] == nodes->node_of[core])
                nodes->first_of[other] = (short)core;
    }
}

void cpu_nodes_read(cpu_nodes *nodes, const char *root, const cpu_set_t *allowed) {
    nodes->count = 0;
    for (int core = 0; core < CPU_SETSIZE; core++) {
        nodes->node_of[core] = UNKNOWN;
        nodes->first_of[core] = (short)core;
    }
    read_nodes(nodes, root, allowed);
    read_siblings(nodes, root, allowed);
}

int cpu_nodes_of(const cpu_nodes *nodes, const cpu_set_t *cores) {
    int found = UNKNOWN;
    for (size_t core = 0; core < CPU_SETSIZE; core++) {
        if (!CPU_ISSET(core, cores)) continue;
        int number = nodes->numbers[nodes->node_of[core]];
        if (found != UNKNOWN && found != number) return UNKNOWN;
        found = number;
    }
    return found;
}

void cpu_nodes_write(const cpu_nodes *nodes, const cpu_set_t *cores, char *text, size_t size) {
    cpu_set_t numbers;
    CPU_ZERO(&numbers);
    for (size_t core = 0; nodes->count > 1 && core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, cores)) CPU_SET((size_t)nodes->numbers[nodes->node_of[core]], &numbers);
    yoke_core_list_write(&numbers, text, size);
}
