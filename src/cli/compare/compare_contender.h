/* SPDX-License-Identifier: Apache-2.0 */
/* A contender of a comparison: devices of this process, ranks, or a trainer, behind the same calls.
 */
#ifndef CLI_COMPARE_CONTENDER_H
#define CLI_COMPARE_CONTENDER_H

#include "cli/compare/compare_way.h"

typedef struct compare_contender {
    compare_kind kind;
    int devices, threads; /* threads of each device; 0: as the setup says */
    void *inside;         /* what its way has built; NULL: nothing */
    int runs;
    compare_facts facts;
    compare_learned learned;
    compare_stages stages;
    /* Where the contender records; NULL: it does not, or its way cannot. */
    yoke_account *history;  /* [RACE_ROUNDS][devices]: each run but the first */
    compare_memory *memory; /* [devices] */
} compare_contender;

/* The caller sets kind, devices and threads. meeting: for DDP. */
yoke_status compare_contender_build(compare_contender *contender, const compare_setup *setup,
                                    const compare_meeting *meeting);
void compare_contender_clear(compare_contender *contender);
/* Makes a built contender account for every run of a race. */
yoke_status compare_contender_record(compare_contender *contender);
/* Fills in `learned`. */
yoke_status compare_contender_learn(compare_contender *contender, int steps);
/* For a race; context is a contender. The first run warms up, and the trace leaves it out. */
yoke_status compare_contender_run(void *context, int steps, double *milliseconds);
/* Percent of the steps' time that rank 0, or the slowest device, waits for gradients. */
yoke_status compare_contender_wait(void *context, int steps, double *percent);
/* Fills in `stages`, without the first run. */
yoke_status compare_contender_look(compare_contender *contender);
/* Fills in the step of all runs but the first that compare_steps_choose chooses, of all ranks; the
 * caller frees step->spans. NULL: its way records no steps. */
yoke_status compare_contender_step(compare_contender *contender, double milliseconds,
                                   double least_ms, compare_step *step);
/* How stale its pushes were; all zero: this way to train has no pushes. */
compare_staleness compare_contender_staleness(const compare_contender *contender);
/* Processor time of its other processes. */
double compare_contender_seconds(const compare_contender *contender);

#endif
