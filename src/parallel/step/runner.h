/* SPDX-License-Identifier: Apache-2.0 */
/* The runner: it alone sends work to the lanes, opens and closes bars, says where a failure was,
 * and calls the observers. */
#ifndef PARALLEL_STEP_RUNNER_H
#define PARALLEL_STEP_RUNNER_H

#include "parallel/step/parts.h"

/* A schedule's lists, for the batch in flight; one stage. */
yoke_status yoke_run_schedule(yoke_step *step, const yoke_schedule_def *schedule);
yoke_status yoke_run_stage(yoke_step *step, const yoke_stage_def *stage);

/* Runs `job` on the workers of lanes 0 .. lanes - 1 and waits; 1: on the root's worker, which is
 * the calling thread. A failure's text begins with `what`, replica and device. */
yoke_status yoke_apply(yoke_step *step, int lanes, const char *what, yoke_replica_job job,
                       void *context);

/* On the lane's worker, inside a job: one bar of `bucket`, or YOKE_NO_BUCKET. */
yoke_status yoke_run_bar(yoke_step *step, const yoke_bar *bar, int lane, int bucket);
/* Ends the lane's bar in progress, calls `between`, and begins the bar anew. Where lanes share
 * memory alone. */
void yoke_cut_bar(yoke_step *step, int lane, void (*between)(void *), void *context);
/* After a part of backward, before its gradient is added to others. */
yoke_status yoke_gradient_is_ready(yoke_step *step, int lane, yoke_bucket bucket);
/* The device has queued the bar as a part of a recording. */
void yoke_replay_bar(yoke_step *step, const yoke_bar *bar, int lane, int bucket);

/* A lane that shares memory waits for the stage `awaits` of other lanes or ranks, on `bucket`. */
yoke_span yoke_wait_begin(yoke_stage awaits, int bucket);
void yoke_wait_end(yoke_step *step, int lane, const yoke_span *wait);

/* A span that holds bars: a whole step. It, or a wait that counts however short it was, ends now.
 */
yoke_span yoke_span_begin(yoke_stage stage);
void yoke_span_end(yoke_step *step, int lane, const yoke_span *span);

/* Around a whole step; it was step `number`. */
void yoke_step_begins(yoke_step *step);
void yoke_step_ended(yoke_step *step, uint64_t number);

/* On every lane whose device queues, work queued later on stream `to` waits for all work queued on
 * `from`: one of them computes, the other communicates. synchronize: the host waits for every
 * stream. */
yoke_status yoke_lanes_order(yoke_step *step, yoke_stream from, yoke_stream to);
yoke_status yoke_lanes_synchronize(yoke_step *step);

/* Whether each stage ends before the next begins, with the loss on the root: classic and python. */
bool yoke_steps_by_phases(const yoke_step *step);

#endif
