/* SPDX-License-Identifier: Apache-2.0 */
/* The forms of a race. A row opens one or two contenders, warms them up, races them in rounds and
 * reads one value; forms differ only in who races and in how the value is made. */
#ifndef BENCH_TOOL_BENCH_FORMS_H
#define BENCH_TOOL_BENCH_FORMS_H

#include "bench/tool/bench_engine.h"
#include "bench/tool/bench_rows.h"
#include "cli/compare/compare_contender.h"

typedef struct bench_ranks bench_ranks;
typedef struct bench_copy bench_copy;
typedef struct bench_meeting bench_meeting;

/* What `open` created, NULL or zero where a form needs none; bench_measure destroys it. */
typedef struct bench_field {
    race_contender a, b; /* b.run NULL: a races alone */
    /* Work of one step, in the unit times milliseconds; 0: the figure is a time. */
    double a_work, b_work;
    bench_engine *engines[2];
    bench_ranks *ranks;
    compare_contender threads;
    bench_copy *copy;
    bench_meeting *meeting;
} bench_field;

typedef enum bench_value {
    BENCH_SPEED, /* how many times as fast a is as b */
    BENCH_TIME,  /* how many times as long a takes as b */
    BENCH_FIGURE /* a's own figure */
} bench_value;

struct bench_form {
    const char *unit; /* of both contenders' figures */
    bench_value value;
    double units_per_ms; /* of figures that are times */
    bool twin;           /* a also races itself: the noise */
    int steps;           /* of a turn, unless --steps says so; 0: half a second's worth */
    yoke_status (*open)(const bench_row *row, bench_field *field);
};

/* bench_copy.c: one stage by hand against memcpy of as many bytes by the same threads. */
yoke_status bench_open_replicate(const bench_row *row, bench_field *field);
yoke_status bench_open_reduce(const bench_row *row, bench_field *field);
void bench_copy_destroy(bench_copy *copy);

/* bench_dispatch.c: an empty job for every device; against two meetings at a pthread barrier; and
 * against two at a barrier that only sleeps. */
yoke_status bench_open_dispatch(const bench_row *row, bench_field *field);
yoke_status bench_open_barrier(const bench_row *row, bench_field *field);
yoke_status bench_open_futex(const bench_row *row, bench_field *field);
void bench_meeting_destroy(bench_meeting *meeting);

#endif
