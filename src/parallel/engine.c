/* SPDX-License-Identifier: Apache-2.0 */
/* The life of an engine: options, lanes whose replicas their own workers make, the exchange. */
#include "parallel/engine.h"

#include <stdlib.h>

#include "parallel/exchange_links.h"
#include "parallel/recorded.h"

#define QUEUED_BUCKET_BYTES ((size_t)25 << 20)

/* Options. */

/* An enumeration of the options, whose values are 0 to `last`. */
static yoke_status check_choice(const char *name, int value, int last) {
    if (value >= 0 && value <= last) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT, "%s is %d: it is one of yoke_%s", name, value, name);
}

/* What an engine that only predicts leaves out. */
static yoke_status check_inference(const yoke_data_parallel_options *own) {
    const char *other = own->schedule != YOKE_SCHEDULE_OVERLAP ? "schedule"
                        : own->accumulate > 1                  ? "accumulate"
                        : own->input_gradients                 ? "input_gradients"
                        : own->group_count > 0                 ? "groups"
                        : own->shards > 0                      ? "shards"
                        : own->process_group != NULL           ? "process_group"
                        : own->ema_decay != 0                  ? "ema_decay"
                                                               : NULL;
    if (!own->inference || other == NULL) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "inference with %s: an engine that only predicts has no use for it; leave it out",
                other);
}

static yoke_status load_options(yoke_data_parallel *parallel,
                                const yoke_data_parallel_options *options,
                                const yoke_optimizer_options *optimizer) {
    yoke_data_parallel_options *own = &parallel->options;
    TRY(yoke_options_load(own, sizeof *own, options, "yoke_data_parallel_options"));
    TRY(yoke_optimizer_options_load(&parallel->optimizer_options, optimizer));
    if (own->accumulate == 0) own->accumulate = 1;
    if (own->batch < 1)
        return FAIL(YOKE_ERROR_ARGUMENT, "batch is %d: it must be at least 1", own->batch);
    if (own->accumulate < 1 || own->accumulate > own->batch)
        return FAIL(YOKE_ERROR_ARGUMENT, "accumulate is %d: 1 to the batch's %d rows",
                    own->accumulate, own->batch);
    if (own->input_gradients && own->accumulate > 1)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "input_gradients with accumulate %d: they are those of one micro-batch; leave "
                    "accumulate at 1",
                    own->accumulate);
    if (!(own->measure_seconds >= 0))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "measure_seconds is %g: it must be at least 0; 0: no limit",
                    own->measure_seconds);
    TRY(check_inference(own));
    TRY(check_choice("schedule", (int)own->schedule, YOKE_SCHEDULE_PYTHON));
    TRY(check_choice("precision", (int)own->precision, YOKE_TF32));
    return check_choice("algorithm", (int)own->algorithm, YOKE_ALGORITHM_FASTEST);
}

/* This process's rows of the largest batch; rank 0 has no fewer than any other. */
static yoke_status set_limits(yoke_data_parallel *parallel) {
    const yoke_data_parallel_options *options = &parallel->options;
    yoke_batch_limits *limits = &parallel->limits;
    bool shards = options->shards > 0;
    limits->rows = shards ? yoke_chunk_span(options->batch, options->shards, 0,
                                            options->shards / parallel->ranks.world)
                                .rows
                          : yoke_shard_rows(options->batch, parallel->ranks.world, 0);
    if (options->accumulate > limits->rows)
        return FAIL(YOKE_ERROR_ARGUMENT, "accumulate is %d: a rank has %d of the batch's %d rows",
                    options->accumulate, limits->rows, options->batch);
    limits->micro_rows = shards
                             ? yoke_shard_rows(options->batch, options->shards, 0) * parallel->count
                             : yoke_shard_rows(limits->rows, options->accumulate, 0);
    yoke_operation loss;
    TRY(yoke_model_loss_operation(parallel->model, &loss)); /* ARGUMENT: it is not finished */
    yoke_shape shape = yoke_model_input_shape(parallel->model);
    limits->row_elements = (size_t)shape.channels * (size_t)shape.height * (size_t)shape.width;
    limits->channels = yoke_model_output_shape(parallel->model).channels;
    limits->outputs = yoke_model_output_elements(parallel->model, 0);
    limits->positions = yoke_model_positions(parallel->model);
    limits->labels = yoke_model_reads_labels(parallel->model);
    return YOKE_OK;
}

