/* SPDX-License-Identifier: Apache-2.0 */
/* What yoke/bench.h promises. */
#include "bench/floor/floor.h"

#include <stdio.h>

#include "bench/floor/kernel_time.h"
#include "optimizer/optimizer.h"
#include "parallel/engine/engine.h"
#include "parallel/engine/entry.h"
#include "parallel/engine/shadow.h"
#include "parallel/engine/spare_update.h"
#include "parallel/stages/stages.h"

typedef struct kernel_job {
    yoke_data_parallel *parallel;
    bench_timing timing;
    int repeat;
    double milliseconds;
    bool lists; /* the calls, instead of their sum */
    bench_kernel_call *calls;
    int capacity, count;
    yoke_spare_update update;
} kernel_job;

static yoke_status queue_update(void *context) {
    const kernel_job *job = context;
    return yoke_spare_update_run(&job->update, job->parallel->step.exchange->writes_shadow);
}

/* The update reads and writes weights and state, reads gradients, and may write a shadow of half
 * as many bytes. */
static void list_update(kernel_job *job, double milliseconds) {
    const yoke_data_parallel *parallel = job->parallel;
    const yoke_optimizer_options *options = &parallel->step.optimizer_options;
    int states = yoke_optimizer_state_count(options);
    if (job->count++ >= job->capacity) return;
    bench_kernel_call *call = &job->calls[job->count - 1];
    double bytes = (double)(parallel->step.flat->trainable_elements * sizeof(float));
    *call = (bench_kernel_call){.layer = "update",
                                .operation = "update",
                                .direction = "",
                                .algorithm = yoke_shadow_algorithm(&parallel->step),
                                .milliseconds = milliseconds,
                                .bytes = (3 + 2 * states) * bytes};
    if (parallel->step.exchange->writes_shadow) call->bytes += bytes / 2;
    snprintf(call->shape, sizeof call->shape, "%.0f bytes", bytes);
}

static yoke_status time_kernels(int lane, void *context) {
    kernel_job *job = context;
    yoke_data_parallel *parallel = job->parallel;
    yoke_replica *replica = parallel->step.lanes[lane].replica;
    int rows = yoke_shard_rows(parallel->step.limits.micro_rows, parallel->step.count, lane);
    double plans = 0, update = 0;
    if (job->lists)
        TRY(bench_replica_calls(replica, rows, job->repeat, job->calls, job->capacity,
                                &job->count));
    else
        TRY(bench_replica_time(replica, rows, job->timing, job->repeat, &plans));
    if (job->repeat == 0) return list_update(job, 0), YOKE_OK;
    TRY(yoke_spare_update_open(&job->update, &parallel->step,
                               parallel->step.flat->trainable_elements));
    TRY(bench_time_calls(parallel->step.lanes[lane].device, queue_update, job, job->repeat,
                         &update));
    job->milliseconds = plans + update;
    if (job->lists) list_update(job, update);
    return YOKE_OK;
}

static yoke_status run_settled(kernel_job *job) {
    yoke_data_parallel *parallel = job->parallel;
    if (job->repeat < (job->lists ? 0 : 1))
        return FAIL(YOKE_ERROR_ARGUMENT, "repeat is %d: at least 1", job->repeat);
    TRY(yoke_engine_check_trains(parallel, true));
    parallel->step.flight.progress = YOKE_STAGE_LOAD; /* the kernels overwrite the batch's memory */
    parallel->step.flight.losses_known = parallel->step.gradient.on_root =
        parallel->step.gradient.of_inputs = false;
    TRY(yoke_guard_begin(&parallel->step));
    yoke_status status = yoke_apply(&parallel->step, 1, "kernel time", time_kernels, job);
    yoke_spare_update_close(&job->update);
    yoke_status restored = yoke_guard_restore(&parallel->step);
    return status != YOKE_OK ? status : restored;
}

static yoke_status run_job(kernel_job *job) {
    TRY(yoke_enter_settled(job->parallel, "yoke bench"));
    return yoke_leave(job->parallel, run_settled(job));
}

yoke_status bench_kernel_time(yoke_data_parallel *parallel, bench_timing timing, int repeat,
                              double *milliseconds) {
    kernel_job job = {.parallel = parallel, .timing = timing, .repeat = repeat};
    yoke_status status = run_job(&job);
    *milliseconds = job.milliseconds;
    return status;
}

yoke_status bench_kernel_calls(yoke_data_parallel *parallel, int repeat, bench_kernel_call *calls,
                               int capacity, int *count) {
    kernel_job job = {.parallel = parallel,
                      .repeat = repeat,
                      .lists = true,
                      .calls = calls,
                      .capacity = capacity};
    yoke_status status = run_job(&job);
    *count = job.count;
    return status;
}

yoke_status bench_kernel_list(yoke_data_parallel *parallel, bench_kernel_call *calls, int capacity,
                              int *count) {
    return bench_kernel_calls(parallel, 0, calls, capacity, count);
}

int bench_bucket_bytes(const yoke_data_parallel *parallel, size_t *bytes, int capacity) {
    const yoke_flat *flat = parallel->step.flat;
    for (int b = 0; b < flat->bucket_count && b < capacity; b++)
        bytes[b] = flat->buckets[b].elements * sizeof(float);
    return flat->bucket_count;
}
