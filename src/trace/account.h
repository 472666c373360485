/* SPDX-License-Identifier: Apache-2.0 */
/* Where the time of a device goes. One rule decides what a device does at an instant, and all that
 * show time follow it: tables, pages, the live view and the simulator.
 *
 *     At every instant a device is in one stage or idle. Where spans overlap, computation counts
 *     before communication, and communication before a wait; of two of a kind, the one that began
 *     last.
 *
 * So communication behind computation costs no time, and the parts of a step add up to the step. */
#ifndef TRACE_ACCOUNT_H
#define TRACE_ACCOUNT_H

#include "yoke/trace.h"

/* Besides the stages: no stage runs, and the device is not known to wait. */
#define YOKE_STAGE_IDLE YOKE_STAGE_COUNT
#define YOKE_ACCOUNT_STAGES (YOKE_STAGE_COUNT + 1)

/* The kinds of stages; where several are open, the first of these kinds counts. */
typedef enum yoke_activity {
    YOKE_COMPUTES,
    YOKE_COMMUNICATES,
    YOKE_WAITS, /* for another device, for its link or for the loader */
    YOKE_IDLES,
    YOKE_ACTIVITIES
} yoke_activity;

/* stage: a yoke_stage or YOKE_STAGE_IDLE. */
yoke_activity yoke_activity_of(int stage);
const char *yoke_account_name(int stage);    /* "forward"; "idle" */
const char *yoke_account_meaning(int stage); /* what happens in it */

/* The spans of a trace, lane by lane. */
typedef struct yoke_spans {
    yoke_span_info *all; /* [count] */
    size_t count;
    yoke_span_info *links; /* [link_count]: of the modelled link of each lane */
    size_t link_count;
} yoke_spans;

/* Copies the spans of the last `steps` steps, or of all with 0. MEMORY. The caller frees. */
yoke_status yoke_spans_read(const yoke_trace *trace, uint64_t steps, yoke_spans *spans);
void yoke_spans_free(yoke_spans *spans);
/* Lists the lane's spans; `list` has room for `count`. Returns how many there are. */
size_t yoke_spans_of_lane(const yoke_span_info *spans, size_t count, int lane,
                          const yoke_span_info **list);

/* A part of a time in which one span counts. */
typedef struct yoke_piece {
    const yoke_span_info *span; /* NULL: idle */
    uint64_t begin_ns, end_ns;
} yoke_piece;

/* The rule: cuts the time from begin_ns to end_ns into pieces[2 * count + 1], in order and without
 * gaps, by the spans of one device. STEP and EVALUATE hold other stages and do not count. Reorders
 * the list. Returns the number of pieces. */
size_t yoke_account_cut(const yoke_span_info **spans, size_t count, uint64_t begin_ns,
                        uint64_t end_ns, yoke_piece *pieces);

/* One device in a step: milliseconds and bytes, means over steps. To rounding,
 *     step_ms = the sum of stage_ms.
 * stage_ms[YOKE_STAGE_STEP] and [YOKE_STAGE_EVALUATE] stay 0. */
typedef struct yoke_account {
    double step_ms;
    double stage_ms[YOKE_ACCOUNT_STAGES];
    double bytes[YOKE_STAGE_COUNT]; /* that the device reads and writes in the stage; with modelled
                                       links also those that they carry in it */
    double sent, received;          /* over the device's modelled link; 0: it has none */
} yoke_account;

/* A run of steps, by the clock of the spans. */
typedef struct yoke_account_window {
    uint64_t begin_ns, end_ns;
    int steps;
} yoke_account_window;

/* Fills accounts[0 .. lanes) from the spans inside the window. When the trace has lost the first
 * steps, the others stand for them. MEMORY. */
yoke_status yoke_account_read(const yoke_spans *spans, const yoke_account_window *window,
                              yoke_account *accounts, int lanes);
/* Adds the milliseconds of the pieces, times `weight`; step_ms, too. */
void yoke_account_add_pieces(yoke_account *account, const yoke_piece *pieces, size_t count,
                             double weight);
/* sum += weight * other. */
void yoke_account_add(yoke_account *sum, const yoke_account *other, double weight);
/* Makes `milliseconds` the length of a step: the rest is idle time. */
void yoke_account_stretch(yoke_account *account, double milliseconds);
/* Milliseconds of all its stages of this kind. */
double yoke_account_activity_ms(const double stage_ms[YOKE_ACCOUNT_STAGES], yoke_activity activity);

#endif
