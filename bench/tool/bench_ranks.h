/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of DDP as a contender: processes with one engine each and a fixed random batch. */
#ifndef BENCH_TOOL_BENCH_RANKS_H
#define BENCH_TOOL_BENCH_RANKS_H

#include "bench/tool/bench_engine.h"
#include "cli/compare/compare_contender.h"

typedef struct bench_ranks {
    compare_setup setup;
    compare_meeting meeting;
    bool met; /* the meeting is open */
    compare_contender contender;
} bench_ranks;

/* setup->devices ranks on CPU devices; ignores setup->list. NULL on failure. */
yoke_status bench_ranks_create(bench_ranks **ranks, const bench_setup *setup);
void bench_ranks_destroy(bench_ranks *ranks);

#endif
