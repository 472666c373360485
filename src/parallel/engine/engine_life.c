/* SPDX-License-Identifier: Apache-2.0 */
/* The life of an engine. */
#include "parallel/engine/engine.h"

#include <stdlib.h>
#include <string.h>

#include "parallel/engine/agreement.h"
#include "parallel/engine/average.h"
#include "parallel/engine/engine_parts.h"
#include "parallel/engine/entry.h"
#include "parallel/observers/observers.h"
#include "parallel/stages/stages.h"

#define LATE_NS 1000000000u /* the calling thread itself finds a worker that hangs, before that */

/* Measuring takes its time: it has no deadline. */
static yoke_status prepare(yoke_data_parallel *parallel, int rows, bool training) {
    yoke_step *step = &parallel->step;
    double deadline = step->options.deadline;
    TRY(yoke_engine_check_trains(parallel, training));
    step->options.deadline = 0;
    yoke_workers_limit(step->workers, 0);
    yoke_status status = yoke_engine_prepare(step, rows, training);
    step->options.deadline = deadline;
    yoke_workers_limit(step->workers, (uint64_t)(1e9 * deadline));
    return status;
}

yoke_status yoke_data_parallel_prepare(yoke_data_parallel *parallel, int rows, bool training) {
    TRY(yoke_enter_settled(parallel, "yoke_data_parallel_prepare"));
    return yoke_leave(parallel, prepare(parallel, rows, training));
}

/* Create and destroy. */

static yoke_status initialize_root(int lane, void *context) {
    const yoke_step *step = context;
    return yoke_replica_initialize(step->lanes[lane].replica, step->options.seed);
}

/* What computes. */
static yoke_status build_replicas(yoke_data_parallel *parallel) {
    yoke_step *step = &parallel->step;
    TRY(yoke_exchange_create(step, yoke_exchange_kind_for(step)));
    TRY(yoke_sync_norm_create(step));
    TRY(yoke_engine_plan_root(step));
    TRY(yoke_engine_open_lanes(step));
    TRY(yoke_check_cancelled());
    TRY(yoke_exchange_open(step->exchange));
    TRY(yoke_guard_create(step));
    TRY(yoke_average_create(parallel));
    TRY(yoke_shards_create(step));
    TRY(yoke_root_loss_create(step));
    TRY(yoke_apply(step, 1, "create", initialize_root, step));
    step->versions = (yoke_versions){1, 1, 1};
    TRY(yoke_data_parallel_broadcast(parallel));
    TRY(yoke_data_parallel_prepare(parallel, step->options.batch, !step->options.inference));
    return yoke_data_parallel_replicate(parallel);
}

/* Checkpoints state the patterns: they outlive the caller's text. */
static yoke_status keep_statistics(yoke_step *step) {
    const char *given = step->options.freeze_statistics;
    if (given == NULL) return YOKE_OK;
    step->options.freeze_statistics = NULL; /* may be gone after create */
    step->fixed_patterns = yoke_strdup(given);
    if (step->fixed_patterns == NULL) return FAIL_MEMORY(strlen(given) + 1, "patterns");
    return yoke_statistics_mark(step->model, given, &step->fixed_statistics);
}

static yoke_status build(yoke_data_parallel *parallel, const yoke_data_parallel_options *options,
                         const yoke_optimizer_options *optimizer) {
    yoke_step *step = &parallel->step;
    yoke_entry_begin(parallel);
    step->count = yoke_devices_count(step->devices);
    step->queued = !yoke_devices_share_memory(step->devices);
    TRY(yoke_engine_load_options(step, options, optimizer));
    TRY(yoke_groups_create(step));
    TRY(keep_statistics(step));
    TRY(yoke_reach_create(step));
    TRY(yoke_ranks_join(step));
    TRY(yoke_shards_check(step));
    TRY(yoke_deal_create(step));
    yoke_shards_deal(step);
    TRY(yoke_observers_create(step));
    TRY(yoke_engine_set_limits(step));
    TRY(yoke_engine_build_lanes(step));
    yoke_observers_attach(step);
    TRY(yoke_enter(parallel, "yoke_data_parallel_create"));
    TRY(yoke_leave(parallel, build_replicas(parallel)));
    yoke_trace_reset(step->watch.trace);
    return YOKE_OK;
}

