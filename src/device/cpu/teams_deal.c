/* SPDX-License-Identifier: Apache-2.0 */
/* Which cores each team of a machine takes: those of one node where that is possible. */
#include <stdint.h>

#include "device/cpu/nodes.h"

/* Cores in the order in which teams take them: node after node, a core before its siblings. */
typedef struct core_line {
    int count, nodes;
    int begins[CPU_SETSIZE + 1]; /* of a node's cores; the next one's begin where they end */
    short cores[CPU_SETSIZE];
} core_line;

static int size_of(const core_line *line, int node) {
    return line->begins[node + 1] - line->begins[node];
}

static void append_core(core_line *line, const cpu_nodes *nodes, const cpu_set_t *allowed, int core,
                        bool siblings) {
    line->cores[line->count++] = (short)core;
    for (int other = core + 1; siblings && other < CPU_SETSIZE; other++)
        if (CPU_ISSET((size_t)other, allowed) && nodes->first_of[other] == core)
            line->cores[line->count++] = (short)other;
}

static void fill_line(core_line *line, const cpu_nodes *nodes, const cpu_set_t *allowed,
                      bool siblings) {
    line->count = 0;
    line->nodes = nodes->count;
    for (int node = 0; node < nodes->count; node++) {
        line->begins[node] = line->count;
        for (int core = 0; core < CPU_SETSIZE; core++)
            if (CPU_ISSET((size_t)core, allowed) && nodes->node_of[core] == node &&
                nodes->first_of[core] == core)
                append_core(line, nodes, allowed, core, siblings);
    }
    line->begins[nodes->count] = line->count;
}

/* How many of `teams` the nodes before one get whose weights sum to `before` of `whole`. */
static int cut(int teams, int before, int whole) {
    return (int)(((int64_t)teams * before + whole - 1) / whole);
}

/* Teams with cores of one node: node n gets teams from[n] to from[n + 1] - 1. A node counts as many
 * teams as fit in it; where teams share cores, it counts its cores if one fits. Returns how many
 * teams have such cores. */
static int place_teams(const core_line *line, const cpu_teams *teams, bool shares, int *from) {
    int before[CPU_SETSIZE + 1] = {0}, placed = teams->count;
    for (int node = 0; node < line->nodes; node++) {
        int fit = size_of(line, node) / teams->threads;
        before[node + 1] = before[node] + (shares && fit > 0 ? size_of(line, node) : fit);
    }
    int whole = before[line->nodes];
    if (whole == 0 || (!shares && whole < placed)) placed = whole;
    for (int node = 0; node <= line->nodes; node++)
        from[node] = whole > 0 ? cut(placed, before[node], whole) : 0;
    return placed;
}

static void take_of_node(const core_line *line, int node, int position, int threads,
                         cpu_set_t *cores) {
    for (int i = 0; i < threads; i++)
        CPU_SET((size_t)line->cores[line->begins[node] + (position + i) % size_of(line, node)],
                cores);
}

/* What the teams of one node each leave over, node after node. */
static void take_of_rest(const core_line *line, const int *from, int position, int threads,
                         cpu_set_t *cores) {
    short rest[CPU_SETSIZE];
    int count = 0;
    for (int node = 0; node < line->nodes; node++)
        for (int k = (from[node + 1] - from[node]) * threads; k < size_of(line, node); k++)
            rest[count++] = line->cores[line->begins[node] + k];
    for (int i = 0; i < threads && i < count; i++)
        CPU_SET((size_t)rest[(position + i) % count], cores);
}

void cpu_teams_deal(const cpu_teams *teams, int team, const cpu_nodes *nodes,
                    const cpu_set_t *allowed, cpu_set_t *cores) {
    core_line line;
    int from[CPU_SETSIZE + 1], node = 0;
    cpu_teams own = *teams;
    CPU_ZERO(cores);
    fill_line(&line, nodes, allowed, false);
    /* A list that leaves numbers out shares the machine with others: as if all of it were dealt. */
    if (team >= own.count) {
        own.count = line.count / own.threads;
        if (own.count <= team) own.count = team + 1;
    }
    int64_t needed = (int64_t)own.count * own.threads;
    if (needed > line.count) fill_line(&line, nodes, allowed, true);
    bool shares = needed > line.count;
    int placed = place_teams(&line, &own, shares, from);
    if (team >= placed) {
        take_of_rest(&line, from, (team - placed) * own.threads, own.threads, cores);
        return;
    }
    while (team >= from[node + 1])
        node++;
    take_of_node(&line, node, (team - from[node]) * own.threads, own.threads, cores);
}
