/* The rows of `yoke bench`: what is raced, and the line it must reach. */
#ifndef CLI_BENCH_ROWS_H
#define CLI_BENCH_ROWS_H

#include "bench_engine.h"

/* How long to measure. */
typedef struct bench_effort {
    int rounds, steps; /* steps 0: by the time a step takes */
    double seconds;    /* of one row's race, engines not counted */
} bench_effort;

typedef struct bench_result {
    race_ratio value;
    double noise; /* the engine against itself; same unit as value's relative error */
    double a, b;  /* what was measured, in the row's unit; b NAN: nothing to compare with */
    int rounds, repeated, noisy;
} bench_result;

typedef struct bench_row bench_row;
struct bench_row {
    const char *name;
    const char *id; /* in the table of goals: "C1" */
    const char *what;
    const char *unit; /* of the two measured figures */
    double line;
    bool at_most; /* the value must stay below the line */
    bool quick;   /* part of `yoke bench` without names */
    yoke_status (*measure)(const bench_row *row, const bench_effort *effort, bench_result *result);
    const bench_setup *a, *b;
};

/* Row `index`, NULL past the end. */
const bench_row *bench_row_at(int index);

/* bench_rows.c: a is raced against b, by images per second; against its own kernels, each alone
 * (its weights in the cache) or in the order of a step (as cold as there); against the sum of its
 * stages. */
yoke_status bench_measure_throughput(const bench_row *row, const bench_effort *effort,
                                     bench_result *result);
yoke_status bench_measure_cost(const bench_row *row, const bench_effort *effort,
                               bench_result *result);
yoke_status bench_measure_in_order(const bench_row *row, const bench_effort *effort,
                                   bench_result *result);
yoke_status bench_measure_outside(const bench_row *row, const bench_effort *effort,
                                  bench_result *result);
/* Fills in what every race tells: rounds, and the noise between contender 0 and its twin. */
void bench_race_result(const rounds *race, int twin, bench_result *result);

/* bench_stages.c: one stage by hand against memcpy of as many bytes by the same threads. */
yoke_status bench_measure_replicate(const bench_row *row, const bench_effort *effort,
                                    bench_result *result);
yoke_status bench_measure_reduce(const bench_row *row, const bench_effort *effort,
                                 bench_result *result);

/* bench_dispatch.c: an empty job to every device, in microseconds; two pthread barriers over it; it
 * over two barriers that only sleep. */
yoke_status bench_measure_dispatch(const bench_row *row, const bench_effort *effort,
                                   bench_result *result);
yoke_status bench_measure_barrier(const bench_row *row, const bench_effort *effort,
                                  bench_result *result);
yoke_status bench_measure_futex(const bench_row *row, const bench_effort *effort,
                                bench_result *result);

/* bench_ddp.c: DDP's ranks against as many devices of one process, by images per second; the
 * percent of a rank's step in which it waits for gradients. */
yoke_status bench_measure_ddp(const bench_row *row, const bench_effort *effort,
                              bench_result *result);
yoke_status bench_measure_wait(const bench_row *row, const bench_effort *effort,
                               bench_result *result);

#endif