static yoke_status allocate_labels(yoke_data_parallel *parallel) {
    size_t rows = (size_t)parallel->limits.rows * parallel->limits.positions;
    parallel->labels = calloc(rows, sizeof *parallel->labels);
    return parallel->labels != NULL ? YOKE_OK
                                    : FAIL_MEMORY(rows * sizeof *parallel->labels, "labels");
}

/* On devices that queue, a segment costs launches: buckets are DDP's there, and one device alone
 * needs no more than one. With shards they do not depend on the number of devices. */
static void set_buckets(yoke_data_parallel *parallel) {
    yoke_data_parallel_options *own = &parallel->options;
    if (!parallel->queued || own->bucket_bytes > 0) return;
    bool alone = parallel->count * parallel->ranks.world == 1 && own->shards == 0;
    own->bucket_bytes = alone ? SIZE_MAX : QUEUED_BUCKET_BYTES;
    if (alone && own->first_bucket_bytes == 0) own->first_bucket_bytes = SIZE_MAX;
}

/* Lanes. */

static yoke_status enter_worker(int lane, void *context) {
    yoke_data_parallel *parallel = context;
    TRY(yoke_device_start_team(parallel->lanes[lane].device));
    return yoke_device_enter(parallel->lanes[lane].device, true, &parallel->lanes[lane].scope);
}

static void leave_worker(int lane, void *context) {
    yoke_data_parallel *parallel = context;
    yoke_device_leave(parallel->lanes[lane].device, &parallel->lanes[lane].scope);
}

static yoke_status build_lanes(yoke_data_parallel *parallel) {
    const char *names[YOKE_DEVICES_LIMIT];
    parallel->lanes = calloc((size_t)parallel->count, sizeof *parallel->lanes);
    if (parallel->lanes == NULL)
        return FAIL_MEMORY((size_t)parallel->count * sizeof *parallel->lanes, "lanes");
    for (int k = 0; k < parallel->count; k++)
        parallel->lanes[k].device = yoke_devices_at(parallel->devices, k);
    for (int k = 0; k < parallel->count; k++) {
        names[k] = yoke_device_name(parallel->lanes[k].device);
        if (!yoke_device_supports(parallel->lanes[k].device, parallel->options.precision))
            return FAIL(YOKE_ERROR_DEVICE,
                        "%s does not compute in %s (see yoke devices); use float32", names[k],
                        yoke_precision_name(parallel->options.precision));
    }
    yoke_trace_options trace = {
        .lanes = names, .lane_count = parallel->count, .queued = parallel->queued};
    TRY(yoke_trace_create(&parallel->trace, &trace));
    yoke_workers_options workers = {.count = parallel->count,
                                    .spare_cores = yoke_devices_spare_cores(parallel->devices),
                                    .enter = enter_worker,
                                    .leave = leave_worker,
                                    .context = parallel};
    return yoke_workers_create(&parallel->workers, &workers);
}

/* Replicas. Each lane's own worker makes its replica, so that memory lies near its cores. */

