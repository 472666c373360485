/* A contender of a comparison: devices of this process, or ranks, behind the same calls. */
#ifndef CLI_COMPARE_CONTENDER_H
#define CLI_COMPARE_CONTENDER_H

#include "bench/race/rounds.h"
#include "cli/compare/compare_ranks.h"

typedef enum compare_kind {
    COMPARE_SINGLE,
    COMPARE_CLASSIC,
    COMPARE_OVERLAP,
    COMPARE_SHARDED,
    COMPARE_DDP,
    COMPARE_KINDS
} compare_kind;
const char *compare_kind_name(compare_kind kind); /* "dp overlap" */

typedef struct compare_contender {
    compare_kind kind;
    int devices;
    compare_engine *engine; /* this or ranks */
    compare_ranks *ranks;
    int runs;
    compare_facts facts;
    compare_learned learned;
    compare_stages stages;
} compare_contender;

/* The caller sets kind and devices. meeting: for DDP. */
yoke_status compare_contender_build(compare_contender *contender, const compare_setup *setup,
                                    const compare_meeting *meeting);
void compare_contender_clear(compare_contender *contender);
/* Fills in `learned`. */
yoke_status compare_contender_learn(compare_contender *contender, int steps);
/* For a race; context is a contender. The first run warms up, and the trace leaves it out. */
yoke_status compare_contender_run(void *context, int steps, double *milliseconds);
/* Percent of the steps' time that rank 0, or the slowest device, waits for gradients. */
yoke_status compare_contender_wait(void *context, int steps, double *percent);
/* Fills in `stages`, without the first run. */
yoke_status compare_contender_look(compare_contender *contender);
/* A stage's share of the steps' time, and its milliseconds in a step; 0 when it never ran. */
double compare_stage_share(const compare_stages *stages, yoke_stage stage);
double compare_stage_ms(const compare_stages *stages, yoke_stage stage);

#endif
