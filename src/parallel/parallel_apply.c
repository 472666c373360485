/* parallel_apply: the same job on every device's worker at once, each answering by value. */
#include "parallel/engine.h"

typedef struct apply_context {
    yoke_data_parallel *parallel;
    yoke_replica_job job;
    void *context;
} apply_context;

/* A job of the host program cannot set a text: what an earlier failure left on this thread must not
 * pass for its own. */
static yoke_status apply_worker(int worker, void *context) {
    const apply_context *apply = context;
    unsigned told = yoke_error_serial();
    yoke_status status = apply->job(worker, apply->context);
    if (status == YOKE_OK || yoke_error_serial() != told) return status;
    return FAIL(status, "the job answered %s", yoke_status_name(status));
}

/* The caller is the root's worker: it computes with the root's threads for the time of the job. */
static yoke_status run(yoke_data_parallel *parallel, yoke_replica_job job, void *context,
                       int *failed) {
    apply_context apply = {.parallel = parallel, .job = job, .context = context};
    if (parallel->bound)
        return yoke_workers_run(parallel->workers, parallel->count, apply_worker, &apply, failed);
    yoke_device_scope scope;
    TRY(yoke_device_enter(yoke_devices_at(parallel->devices, 0), false, &scope));
    yoke_status status =
        yoke_workers_run(parallel->workers, parallel->count, apply_worker, &apply, failed);
    yoke_device_leave(yoke_devices_at(parallel->devices, 0), &scope);
    return status;
}

static yoke_status named(yoke_data_parallel *parallel, yoke_status status, const char *stage,
                         int failed) {
    if (status != YOKE_OK && failed >= 0)
        yoke_error_prefix("%s, replica %d on %s", stage, failed,
                          yoke_device_name(yoke_devices_at(parallel->devices, failed)));
    return status;
}

yoke_status yoke_apply_with(yoke_data_parallel *parallel, yoke_stage stage, yoke_replica_job job,
                            void *context) {
    int failed = -1;
    yoke_status status = run(parallel, job, context, &failed);
    TRY(named(parallel, status, yoke_stage_name(stage), failed));
    /* classic: each stage ends before the next begins. */
    bool classic = parallel->options.schedule == YOKE_SCHEDULE_CLASSIC;
    return classic ? yoke_queues_synchronize(parallel) : YOKE_OK;
}

yoke_status yoke_apply(yoke_data_parallel *parallel, yoke_stage stage, yoke_replica_job job) {
    return yoke_apply_with(parallel, stage, job, parallel);
}

yoke_status yoke_parallel_apply(yoke_data_parallel *parallel, yoke_replica_job job, void *context) {
    if (parallel == NULL || job == NULL)
        return FAIL(YOKE_ERROR_ARGUMENT, "yoke_parallel_apply: %s is NULL",
                    parallel == NULL ? "the engine" : "the job");
    int failed = -1;
    yoke_status status = run(parallel, job, context, &failed);
    return named(parallel, status, "parallel_apply", failed);
}

yoke_status yoke_data_parallel_bind(yoke_data_parallel *parallel) {
    TRY(yoke_pointer_check(parallel, "parallel"));
    if (parallel->bound) return YOKE_OK;
    TRY(yoke_device_enter(yoke_devices_at(parallel->devices, 0), true, &parallel->scopes[0]));
    parallel->bound = true;
    return YOKE_OK;
}

void yoke_data_parallel_release(yoke_data_parallel *parallel) {
    if (parallel == NULL || !parallel->bound) return;
    yoke_device_leave(yoke_devices_at(parallel->devices, 0), &parallel->scopes[0]);
    parallel->bound = false;
}
