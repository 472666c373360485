/* SPDX-License-Identifier: Apache-2.0 */
/* The door of observers: who watches a step, or slows it down on purpose. The runner calls them by
 * their table; an engine without one of them has nothing of it in its steps. */
#ifndef PARALLEL_OBSERVERS_OBSERVERS_H
#define PARALLEL_OBSERVERS_OBSERVERS_H

#include "parallel/step/step.h"

/* waits.c: lanes that share memory wait between two jobs.
 * timeline.c: on devices that queue, events in their streams time the bars, and are read one batch
 * later, when they have passed.
 * interpreter.c: what Python adds to nn.DataParallel, in the schedule python.
 * modelled_links.c: what a stage moves between the root and the lanes takes its time on links.
 * straggler.c: one device or rank computes more slowly than the others.
 * audit.c: a second device computes a shard again.
 * faults.c: a device or rank fails, on purpose.
 * speeds.c: how fast each device computes, to deal it its part of a batch. */
extern const yoke_observer yoke_observe_waits, yoke_observe_timeline, yoke_observe_interpreter,
    yoke_observe_links, yoke_observe_straggler, yoke_observe_speeds, yoke_observe_faults,
    yoke_observe_audit;

/* create reads the options that ask for observers, and makes what they keep. ARGUMENT: an
 * impossible one. attach lists those that this step has. */
yoke_status yoke_observers_create(yoke_step *step);
void yoke_observers_attach(yoke_step *step);
void yoke_observers_destroy(yoke_step *step); /* takes half-built ones */

yoke_status yoke_straggler_check(const yoke_step *step);
yoke_status yoke_faults_create(yoke_step *step);
/* audit.c. The shard of another lane that this one computes before its own; -1: none. suspects and
 * judge: as yoke_data_parallel_suspects and _judge. */
yoke_status yoke_audit_create(yoke_step *step);
int yoke_audited_shard(const yoke_step *step, int lane);
bool yoke_audit_suspects(const yoke_step *step, yoke_suspicion *suspicion);
void yoke_audit_judge(yoke_step *step, const yoke_suspicion *suspicion);
yoke_status yoke_modelled_links_create(yoke_step *step);

/* The clock of a lane whose device queues. read waits for all streams and completes the trace. */
yoke_status yoke_clock_create(yoke_step *step, int lane);
void yoke_clock_destroy(yoke_step *step, int lane);
yoke_status yoke_timeline_read(yoke_step *step);

/* The interpreter's lock and threads. hook: of a lane's replica, before each operation. */
yoke_status yoke_interpreter_create(yoke_step *step);
void yoke_interpreter_destroy(struct yoke_interpreter *interpreter); /* takes NULL */
yoke_operation_hook yoke_interpreter_hook(const yoke_step *step, int lane);

/* speeds.c: `seconds` of a stage on the lane, from whoever measures them. */
yoke_status yoke_speeds_create(yoke_step *step);
/* As yoke_data_parallel_seconds. */
double yoke_speeds_take(yoke_step *step);
void yoke_speeds_add(yoke_step *step, int lane, yoke_stage stage, double seconds);

/* waits.c: the lane has a job again. */
void yoke_idle_end(yoke_step *step, int lane);

#endif
