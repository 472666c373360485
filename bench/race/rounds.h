/* Races contenders in rounds, on a machine that other programs may disturb. Every ratio is formed
 * within a round, never across runs, and comes with its interval. */
#ifndef BENCH_RACE_ROUNDS_H
#define BENCH_RACE_ROUNDS_H

#include <stdbool.h>

#include "yoke/status.h"

#define RACE_CONTENDERS 64
#define RACE_ROUNDS 99

/* Runs `steps` steps; *milliseconds becomes the mean of one. */
typedef yoke_status (*race_run_function)(void *context, int steps, double *milliseconds);

typedef struct race_contender {
    race_run_function run;
    void *context;
} race_contender;

typedef struct rounds {
    const char *title; /* of the progress line on stderr; NULL: none */
    race_contender contenders[RACE_CONTENDERS];
    int count;
    int rounds;     /* wanted, 1 .. RACE_ROUNDS */
    int steps;      /* of one run; 0: enough for half a second of the first contender, 2 at least */
    double seconds; /* after it disturbed rounds count, and three rounds are enough */
    /* Processor seconds of other processes that work for a contender; NULL: there are none. */
    double (*helpers)(void *context);
    void *context;
    /* results */
    double milliseconds[RACE_ROUNDS][RACE_CONTENDERS];
    int done;     /* rounds kept */
    int repeated; /* disturbed rounds thrown away */
    int noisy;    /* disturbed rounds kept, for lack of time */
} rounds;

/* Warms every contender up, then races them, in a random order in each round. */
yoke_status race_run(rounds *race);

/* A ratio's median over the rounds and the bootstrap 95 % interval of that median. */
typedef struct race_ratio {
    double median, low, high;
} race_ratio;

/* How many times faster `a` is than `b`, times `scale`. */
race_ratio race_compare(const rounds *race, int a, int b, double scale);
/* A contender's own milliseconds of a step, times `scale`. */
race_ratio race_times(const rounds *race, int contender, double scale);
/* How far the ratio of two equal contenders gets from 1: a ratio this close to a line is on neither
 * side of it. */
double race_noise(const rounds *race, int a, int same);

/* The same of any values, one a round. */
race_ratio race_interval(const double *values, int count);

/* Monotonic seconds. */
double race_clock(void);

#endif