/* The root plans layouts and measures algorithms; the others follow it. */
static yoke_status plan_replica(int index, void *context) {
    yoke_data_parallel *parallel = context;
    yoke_lane *lane = &parallel->lanes[index];
    yoke_replica_options options = {
        .device = lane->device,
        .precision = parallel->options.precision,
        .algorithm = parallel->options.algorithm,
        .rows = yoke_shard_rows(parallel->limits.micro_rows, parallel->count, 0),
        .inference = parallel->options.inference,
        .flat = parallel->flat,
        .choices = parallel->choices,
        .first_bucket_bytes = parallel->options.first_bucket_bytes,
        .bucket_bytes = parallel->options.bucket_bytes,
        .bucket_parts =
            parallel->options.shards > 0 ? parallel->options.shards : parallel->exchange->owners,
        .frozen = parallel->groups.frozen,
        .input_gradients = parallel->options.input_gradients,
        .norm_group = yoke_sync_norm_group(parallel, index),
        .before_operation = yoke_interpreter_hook(parallel, index),
        .rows_advice = yoke_rows_advice(parallel),
    };
    return yoke_replica_create(&lane->replica, parallel->model, &options);
}

/* Rank 0's choices are everybody's, so it alone keeps them. */
static yoke_status keep_choices(yoke_data_parallel *parallel) {
    char machine[1280];
    const yoke_data_parallel_options *options = &parallel->options;
    if (options->choices == NULL || parallel->ranks.rank > 0) return YOKE_OK;
    yoke_device_facts(parallel->lanes[0].device, machine, sizeof machine);
    const yoke_choices_place place = {options->choices, machine, options->cache_choices};
    return yoke_choices_keep(parallel->choices, &place);
}

static yoke_status plan_root(yoke_data_parallel *parallel) {
    if (parallel->choices == NULL) TRY(yoke_choices_create(&parallel->choices));
    yoke_choices_limit(parallel->choices, parallel->options.measure_seconds);
    TRY(keep_choices(parallel));
    TRY(yoke_ranks_await_choices(parallel));
    TRY(yoke_apply(parallel, 1, "create", plan_replica, parallel));
    parallel->flat = yoke_replica_flat(parallel->lanes[0].replica);
    TRY(yoke_groups_cut(parallel));
    TRY(yoke_apply(parallel, 1, "create", yoke_shadow_choose, parallel));
    TRY(yoke_choices_commit(parallel->choices));
    TRY(yoke_ranks_send_choices(parallel));
    return yoke_ranks_compare_layouts(parallel);
}

typedef struct open_job {
    yoke_data_parallel *parallel;
    float *parameters, *gradients; /* the root's, where the exchange has placed them */
} open_job;

static yoke_status open_lane(int index, void *context) {
    const open_job *job = context;
    yoke_lane *lane = &job->parallel->lanes[index];
    bool root = index == 0;
    if (!root) TRY(plan_replica(index, job->parallel));
    TRY(yoke_replica_allocate(lane->replica, root ? job->parameters : NULL,
                              root ? job->gradients : NULL));
    lane->memory = yoke_replica_memory_of(lane->replica);
    return yoke_lane_open(job->parallel, index);
}

static yoke_status open_lanes(yoke_data_parallel *parallel) {
    open_job job = {.parallel = parallel};
    yoke_exchange *exchange = parallel->exchange;
    size_t bytes = parallel->flat->elements * sizeof(float);
    if (exchange->kind->place != NULL)
        TRY(exchange->kind->place(exchange, bytes, &job.parameters, &job.gradients));
    exchange->placed_bytes = bytes * (size_t)((job.parameters != NULL) + (job.gradients != NULL));
    return yoke_apply(parallel, parallel->count, "create", open_lane, &job);
}

static yoke_status initialize_root(int lane, void *context) {
    const yoke_data_parallel *parallel = context;
    return yoke_replica_initialize(parallel->lanes[lane].replica, parallel->options.seed);
}

typedef struct prepare_job {
    yoke_data_parallel *parallel;
    int rows;  /* of a micro-batch; with shards, of the whole batch */
    int round; /* with shards; -1: without */
    bool training;
} prepare_job;

static yoke_status prepare_shard(int lane, void *context) {
    const prepare_job *job = context;
    const yoke_data_parallel *parallel = job->parallel;
    int rows = job->round < 0 ? yoke_shard_rows(job->rows, parallel->count, lane)
                              : yoke_shard_of_lane(parallel, job->rows, lane, job->round).rows;
    return yoke_replica_prepare(parallel->lanes[lane].replica, rows, job->training);
}

