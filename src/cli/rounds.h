/* Races contenders in interleaved rounds on a machine that may be disturbed: every ratio is formed
 * within a round, never across runs, and comes with the interval it lies in. */
#ifndef CLI_ROUNDS_H
#define CLI_ROUNDS_H

#include <stdbool.h>

#include "yoke/status.h"

#define RACE_CONTENDERS 64
#define RACE_ROUNDS 99

/* Runs `steps` steps; *milliseconds gets what one took. */
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
    double seconds; /* no round begins later, once three are done; disturbed rounds are repeated */
    /* Processor time of other processes that run for a contender, in seconds; NULL: there are none
     */
    double (*helpers)(void *context);
    void *context;
    /* results */
    double milliseconds[RACE_ROUNDS][RACE_CONTENDERS];
    int done;     /* rounds kept */
    int repeated; /* rounds thrown away: foreign work on the cores or in the shared cache */
    int noisy;    /* disturbed rounds kept all the same, because time had run out */
} rounds;

/* Warms every contender up, then races them in a random order in each round. */
yoke_status race_run(rounds *race);

/* A ratio's median over the rounds and the bootstrap 95 % interval of that median. */
typedef struct race_ratio {
    double median, low, high;
} race_ratio;

/* How many times faster `a` is than `b`, times `scale`. */
race_ratio race_compare(const rounds *race, int a, int b, double scale);
/* A contender's own milliseconds of a step, times `scale`. */
race_ratio race_times(const rounds *race, int contender, double scale);
/* Half the width by which two runs of the same contender differ: a ratio this close to a line is
 * on neither side of it. */
double race_noise(const rounds *race, int a, int same);

/* The median and its interval over any values of rounds. */
race_ratio race_interval(const double *values, int count);

/* Monotonic seconds. */
double race_clock(void);

#endif
