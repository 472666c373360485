/* SPDX-License-Identifier: Apache-2.0 */
/* The lanes of an engine: each lane's own worker makes its replica, so that memory lies near its
 * cores; and the plans for every shard size. */
#include <stdlib.h>

#include "parallel/engine/agreement.h"
#include "parallel/engine/engine_parts.h"
#include "parallel/engine/shadow.h"
#include "parallel/observers/observers.h"
#include "parallel/stages/stages.h"

static yoke_status enter_worker(int lane, void *context) {
    yoke_step *step = context;
    TRY(yoke_device_start_team(step->lanes[lane].device));
    return yoke_device_enter(step->lanes[lane].device, true, &step->lanes[lane].scope);
}

static void leave_worker(int lane, void *context) {
    yoke_step *step = context;
    yoke_device_leave(step->lanes[lane].device, &step->lanes[lane].scope);
}

yoke_status yoke_engine_build_lanes(yoke_step *step) {
    const char *names[YOKE_DEVICES_LIMIT];
    step->lanes = yoke_calloc((size_t)step->count, sizeof *step->lanes);
    if (step->lanes == NULL) return FAIL_MEMORY((size_t)step->count * sizeof *step->lanes, "lanes");
    for (int k = 0; k < step->count; k++)
        step->lanes[k].device = yoke_devices_at(step->devices, k);
    for (int k = 0; k < step->count; k++) {
        names[k] = yoke_device_name(step->lanes[k].device);
        if (!yoke_device_supports(step->lanes[k].device, step->options.precision))
            return FAIL(YOKE_ERROR_DEVICE,
                        "%s does not compute in %s (see yoke devices); use float32", names[k],
                        yoke_precision_name(step->options.precision));
    }
    yoke_trace_options trace = {.lanes = names, .lane_count = step->count, .queued = step->queued};
    TRY(yoke_trace_create(&step->watch.trace, &trace));
    yoke_workers_options workers = {.count = step->count,
                                    .spare_cores = yoke_devices_spare_cores(step->devices),
                                    .enter = enter_worker,
                                    .leave = leave_worker,
                                    .context = step};
    return yoke_workers_create(&step->workers, &workers);
}

static bool moved_by_nccl(const yoke_step *step) {
    if (!step->queued) return false;
    return step->ranks.process_group != NULL ||
           (step->count > 1 && step->options.collectives != YOKE_COLLECTIVES_COPY);
}

/* The root plans layouts and measures algorithms; the others follow it. */
static yoke_status plan_replica(int index, void *context) {
    yoke_step *step = context;
    yoke_lane *lane = &step->lanes[index];
    yoke_replica_options options = {
        .device = lane->device,
        .precision = step->options.precision,
        .algorithm = step->options.algorithm,
        .rows = yoke_deal_most_rows(step),
        .inference = step->options.inference,
        .flat = step->flat,
        .algorithms = step->algorithms,
        .first_bucket_bytes = step->options.first_bucket_bytes,
        .bucket_bytes = step->options.bucket_bytes,
        .bucket_parts = step->options.shards > 0 ? step->options.shards : step->exchange->owners,
        .frozen = step->groups.frozen,
        .untrained = yoke_models_untrained(step),
        .fixed_statistics = step->fixed_statistics,
        .recomputes = step->options.activation_checkpointing,
        .input_gradients = step->options.input_gradients,
        .norm_group = yoke_sync_norm_group(step, index),
        .exchanges = moved_by_nccl(step),
        .before_operation = yoke_interpreter_hook(step, index),
        .rows_advice = yoke_rows_advice(step),
    };
    return yoke_replica_create(&lane->replica, step->model, &options);
}

/* Rank 0's algorithms are everybody's, so it alone keeps them. */
static yoke_status keep_algorithms(yoke_step *step) {
    char machine[1280];
    const yoke_data_parallel_options *options = &step->options;
    if (options->algorithm_cache == NULL || step->ranks.rank > 0) return YOKE_OK;
    yoke_device_facts(step->lanes[0].device, machine, sizeof machine);
    const yoke_algorithm_cache_place place = {options->algorithm_cache, machine,
                                              options->replace_broken_cache};
    return yoke_algorithms_keep(step->algorithms, &place);
}

