/* DDP's ranks as a contender of a race: processes with an engine each, and a fixed random batch. */
#ifndef CLI_BENCH_RANKS_H
#define CLI_BENCH_RANKS_H

#include "bench_engine.h"
#include "compare_contender.h"

typedef struct bench_ranks {
    compare_setup setup;
    compare_meeting meeting;
    bool met; /* the meeting is open */
    compare_contender contender;
} bench_ranks;

/* As many ranks as setup->devices; setup->list is not read. NULL on failure. */
yoke_status bench_ranks_create(bench_ranks **ranks, const bench_setup *setup);
void bench_ranks_destroy(bench_ranks *ranks);

#endif
