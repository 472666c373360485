/* SPDX-License-Identifier: Apache-2.0 */
/* One recorded step of a contender, for the timeline. */
#ifndef CLI_COMPARE_STEP_H
#define CLI_COMPARE_STEP_H

#include "trace/trace.h"

#define COMPARE_LANE_SPANS 1024 /* that one device can have; more are left out */
#define COMPARE_NO_STEP UINT64_MAX
#define COMPARE_LINK_OF(lane) (-1 - (lane)) /* the lane of the lane's modelled link */

typedef struct compare_step {
    uint64_t number;
    double milliseconds;
    uint64_t begin_ns, end_ns;
    int count, left_out;
    yoke_span_info *spans; /* [count], the caller's; no YOKE_STAGE_STEP */
} compare_step;

/* Which step to show. list: copies the last spans of whole steps, `capacity` at most, and returns
 * their number. join: widens steps[0 .. count) to the same steps of another rank, leaves out those
 * that it lacks, and returns how many are left. choose: the step whose time is closest to
 * `milliseconds`, of those that take least_ms if there are any; COMPARE_NO_STEP: there is none. */
int compare_steps_list(const yoke_spans *spans, yoke_span_info *steps, int capacity);
int compare_steps_join(yoke_span_info *steps, int count, const yoke_span_info *others,
                       int other_count);
uint64_t compare_steps_choose(const yoke_span_info *steps, int count, double milliseconds,
                              double least_ms);

/* Fills in the step of that number, which has room for `capacity` spans. When the trace has no such
 * step: no spans, and it ends at 0. */
void compare_step_read(const yoke_spans *spans, compare_step *step, int capacity);
/* Appends another rank's part of the step, whose lane becomes `rank`; there is room. The step lasts
 * from the first rank's begin to the last one's end. */
void compare_step_join(compare_step *step, const compare_step *part, int rank);

#endif
