/* SPDX-License-Identifier: Apache-2.0 */
/* Where a device's time goes: the spans of some steps, added up so that the parts make the whole.
 */
#ifndef CLI_COMPARE_ACCOUNT_H
#define CLI_COMPARE_ACCOUNT_H

#include "yoke/yoke.h"

/* One device, in a step: milliseconds and bytes, means over the steps of a run. An instant in which
 * two stages run (a GPU copies while it computes) counts for the one that computes, so
 *     step_ms = idle_ms + the sum of stage_ms,
 * to rounding. stage_ms[YOKE_STAGE_STEP] and [YOKE_STAGE_EVALUATE] stay 0. */
typedef struct compare_account {
    double step_ms; /* of the whole mode, the same for all its devices */
    double idle_ms; /* no stage runs, YOKE_STAGE_WAIT neither */
    double stage_ms[YOKE_STAGE_COUNT];
    double bytes[YOKE_STAGE_COUNT]; /* that the device reads and writes in the stage; with modelled
                                       links also those that they carry in it */
    double sent, received;          /* over the device's modelled link; 0: it has none */
} compare_account;

/* A run of steps, by the clock of the spans. */
typedef struct compare_window {
    uint64_t begin_ns, end_ns;
    int steps;
} compare_window;

/* All spans of a trace. */
typedef struct compare_spans {
    yoke_span_info *all; /* [count] */
    size_t count;
} compare_spans;
/* The stages of one step. */
#define COMPARE_LANE_SPANS 1024 /* that one device can have; more are left out */
#define COMPARE_NO_STEP UINT64_MAX
typedef struct compare_step {
    uint64_t number;     /* COMPARE_NO_STEP: the one whose time is closest to `milliseconds` */
    double milliseconds; /* of a step */
    uint64_t begin_ns, end_ns;
    int count, left_out;
    yoke_span_info *spans; /* [count], the caller's; no YOKE_STAGE_STEP */
} compare_step;

yoke_status compare_spans_read(const yoke_trace *trace, compare_spans *spans);
void compare_spans_free(compare_spans *spans);

/* Fills lanes[0 .. count) from the spans inside the window. When the trace has lost the first
 * steps, the account is that of the others. */
yoke_status compare_account_read(const compare_spans *spans, const compare_window *window,
                                 compare_account *lanes, int count);
/* Fills in the step, which has room for `capacity` spans; no spans when the trace has no such
 * step. */
void compare_step_read(const compare_spans *spans, compare_step *step, int capacity);
/* Appends another rank's part of the step, whose lane becomes `rank`; there is room. The step lasts
 * from the first rank's begin to the last one's end. */
void compare_step_join(compare_step *step, const compare_step *part, int rank);
/* Makes `milliseconds` the length of a step: the rest becomes idle time. */
void compare_account_stretch(compare_account *account, double milliseconds);
/* sum += weight * other. */
void compare_account_add(compare_account *sum, const compare_account *other, double weight);

#endif
