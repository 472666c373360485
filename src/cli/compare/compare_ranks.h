/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of a DDP contender: processes of this program that sleep between requests. */
#ifndef CLI_COMPARE_RANKS_H
#define CLI_COMPARE_RANKS_H

#include "cli/compare/compare_child.h"
#include "cli/compare/compare_engine.h"

typedef struct compare_ranks compare_ranks;

/* Starts `world` processes with one engine each. A rank that dies, in this or a later call, gives
 * PEER with its number and cause. NULL on failure, with no rank left. */
yoke_status compare_ranks_start(compare_ranks **ranks, const compare_meeting *meeting,
                                const compare_setup *setup, int world);
/* Kills the ranks that do not end by themselves. */
void compare_ranks_end(compare_ranks *ranks);
void compare_ranks_describe(const compare_ranks *ranks, compare_facts *facts);

/* As in compare_engine.h. Losses, weights and stages are those of rank 0, the time is that of the
 * slowest. INTERNAL when ranks of a model without batch norm differ in a weight. */
yoke_status compare_ranks_learn(compare_ranks *ranks, int steps, compare_learned *learned);
yoke_status compare_ranks_run(compare_ranks *ranks, int steps, bool fresh, double *milliseconds);
yoke_status compare_ranks_stages(compare_ranks *ranks, compare_stages *stages);
/* From every rank: lanes, memory[ranks]; spans of all ranks one after another, with the rank as
 * their lane, in step->spans[ranks * COMPARE_LANE_SPANS]. */
yoke_status compare_ranks_account(compare_ranks *ranks, yoke_account *lanes);
/* The recorded steps of all ranks, in steps[COMPARE_LANE_SPANS]. */
yoke_status compare_ranks_steps(compare_ranks *ranks, yoke_span_info *steps, int *count);
yoke_status compare_ranks_step(compare_ranks *ranks, compare_step *step);
void compare_ranks_memory(const compare_ranks *ranks, compare_memory *memory);
/* Rank 0's result comes through a file in the meeting's folder. */
yoke_status compare_ranks_read(compare_ranks *ranks, float *weights, size_t count);
/* Processor time of all ranks, in seconds. */
double compare_ranks_seconds(const compare_ranks *ranks);

/* A rank, as `yoke compare --rank-worker`; returns the exit code. */
int compare_worker(void);

#endif
