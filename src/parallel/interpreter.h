/* SPDX-License-Identifier: Apache-2.0 */
/* What Python adds to the algorithm of nn.DataParallel, for the schedule python: replicas that are
 * rebuilt, and threads that are started, in every forward; and the interpreter's lock, which one
 * thread at a time holds to call a layer. Kernels run without it, and so does backward, which
 * PyTorch runs in C++. In this schedule alone a step allocates memory: for its threads. All
 * functions do nothing in other schedules. */
#ifndef PARALLEL_INTERPRETER_H
#define PARALLEL_INTERPRETER_H

#include "model/model.h"
#include "parallel/parallel.h"
#include "parallel/timeline.h"

typedef struct yoke_interpreter yoke_interpreter;

/* ARGUMENT: options that nn.DataParallel has not, or devices that queue. */
yoke_status yoke_interpreter_create(yoke_data_parallel *parallel);
void yoke_interpreter_destroy(yoke_interpreter *interpreter); /* takes NULL */

/* Makes all replicas but the root's stale, whatever they hold. */
void yoke_interpreter_forget(yoke_data_parallel *parallel);
/* Spends Python's time for building the replicas anew: their modules, one by one. */
void yoke_interpreter_rebuild(yoke_data_parallel *parallel);

/* Replicas that the batch in flight gives rows to: lanes 0 to this number. 0 in other schedules. */
int yoke_interpreter_replicas(const yoke_data_parallel *parallel);
/* Starts a thread for each lane, runs the job in them, and joins them. The caller only waits. */
yoke_status yoke_interpreter_run(yoke_data_parallel *parallel, int lanes, yoke_worker_job job,
                                 void *context, int *failed);

/* Of a lane's replica: takes the lock before each operation of a forward. begin and end: of the
 * forward, on the thread that runs it; the lock cuts its span in pieces. */
yoke_operation_hook yoke_interpreter_hook(const yoke_data_parallel *parallel, int lane);
void yoke_interpreter_begin(const yoke_data_parallel *parallel, yoke_stage_span *forward);
void yoke_interpreter_end(const yoke_data_parallel *parallel, int lane);

#endif