yoke_status yoke_engine_plan_root(yoke_step *step) {
    if (step->algorithms == NULL) TRY(yoke_algorithms_create(&step->algorithms));
    yoke_algorithms_limit(step->algorithms, step->options.measure_seconds);
    TRY(keep_algorithms(step));
    TRY(yoke_ranks_await_algorithms(step));
    TRY(yoke_apply(step, 1, "create", plan_replica, step));
    step->flat = yoke_replica_flat(step->lanes[0].replica);
    TRY(yoke_groups_cut(step));
    TRY(yoke_apply(step, 1, "create", yoke_shadow_choose, step));
    TRY(yoke_algorithms_commit(step->algorithms));
    TRY(yoke_ranks_send_algorithms(step));
    return yoke_ranks_compare_layouts(step);
}

typedef struct open_job {
    yoke_step *step;
    float *parameters, *gradients; /* the root's, where the exchange has placed them */
} open_job;

static yoke_status open_lane(int index, void *context) {
    const open_job *job = context;
    yoke_lane *lane = &job->step->lanes[index];
    bool root = index == 0;
    if (!root) TRY(plan_replica(index, job->step));
    if (!root && job->step->exchange->publishes_shadow)
        yoke_replica_leave_shadow(lane->replica, true);
    TRY(yoke_check_cancelled());
    TRY(yoke_replica_allocate(lane->replica, root ? job->parameters : NULL,
                              root ? job->gradients : NULL));
    lane->memory = yoke_replica_memory_of(lane->replica);
    TRY(yoke_lane_open(job->step, index));
    if (!job->step->queued) return YOKE_OK;
    const yoke_watch *watch = &job->step->watch;
    if (job->step->options.time_devices || watch->speeds != NULL)
        TRY(yoke_clock_create(job->step, index));
    /* A recording runs through its bars at once: none of them could fail alone, and no host could
     * gather the statistics of batch norms between them. */
    bool records = watch->faults == NULL && job->step->sync_norm == NULL;
    return records ? yoke_recordings_create(lane) : YOKE_OK;
}

yoke_status yoke_engine_open_lanes(yoke_step *step) {
    open_job job = {.step = step};
    yoke_exchange *exchange = step->exchange;
    size_t bytes = step->flat->elements * sizeof(float);
    if (exchange->kind->place != NULL)
        TRY(exchange->kind->place(exchange, bytes, &job.parameters, &job.gradients));
    exchange->placed_bytes = bytes * (size_t)((job.parameters != NULL) + (job.gradients != NULL));
    if (step->shards.placed != NULL) exchange->placed_bytes += yoke_exchange_sums_bytes(step);
    return yoke_apply(step, step->count, "create", open_lane, &job);
}

typedef struct prepare_job {
    yoke_step *step;
    int rows;  /* of a micro-batch; with shards, of the whole batch */
    int round; /* with shards; -1: without */
    bool training;
} prepare_job;

static yoke_status prepare_shard(int lane, void *context) {
    const prepare_job *job = context;
    const yoke_step *step = job->step;
    int rows = job->round < 0 ? yoke_deal_rows(step, job->rows, lane).rows
                              : yoke_shard_of_lane(step, job->rows, lane, job->round).rows;
    return yoke_replica_prepare(step->lanes[lane].replica, rows, job->training);
}

yoke_status yoke_engine_prepare(yoke_step *step, int rows, bool training) {
    if (rows < 1 || rows > step->options.batch)
        return FAIL(YOKE_ERROR_ARGUMENT, "prepare: %d rows: this engine was made for 1 to %d", rows,
                    step->options.batch);
    bool shards = step->options.shards > 0;
    int own = yoke_shard_rows(rows, step->ranks.world, step->ranks.rank);
    int parts = shards ? step->shards.rounds : step->options.accumulate;
    for (int part = 0; part < parts; part++) {
        int micro = shards ? 0 : yoke_shard_rows(own, parts, part);
        for (int k = 0; shards && k < step->count; k++)
            micro += yoke_shard_of_lane(step, rows, k, part).rows;
        if (micro == 0) break; /* neither have later parts any */
        prepare_job job = {step, shards ? rows : micro, shards ? part : -1, training};
        /* The root alone meets unknown algorithms and measures them; the others then only read. */
        TRY(yoke_apply(step, 1, "prepare", prepare_shard, &job));
        TRY(yoke_apply(step, step->count, "prepare", prepare_shard, &job));
        TRY(yoke_record_usual(step, micro, training));
        if (training) TRY(yoke_root_loss_prepare(step, micro));
    }
    return yoke_algorithms_commit(step->algorithms);
}

void yoke_engine_close_lanes(yoke_step *step) {
    for (int k = step->count - 1; k >= 0; k--) {
        yoke_recordings_destroy(&step->lanes[k]);
        yoke_clock_destroy(step, k);
        yoke_lane_close(step, k);
    }
}
