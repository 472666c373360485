/* SPDX-License-Identifier: Apache-2.0 */
/* parallel_apply: the same job on every lane's worker at once; each returns its status. */
#include "parallel/engine.h"

typedef struct timed_job {
    yoke_data_parallel *parallel;
    yoke_replica_job job;
    void *context;
} timed_job;

static yoke_status run_timed(int lane, void *context) {
    const timed_job *timed = context;
    yoke_idle_end(timed->parallel, lane);
    yoke_status status = timed->job(lane, timed->context);
    yoke_idle_begin(timed->parallel, lane);
    return status;
}

/* How the jobs of lanes 0 .. lanes - 1 run: on the lanes' workers, or in threads of Python. */
typedef yoke_status (*runner)(yoke_data_parallel *parallel, int lanes, yoke_worker_job job,
                              void *context, int *failed);

static yoke_status run_on_workers(yoke_data_parallel *parallel, int lanes, yoke_worker_job job,
                                  void *context, int *failed) {
    return yoke_workers_run(parallel->workers, lanes, job, context, failed);
}

/* A lane that is done waits for the last one, and then for the next job. */
static yoke_status run_and_wait(yoke_data_parallel *parallel, runner run, int lanes,
                                yoke_replica_job job, void *context, int *failed) {
    timed_job timed = {parallel, job, context};
    if (!yoke_idle_counts(parallel)) return run(parallel, lanes, job, context, failed);
    TRY(run(parallel, lanes, run_timed, &timed, failed));
    for (int lane = 0; lane < lanes; lane++) {
        yoke_idle_end(parallel, lane);
        if (lane > 0) yoke_idle_begin(parallel, lane);
    }
    return YOKE_OK;
}

static yoke_status apply(yoke_data_parallel *parallel, runner run, int lanes, const char *what,
                         yoke_replica_job job, void *context) {
    int failed = -1;
    TRY(yoke_enter(parallel, what));
    yoke_status status =
        yoke_leave(parallel, run_and_wait(parallel, run, lanes, job, context, &failed));
    if (status != YOKE_OK && failed >= 0)
        yoke_error_prefix("%s, replica %d on %s", what, failed,
                          yoke_device_name(parallel->lanes[failed].device));
    TRY(status);
    return yoke_steps_by_phases(parallel) ? yoke_lanes_synchronize(parallel) : YOKE_OK;
}

/* The caller is the root's worker: it computes with the root's threads while the job runs. */
yoke_status yoke_apply(yoke_data_parallel *parallel, int lanes, const char *what,
                       yoke_replica_job job, void *context) {
    return apply(parallel, run_on_workers, lanes, what, job, context);
}

yoke_status yoke_apply_forward(yoke_data_parallel *parallel, const char *what, yoke_replica_job job,
                               void *context) {
    int replicas = yoke_interpreter_replicas(parallel);
    if (replicas < 2) return apply(parallel, run_on_workers, parallel->count, what, job, context);
    return apply(parallel, yoke_interpreter_run, replicas, what, job, context);
}

typedef struct host_job {
    yoke_replica_job job;
    void *context;
} host_job;

/* The host program's job cannot set an error text: an older text of this thread must not pass for
 * its own. */
static yoke_status run_host_job(int lane, void *context) {
    const host_job *host = context;
    unsigned before = yoke_error_serial();
    yoke_status status = host->job(lane, host->context);
    if (status == YOKE_OK || yoke_error_serial() != before) return status;
    return FAIL(status, "the job answered %s", yoke_status_name(status));
}

yoke_status yoke_parallel_apply(yoke_data_parallel *parallel, yoke_replica_job job, void *context) {
    host_job host = {.job = job, .context = context};
    if (job == NULL) return FAIL(YOKE_ERROR_ARGUMENT, "yoke_parallel_apply: the job is NULL");
    TRY(yoke_enter_settled(parallel, "yoke_parallel_apply"));
    return yoke_leave(parallel,
                      yoke_apply(parallel, parallel->count, "parallel_apply", run_host_job, &host));
}
