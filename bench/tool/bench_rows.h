/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of `yoke bench`: what each races, and the line it must reach. */
#ifndef BENCH_TOOL_BENCH_ROWS_H
#define BENCH_TOOL_BENCH_ROWS_H

#include "bench/tool/bench_engine.h"

/* How long to measure. */
typedef struct bench_effort {
    int rounds, steps; /* steps 0: as the row's form has it */
    double seconds;    /* of one row's race, without preparation */
} bench_effort;

typedef struct bench_result {
    race_ratio value;
    double noise; /* the farthest a's ratio to itself gets from 1; NAN: a did not race itself */
    double a, b;  /* the contenders' figures in the row's unit; b NAN: a raced alone */
    int rounds, repeated, noisy;
} bench_result;

/* bench_forms.c */
typedef struct bench_form bench_form;
extern const bench_form bench_throughput, /* images per second of a / of b */
    bench_cost,                           /* a step / its kernels, each timed alone */
    bench_in_order,                       /* a step / its kernels, timed in the order of a step */
    bench_outside,                        /* percent of a step outside all stages */
    bench_check,                          /* percent of a's step: a's exchange less b's */
    bench_ddp,                            /* DDP's ranks / as many devices of one process */
    bench_wait,                           /* percent of a rank's step that waits for gradients */
    bench_replicate, bench_reduce,        /* the stage / memcpy of as many bytes */
    bench_dispatch,                       /* an empty job for every device */
    bench_barrier,                        /* two meetings at a pthread barrier / an empty job */
    bench_futex; /* an empty job / two meetings at a barrier that only sleeps */

typedef struct bench_row {
    const char *name; /* group-model-variant */
    const char *what;
    double line;
    bool at_most; /* the value must stay below the line */
    bool quick;   /* part of `yoke bench` without names */
    const bench_form *form;
    const bench_setup *a, *b; /* b NULL where the form needs one setup */
} bench_row;

/* Row `index`, NULL past the end. */
const bench_row *bench_row_at(int index);
const char *bench_row_unit(const bench_row *row);
yoke_status bench_measure(const bench_row *row, const bench_effort *effort, bench_result *result);

#endif