/* The root alone meets unknown choices and measures them; the others then only read. */
static yoke_status prepare_lanes(yoke_data_parallel *parallel, prepare_job *job) {
    TRY(yoke_apply(parallel, 1, "prepare", prepare_shard, job));
    return yoke_apply(parallel, parallel->count, "prepare", prepare_shard, job);
}

static yoke_status prepare_rounds(yoke_data_parallel *parallel, int rows, bool training) {
    for (int round = 0; round < parallel->shards.rounds; round++) {
        prepare_job job = {parallel, .rows = rows, .round = round, .training = training};
        int all = 0;
        for (int k = 0; k < parallel->count; k++)
            all += yoke_shard_of_lane(parallel, rows, k, round).rows;
        if (all == 0) return YOKE_OK; /* neither have later rounds any */
        TRY(prepare_lanes(parallel, &job));
        TRY(yoke_record_lanes(parallel, all, training));
        if (training) TRY(yoke_root_loss_prepare(parallel, all));
    }
    return YOKE_OK;
}

static yoke_status prepare_micros(yoke_data_parallel *parallel, int rows, bool training) {
    for (int part = 0; part < parallel->options.accumulate; part++) {
        int micro = yoke_shard_rows(rows, parallel->options.accumulate, part);
        if (micro == 0) break;
        prepare_job job = {parallel, .rows = micro, .round = -1, .training = training};
        TRY(prepare_lanes(parallel, &job));
        TRY(yoke_record_lanes(parallel, micro, training));
        if (training) TRY(yoke_root_loss_prepare(parallel, micro));
    }
    return YOKE_OK;
}

/* Every shard size the micro-batches of a batch of `rows` are cut into. */
static yoke_status prepare(yoke_data_parallel *parallel, int rows, bool training) {
    TRY(yoke_engine_check_trains(parallel, training));
    if (rows < 1 || rows > parallel->options.batch)
        return FAIL(YOKE_ERROR_ARGUMENT, "prepare: %d rows: this engine was made for 1 to %d", rows,
                    parallel->options.batch);
    if (parallel->options.shards > 0)
        TRY(prepare_rounds(parallel, rows, training));
    else
        TRY(prepare_micros(parallel,
                           yoke_shard_rows(rows, parallel->ranks.world, parallel->ranks.rank),
                           training));
    return yoke_choices_commit(parallel->choices);
}

yoke_status yoke_data_parallel_prepare(yoke_data_parallel *parallel, int rows, bool training) {
    TRY(yoke_enter_settled(parallel, "yoke_data_parallel_prepare"));
    return yoke_leave(parallel, prepare(parallel, rows, training));
}

/* Create and destroy. */

/* What computes. */
static yoke_status build_replicas(yoke_data_parallel *parallel) {
    TRY(yoke_exchange_create(parallel));
    TRY(yoke_sync_norm_create(parallel));
    TRY(plan_root(parallel));
    TRY(open_lanes(parallel));
    parallel->timeline.clocks = parallel->queued ? parallel->count : 0;
    TRY(yoke_exchange_open(parallel->exchange));
    TRY(yoke_guard_create(parallel));
    TRY(yoke_average_create(parallel));
    TRY(yoke_shards_create(parallel));
    TRY(yoke_root_loss_create(parallel));
    TRY(yoke_apply(parallel, 1, "create", initialize_root, parallel));
    parallel->weights_version = parallel->frozen_version = parallel->buffers_version = 1;
    TRY(yoke_data_parallel_synchronize(parallel));
    bool trains = !parallel->options.inference;
    TRY(yoke_data_parallel_prepare(parallel, parallel->options.batch, trains));
    return yoke_replicate(parallel);
}