yoke_status yoke_engine_create(yoke_data_parallel **parallel, const yoke_model *model,
                               yoke_devices *devices, const yoke_optimizer_options *optimizer,
                               const yoke_data_parallel_options *options,
                               yoke_algorithms *algorithms) {
    *parallel = NULL;
    yoke_data_parallel *own = yoke_calloc(1, sizeof *own);
    if (own == NULL) {
        yoke_algorithms_destroy(algorithms);
        return FAIL_MEMORY(sizeof *own, "the engine");
    }
    own->step.model = model;
    own->step.devices = devices;
    own->step.algorithms = algorithms;
    yoke_status status = build(own, options, optimizer);
    if (status != YOKE_OK) {
        yoke_process_group *ranks = own->step.options.process_group;
        yoke_error error = yoke_error_take(yoke_process_group_abort(ranks, status));
        yoke_data_parallel_destroy(own);
        return yoke_error_restore(&error);
    }
    *parallel = own;
    return YOKE_OK;
}

yoke_status yoke_data_parallel_create(yoke_data_parallel **parallel, const yoke_model *model,
                                      yoke_devices *devices,
                                      const yoke_optimizer_options *optimizer,
                                      const yoke_data_parallel_options *options) {
    if (parallel == NULL) return FAIL(YOKE_ERROR_ARGUMENT, "parallel is NULL");
    *parallel = NULL;
    if (model == NULL || devices == NULL)
        return FAIL(YOKE_ERROR_ARGUMENT, "%s is NULL", model == NULL ? "model" : "devices");
    return yoke_engine_create(parallel, model, devices, optimizer, options, NULL);
}

/* A thread may still be in the engine: it lives as long as the process. */
static void leave_behind(yoke_data_parallel *parallel) {
    if (atomic_load(&parallel->entry.binder) == pthread_self()) yoke_data_parallel_unbind(parallel);
    yoke_devices_stay_open(parallel->step.devices, NULL);
}

bool yoke_data_parallel_leave_thread(yoke_data_parallel *parallel) {
    yoke_step *step = &parallel->step;
    uint64_t limit = (uint64_t)(1e9 * step->options.deadline) + LATE_NS;
    uint64_t since = atomic_load(&step->busy_ns);
    if (since == 0 || yoke_now_ns() - since < limit) return false;
    if (!atomic_compare_exchange_strong(&step->busy_ns, &since, YOKE_LEFT_BEHIND)) return false;
    step->failed_lane = atomic_load(&step->awaited);
    yoke_workers_lose_caller(step->workers);
    return true;
}

void yoke_data_parallel_destroy(yoke_data_parallel *parallel) {
    if (parallel == NULL) return;
    if (yoke_workers_lost(parallel->step.workers)) {
        leave_behind(parallel);
        return;
    }
    yoke_step *step = &parallel->step;
    yoke_data_parallel_unbind(parallel);
    if (step->lanes != NULL) {
        (void)yoke_lanes_synchronize(step);
        yoke_unsynced_close(step);
        yoke_root_loss_destroy(step);
        yoke_shards_destroy(step);
        yoke_guard_destroy(step);
        yoke_average_destroy(parallel);
        yoke_exchange_destroy(step->exchange);
        yoke_engine_close_lanes(step);
    }
    yoke_sync_norm_destroy(step->sync_norm);
    yoke_models_close(step);
    yoke_workers_destroy(step->workers);
    if (step->workers != NULL) yoke_device_end_team(step->lanes[0].device);
    yoke_trace_destroy(step->watch.trace);
    yoke_observers_destroy(step);
    yoke_algorithms_destroy(step->algorithms);
    yoke_reach_destroy(&step->reach);
    yoke_groups_destroy(&step->groups);
    yoke_free(step->fixed_patterns);
    yoke_free(step->fixed_statistics);
    yoke_free(step->lanes);
    yoke_free(step->labels);
    yoke_entry_end(parallel);
    yoke_free(parallel);
}
