/* SPDX-License-Identifier: Apache-2.0 */
/* What yoke/bench.h promises. */
#include "yoke/bench.h"

#include <stdio.h>

#include "parallel/engine.h"

typedef struct kernel_job {
    yoke_data_parallel *parallel;
    yoke_kernel_timing timing;
    int repeat;
    double milliseconds;
    bool lists; /* the calls, in place of their sum */
    yoke_kernel_call *calls;
    int capacity, count;
    yoke_spare_update update;
} kernel_job;

static yoke_status queue_update(void *context) {
    const kernel_job *job = context;
    return yoke_spare_update_run(&job->update, job->parallel->exchange->writes_shadow);
}

static yoke_status time_update(kernel_job *job, yoke_device *root, double *milliseconds) {
    TRY(yoke_spare_update_open(&job->update, job->parallel,
                               job->parallel->flat->trainable_elements));
    return yoke_time_calls(root, queue_update, job, job->repeat, milliseconds);
}

/* It reads and writes weights and state, reads gradients, and may write half as many bytes of
 * shadow. */
static void list_update(kernel_job *job, double milliseconds) {
    const yoke_data_parallel *parallel = job->parallel;
    const yoke_optimizer_options *options = &parallel->optimizer_options;
    int states = options->kind == YOKE_ADAMW ? 2 : options->momentum > 0;
    if (job->count++ >= job->capacity) return;
    yoke_kernel_call *call = &job->calls[job->count - 1];
    double bytes = (double)(parallel->flat->trainable_elements * sizeof(float));
    *call = (yoke_kernel_call){.layer = "update",
                               .operation = "update",
                               .direction = "",
                               .way = yoke_shadow_way(parallel),
                               .milliseconds = milliseconds,
                               .bytes = (3 + 2 * states) * bytes};
    if (parallel->exchange->writes_shadow) call->bytes += bytes / 2;
    snprintf(call->shape, sizeof call->shape, "%.0f bytes", bytes);
}

static yoke_status time_kernels(int lane, void *context) {
    kernel_job *job = context;
    yoke_data_parallel *parallel = job->parallel;
    yoke_replica *replica = parallel->lanes[lane].replica;
    int rows = yoke_shard_rows(parallel->limits.micro_rows, parallel->count, lane);
    double plans = 0, update = 0;
    if (job->lists)
        TRY(yoke_replica_kernel_calls(replica, rows, job->repeat, job->calls, job->capacity,
                                      &job->count));
    else
        TRY(yoke_replica_kernel_time(replica, rows, job->timing, job->repeat, &plans));
    TRY(time_update(job, parallel->lanes[lane].device, &update));
    job->milliseconds = plans + update;
    if (job->lists) list_update(job, update);
    return YOKE_OK;
}

static yoke_status run_job(kernel_job *job) {
    yoke_data_parallel *parallel = job->parallel;
    if (job->repeat < 1) return FAIL(YOKE_ERROR_ARGUMENT, "repeat is %d: at least 1", job->repeat);
    if (job->timing != YOKE_KERNELS_ALONE && job->timing != YOKE_KERNELS_IN_ORDER)
        return FAIL(YOKE_ERROR_ARGUMENT, "timing is %d: it is one of yoke_kernel_timing",
                    (int)job->timing);
    TRY(yoke_engine_check_trains(parallel, true));
    parallel->flight.progress = YOKE_STAGE_LOAD; /* the kernels overwrite the batch's memory */
    parallel->flight.losses_known = parallel->gradient_on_root = parallel->input_gradients = false;
    TRY(yoke_guard_begin(parallel));
    yoke_status status = yoke_apply(parallel, 1, "kernel time", time_kernels, job);
    yoke_spare_update_close(&job->update);
    yoke_status restored = yoke_guard_restore(parallel);
    return status != YOKE_OK ? status : restored;
}

static yoke_status kernel_time(yoke_data_parallel *parallel, yoke_kernel_timing timing, int repeat,
                               double *milliseconds) {
    TRY(yoke_pointer_check(milliseconds, "milliseconds"));
    kernel_job job = {.parallel = parallel, .timing = timing, .repeat = repeat};
    TRY(run_job(&job));
    *milliseconds = job.milliseconds;
    return YOKE_OK;
}

yoke_status yoke_data_parallel_kernel_time(yoke_data_parallel *parallel, yoke_kernel_timing timing,
                                           int repeat, double *milliseconds) {
    TRY(yoke_enter_settled(parallel, "yoke_data_parallel_kernel_time"));
    return yoke_leave(parallel, kernel_time(parallel, timing, repeat, milliseconds));
}

static yoke_status kernel_calls(kernel_job *job, int *count) {
    TRY(yoke_pointer_check(count, "count"));
    if (job->capacity > 0) TRY(yoke_pointer_check(job->calls, "calls"));
    TRY(run_job(job));
    *count = job->count;
    return YOKE_OK;
}

yoke_status yoke_data_parallel_kernel_calls(yoke_data_parallel *parallel, int repeat,
                                            yoke_kernel_call *calls, int capacity, int *count) {
    TRY(yoke_enter_settled(parallel, "yoke_data_parallel_kernel_calls"));
    kernel_job job = {.parallel = parallel,
                      .timing = YOKE_KERNELS_ALONE,
                      .repeat = repeat,
                      .lists = true,
                      .calls = calls,
                      .capacity = capacity};
    return yoke_leave(parallel, kernel_calls(&job, count));
}

int yoke_data_parallel_bucket_bytes(const yoke_data_parallel *parallel, size_t *bytes,
                                    int capacity) {
    if (parallel == NULL || (bytes == NULL && capacity > 0)) return 0;
    const yoke_flat *flat = parallel->flat;
    for (int b = 0; b < flat->bucket_count && b < capacity; b++)
        bytes[b] = flat->buckets[b].elements * sizeof(float);
    return flat->bucket_count;
}