static yoke_status build(yoke_data_parallel *parallel, const yoke_data_parallel_options *options,
                         const yoke_optimizer_options *optimizer) {
    yoke_entry_begin(parallel);
    parallel->count = yoke_devices_count(parallel->devices);
    parallel->queued = !yoke_devices_share_memory(parallel->devices);
    TRY(load_options(parallel, options, optimizer));
    TRY(yoke_groups_create(parallel));
    TRY(yoke_reach_create(parallel));
    TRY(yoke_ranks_join(parallel));
    TRY(yoke_shards_check(parallel));
    TRY(yoke_straggler_check(parallel));
    TRY(yoke_engine_links_create(parallel));
    TRY(yoke_interpreter_create(parallel));
    TRY(set_limits(parallel));
    set_buckets(parallel);
    if (parallel->queued) TRY(allocate_labels(parallel));
    TRY(build_lanes(parallel));
    TRY(yoke_enter(parallel, "yoke_data_parallel_create"));
    TRY(yoke_leave(parallel, build_replicas(parallel)));
    yoke_trace_reset(parallel->trace);
    return YOKE_OK;
}

yoke_status yoke_engine_create(yoke_data_parallel **parallel, const yoke_model *model,
                               yoke_devices *devices, const yoke_optimizer_options *optimizer,
                               const yoke_data_parallel_options *options, yoke_choices *choices) {
    *parallel = NULL;
    yoke_data_parallel *own = calloc(1, sizeof *own);
    if (own == NULL) {
        yoke_choices_destroy(choices);
        return FAIL_MEMORY(sizeof *own, "the engine");
    }
    own->model = model;
    own->devices = devices;
    own->choices = choices;
    yoke_status status = build(own, options, optimizer);
    if (status != YOKE_OK) {
        yoke_process_group *ranks = own->options.process_group;
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

void yoke_data_parallel_destroy(yoke_data_parallel *parallel) {
    if (parallel == NULL) return;
    yoke_data_parallel_release(parallel);
    if (parallel->lanes != NULL) {
        (void)yoke_lanes_synchronize(parallel);
        yoke_unsynced_close(parallel);
        yoke_root_loss_destroy(parallel);
        yoke_shards_destroy(parallel);
        yoke_guard_destroy(parallel);
        yoke_average_destroy(parallel);
        yoke_exchange_destroy(parallel->exchange);
        for (int k = parallel->count - 1; k >= 0; k--)
            yoke_lane_close(parallel, k);
    }
    yoke_sync_norm_destroy(parallel->sync_norm);
    yoke_workers_destroy(parallel->workers);
    if (parallel->workers != NULL) yoke_device_end_team(parallel->lanes[0].device);
    yoke_trace_destroy(parallel->trace);
    yoke_interpreter_destroy(parallel->interpreter);
    yoke_links_destroy(parallel->links);
    yoke_choices_destroy(parallel->choices);
    yoke_reach_destroy(&parallel->reach);
    yoke_groups_destroy(&parallel->groups);
    free(parallel->lanes);
    free(parallel->labels);
    yoke_entry_end(parallel);
    free(parallel);
}

yoke_status yoke_engine_check_trains(const yoke_data_parallel *parallel, bool training) {
    if (!training || !parallel->options.inference) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "this engine only predicts: create one without options.inference to train");
}

void yoke_count_forward(yoke_data_parallel *parallel) {
    parallel->buffers_version++;
    parallel->ranks.buffers_are_equal = parallel->ranks.world == 1;
    bool counted = parallel->flight.by_shards && parallel->flight.micro > 0;
    bool rows_elsewhere = parallel->sync_norm != NULL && parallel->ranks.world > 1;
    if (counted || (parallel->flight.batch.rows == 0 && !rows_elsewhere)) return;
    parallel->batches_tracked++;
}

void yoke_count_update(yoke_data_parallel *parallel) {
    parallel->weights_version++;
    for (int k = 0; k < parallel->count; k++)
        parallel->lanes[k].weights_version = parallel->weights_version;
    parallel->steps++;
}

bool yoke_steps_by_phases(const yoke_data_parallel *parallel) {
    return parallel->options.schedule == YOKE_SCHEDULE_CLASSIC ||
           parallel->options.schedule == YOKE_SCHEDULE_PYTHON;
}
