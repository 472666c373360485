/* SPDX-License-Identifier: Apache-2.0 */
/* Races contenders in rounds, on a machine that other programs may disturb. A figure is a median
 * over the rounds or a quotient of two medians, so figures of one race never contradict each other;
 * each comes with its interval. */
#ifndef CLI_COMPARE_ROUNDS_H
#define CLI_COMPARE_ROUNDS_H

#include <stdbool.h>

#include "yoke/status.h"

#define RACE_CONTENDERS 64
#define RACE_ROUNDS 99
#define RACE_FEWEST 3          /* rounds of any race */
#define RACE_INTERVAL_ROUNDS 6 /* fewer rounds give a range and no interval */

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
    int steps;      /* of one run; 0: enough for half a second of the first contender, or for as
                       many rounds as wanted in 60 % of `seconds`; 2 at least */
    double seconds; /* of the race; three rounds run in any case */
    /* Processor seconds of other processes that work for a contender; NULL: there are none. */
    double (*helpers)(void *context);
    void *context;
    /* results */
    double milliseconds[RACE_ROUNDS][RACE_CONTENDERS];
    int number[RACE_ROUNDS]; /* [done]: when the round was run, counted from 0 */
    int done;                /* rounds kept */
    int repeated;            /* disturbed rounds thrown away */
    int noisy;               /* disturbed rounds kept, for lack of quiet ones */
} rounds;

/* Warms every contender up, then races them, in a random order in each round. */
yoke_status race_run(rounds *race);

/* low and high: the bootstrap 95 % interval, of 2000 resamples of the rounds. With fewer rounds
 * than RACE_INTERVAL_ROUNDS such an interval would be narrower than it says, and low and high are
 * the smallest and largest value of a round. */
typedef struct race_ratio {
    double median, low, high;
} race_ratio;

/* How many times faster `a` is than `b`, times `scale`: the quotient of their medians. A resample
 * takes the same rounds of both, so what slows down a whole round widens no interval. */
race_ratio race_compare(const rounds *race, int a, int b, double scale);
/* A contender's own milliseconds of a step, times `scale`. */
race_ratio race_times(const rounds *race, int contender, double scale);
/* How far the ratio of two equal contenders gets from 1: a ratio this close to a line is on neither
 * side of it. */
double race_noise(const rounds *race, int a, int same);

/* The median of any values, one a round. */
race_ratio race_interval(const double *values, int count);

/* Monotonic seconds. */
double race_clock(void);

#endif
