/* The life of an engine: workers, replicas made by their own workers, optimizers, trace. */
#include "parallel/engine.h"

#include <stdlib.h>

#define QUEUED_BUCKET_BYTES ((size_t)25 << 20)

/* Workers. */

static yoke_status enter_worker(int worker, void *context) {
    yoke_data_parallel *parallel = context;
    return yoke_device_enter(yoke_devices_at(parallel->devices, worker), true,
                             &parallel->scopes[worker]);
}

static void leave_worker(int worker, void *context) {
    yoke_data_parallel *parallel = context;
    yoke_device_leave(yoke_devices_at(parallel->devices, worker), &parallel->scopes[worker]);
}

static yoke_status build_workers(yoke_data_parallel *parallel) {
    yoke_workers_options options = {.count = parallel->count,
                                    .spare_cores = yoke_devices_spare_cores(parallel->devices),
                                    .enter = enter_worker,
                                    .leave = leave_worker,
                                    .context = parallel};
    return yoke_workers_create(&parallel->workers, &options);
}

static yoke_status build_trace(yoke_data_parallel *parallel) {
    const char **lanes = calloc((size_t)parallel->count, sizeof *lanes);
    if (lanes == NULL) return FAIL_MEMORY((size_t)parallel->count * sizeof *lanes, "trace lanes");
    for (int k = 0; k < parallel->count; k++)
        lanes[k] = yoke_device_name(yoke_devices_at(parallel->devices, k));
    yoke_trace_options options = {.lanes = lanes, .lane_count = parallel->count};
    yoke_status status = yoke_trace_create(&parallel->trace, &options);
    free(lanes);
    return status;
}

/* Replicas. */

static bool is_ddp_on_host(const yoke_data_parallel *parallel) {
    return parallel->ranks != NULL && !parallel->queued;
}

/* The root decides layouts and measures; the others follow it. */
static yoke_status create_replica(yoke_data_parallel *parallel, int replica) {
    yoke_replica_options options = {
        .device = yoke_devices_at(parallel->devices, replica),
        .precision = parallel->options.precision,
        .algorithm = parallel->options.algorithm,
        .rows = yoke_shard_rows(parallel->micro_rows, parallel->count, 0),
        .flat = parallel->flat,
        .place = is_ddp_on_host(parallel) ? yoke_ranks_place : NULL,
        .context = parallel,
        .choices = parallel->choices,
        .first_bucket_bytes = parallel->options.first_bucket_bytes,
        .bucket_bytes = parallel->options.bucket_bytes,
        .bucket_parts = parallel->options.schedule == YOKE_SCHEDULE_SHARDED ? parallel->parties : 1,
        .input_gradients = parallel->options.input_gradients,
    };
    return yoke_replica_create(&parallel->replicas[replica], parallel->model, &options);
}

static yoke_status create_root(int worker, void *context) {
    return worker == 0 ? create_replica(context, worker) : YOKE_OK;
}

static yoke_status create_other(int worker, void *context) {
    return worker > 0 ? create_replica(context, worker) : YOKE_OK;
}

typedef struct prepare_job {
    yoke_data_parallel *parallel;
    int rows; /* of a micro-batch */
    bool training;
} prepare_job;

static yoke_status prepare_shard(int worker, void *context) {
    const prepare_job *job = context;
    int rows = yoke_shard_rows(job->rows, job->parallel->count, worker);
    return yoke_replica_prepare(job->parallel->replicas[worker], rows, job->training);
}

/* Every shard size the micro-batches of a batch of `rows` are cut into. */
yoke_status yoke_data_parallel_prepare(yoke_data_parallel *parallel, int rows, bool training) {
    TRY(yoke_pointer_check(parallel, "parallel"));
    if (rows < 1 || rows > parallel->options.batch)
        return FAIL(YOKE_ERROR_ARGUMENT, "prepare: %d rows: this engine was made for 1 to %d", rows,
                    parallel->options.batch);
    rows = yoke_shard_rows(rows, parallel->world, parallel->rank);
    for (int part = 0; part < parallel->options.accumulate; part++) {
        int micro = yoke_shard_rows(rows, parallel->options.accumulate, part);
        if (micro == 0) break;
        prepare_job job = {.parallel = parallel, .rows = micro, .training = training};
        TRY(yoke_parallel_apply(parallel, prepare_shard, &job));
        TRY(yoke_record_shards(parallel, micro, training));
        if (training) TRY(yoke_root_loss_prepare(parallel, micro));
    }
    return YOKE_OK;
}

/* Optimizers, blocks, initial weights. */

/* A bucket's optimizer, or a device's part of it: the ranges that are updated as one. */
static yoke_status build_optimizer(yoke_data_parallel *parallel, int home, int bucket) {
    size_t offset = parallel->flat->buckets[bucket].offset;
    size_t elements = parallel->flat->buckets[bucket].elements;
    int party = yoke_shares_update(parallel) ? parallel->rank : home;
    if (yoke_shares_update(parallel) || yoke_is_sharded(parallel))
        yoke_bucket_slice(parallel, bucket, party, &offset, &elements);
    int index = home * parallel->flat->bucket_count + bucket;
    return yoke_optimizer_create(&parallel->optimizers[index], &parallel->optimizer_options,
                                 yoke_devices_at(parallel->devices, home), offset, elements);
}

static yoke_status create_optimizers(yoke_data_parallel *parallel, int home) {
    for (int bucket = 0; bucket < parallel->flat->bucket_count; bucket++)
        TRY(build_optimizer(parallel, home, bucket));
    return YOKE_OK;
}

static yoke_status create_blocks(yoke_data_parallel *parallel, int replica) {
    yoke_device *device = yoke_devices_at(parallel->devices, replica);
    size_t gradients = parallel->flat->elements * sizeof(float);
    size_t buffers = parallel->flat->buffer_elements * sizeof(float);
    TRY(yoke_device_allocate(device, YOKE_EXCHANGE_BLOCK * sizeof(float), "exchange block",
                             (void **)&parallel->blocks[replica]));
    if (parallel->options.accumulate > 1)
        TRY(yoke_device_allocate(device, gradients, "accumulated gradients",
                                 (void **)&parallel->accumulated[replica]));
    if (replica > 0 || buffers == 0) return YOKE_OK;
    return yoke_device_allocate(device, buffers, "running statistics",
                                (void **)&parallel->good_buffers);
}

/* By each device's own worker, so that memory lies where it is used. */
static yoke_status create_memory(int worker, void *context) {
    yoke_data_parallel *parallel = context;
    if (worker < parallel->optimizer_homes) TRY(create_optimizers(parallel, worker));
    return create_blocks(parallel, worker);
}

static yoke_status build_memory(yoke_data_parallel *parallel) {
    parallel->optimizer_homes = yoke_is_sharded(parallel) ? parallel->count : 1;
    size_t count = (size_t)parallel->optimizer_homes * (size_t)parallel->flat->bucket_count;
    parallel->optimizers = calloc(count, sizeof *parallel->optimizers);
    if (parallel->optimizers == NULL) return FAIL_MEMORY(count * sizeof(void *), "optimizers");
    return yoke_apply(parallel, YOKE_STAGE_UPDATE, create_memory);
}

static yoke_status initialize_root(int worker, void *context) {
    yoke_data_parallel *parallel = context;
    if (worker != 0) return YOKE_OK;
    return yoke_replica_initialize(parallel->replicas[0], parallel->options.seed);
}

/* Create and destroy. */

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
    if (own->schedule < YOKE_SCHEDULE_OVERLAP || own->schedule > YOKE_SCHEDULE_SHARDED)
        return FAIL(YOKE_ERROR_ARGUMENT, "schedule is %d: it is one of yoke_schedule",
                    (int)own->schedule);
    if (own->precision < YOKE_FLOAT32 || own->precision > YOKE_TF32)
        return FAIL(YOKE_ERROR_ARGUMENT, "precision is %d: it is one of yoke_precision",
                    (int)own->precision);
    if (own->algorithm != YOKE_ALGORITHM_MEASURED && own->algorithm != YOKE_ALGORITHM_DIRECT)
        return FAIL(YOKE_ERROR_ARGUMENT, "algorithm is %d: it is one of yoke_algorithm",
                    (int)own->algorithm);
    return YOKE_OK;
}

static yoke_status join_ranks(yoke_data_parallel *parallel) {
    const yoke_data_parallel_options *options = &parallel->options;
    parallel->ranks = options->process_group;
    parallel->world = 1;
    if (options->process_group == NULL) return YOKE_OK;
    parallel->rank = yoke_process_group_rank(options->process_group);
    parallel->world = yoke_process_group_world(options->process_group);
    if (parallel->count > 1)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%d devices in rank %d: a rank of DDP has one device; start more ranks",
                    parallel->count, parallel->rank);
    if (options->schedule == YOKE_SCHEDULE_CLASSIC)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "the classic schedule is nn.DataParallel's: DDP has overlap and sharded");
    if (options->schedule == YOKE_SCHEDULE_SHARDED && parallel->queued)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "DDP's sharded schedule is for CPU devices of one machine");
    return yoke_ranks_compare_options(parallel);
}

/* This process's rows of the largest batch; rank 0 has no fewer than any other. */
static yoke_status count_rows(yoke_data_parallel *parallel) {
    const yoke_data_parallel_options *options = &parallel->options;
    parallel->rows_limit = yoke_shard_rows(options->batch, parallel->world, 0);
    if (options->accumulate > parallel->rows_limit)
        return FAIL(YOKE_ERROR_ARGUMENT, "accumulate is %d: a rank has %d of the batch's %d rows",
                    options->accumulate, parallel->rows_limit, options->batch);
    parallel->micro_rows = yoke_shard_rows(parallel->rows_limit, options->accumulate, 0);
    return YOKE_OK;
}

/* Where a segment is a launch buckets are DDP's; alone there is nobody to send them to. */
static void default_buckets(yoke_data_parallel *parallel) {
    yoke_data_parallel_options *own = &parallel->options;
    if (!parallel->queued || own->bucket_bytes > 0) return;
    bool alone = parallel->count == 1 && parallel->world == 1;
    own->bucket_bytes = alone ? SIZE_MAX : QUEUED_BUCKET_BYTES;
    if (alone && own->first_bucket_bytes == 0) own->first_bucket_bytes = SIZE_MAX;
}

static yoke_status check_precision(const yoke_data_parallel *parallel) {
    for (int k = 0; k < parallel->count; k++) {
        yoke_device *device = yoke_devices_at(parallel->devices, k);
        if (!yoke_device_supports(device, parallel->options.precision))
            return FAIL(YOKE_ERROR_DEVICE,
                        "%s does not compute in %s (see yoke devices); use float32",
                        yoke_device_name(device), yoke_precision_name(parallel->options.precision));
    }
    return YOKE_OK;
}

static yoke_status build_tables(yoke_data_parallel *parallel) {
    size_t count = (size_t)parallel->count;
    parallel->scopes = calloc(count, sizeof *parallel->scopes);
    parallel->replicas = calloc(count, sizeof *parallel->replicas);
    parallel->blocks = calloc(count, sizeof *parallel->blocks);
    parallel->accumulated = calloc(count, sizeof *parallel->accumulated);
    parallel->replica_weights = calloc(count, sizeof *parallel->replica_weights);
    parallel->replica_buffers = calloc(count, sizeof *parallel->replica_buffers);
    parallel->shards = calloc(count, sizeof *parallel->shards);
    parallel->events = calloc(count, sizeof *parallel->events);
    parallel->staging = calloc(count, sizeof *parallel->staging);
    parallel->homes = calloc(count, sizeof *parallel->homes);
    parallel->bad_layers = calloc(count, sizeof *parallel->bad_layers);
    parallel->square_sums = calloc(count, sizeof *parallel->square_sums);
    parallel->exchanged = calloc(count, sizeof *parallel->exchanged);
    bool complete = parallel->scopes && parallel->replicas && parallel->blocks &&
                    parallel->accumulated && parallel->replica_weights &&
                    parallel->replica_buffers && parallel->shards && parallel->events &&
                    parallel->staging && parallel->homes && parallel->bad_layers &&
                    parallel->square_sums && parallel->exchanged;
    if (!complete) return FAIL_MEMORY(count * 64, "the engine's tables");
    yoke_device *root = yoke_devices_at(parallel->devices, 0);
    TRY(yoke_device_allocate_host(root, count * sizeof *parallel->loss_sums, "losses",
                                  (void **)&parallel->loss_sums));
    return yoke_device_allocate_host(root, count * sizeof *parallel->corrects, "counts of hits",
                                     (void **)&parallel->corrects);
}

/* One float that the ranks sum ahead of the gradients. */
static yoke_status build_doubt(yoke_data_parallel *parallel) {
    void *memory = NULL;
    if (!is_ddp_on_host(parallel) || yoke_shares_update(parallel)) return YOKE_OK;
    TRY(yoke_process_group_allocate(parallel->ranks, sizeof *parallel->found_nonfinite, &memory));
    parallel->found_nonfinite = memory;
    return YOKE_OK;
}

/* What the exchange adds up, and where it publishes; before the optimizers, whose parts it decides.
 */
static yoke_status build_parties(yoke_data_parallel *parallel) {
    size_t count = (size_t)parallel->parties;
    parallel->party_gradients = calloc(count, sizeof *parallel->party_gradients);
    parallel->party_parameters = calloc(count, sizeof *parallel->party_parameters);
    if (parallel->party_gradients == NULL || parallel->party_parameters == NULL)
        return FAIL_MEMORY(2 * count * sizeof(float *), "the parties of an exchange");
    if (yoke_shares_update(parallel)) return yoke_shared_update_create(parallel);
    for (int k = 0; k < parallel->count; k++) {
        parallel->party_gradients[k] = yoke_replica_memory_of(parallel->replicas[k])->gradients;
        parallel->party_parameters[k] = yoke_replica_memory_of(parallel->replicas[k])->parameters;
    }
    return YOKE_OK;
}

static yoke_status build_replicas(yoke_data_parallel *parallel) {
    bool follows = parallel->rank > 0, tells_late = parallel->rank == 0 && parallel->queued;
    TRY(yoke_choices_create(&parallel->choices));
    if (follows) TRY(yoke_ranks_share_choices(parallel));
    TRY(yoke_apply(parallel, YOKE_STAGE_FORWARD, create_root));
    if (tells_late) TRY(yoke_ranks_share_choices(parallel));
    parallel->flat = yoke_replica_flat(parallel->replicas[0]);
    TRY(yoke_ranks_compare_layouts(parallel));
    parallel->arrivals = calloc((size_t)parallel->flat->bucket_count, sizeof *parallel->arrivals);
    if (parallel->arrivals == NULL) return FAIL_MEMORY(parallel->flat->bucket_count, "buckets");
    return yoke_apply(parallel, YOKE_STAGE_FORWARD, create_other);
}

static yoke_status build(yoke_data_parallel *parallel, const yoke_data_parallel_options *options,
                         const yoke_optimizer_options *optimizer) {
    parallel->count = yoke_devices_count(parallel->devices);
    parallel->queued = !yoke_devices_share_memory(parallel->devices);
    TRY(load_options(parallel, options, optimizer));
    TRY(join_ranks(parallel));
    parallel->parties = yoke_shares_update(parallel) ? parallel->world : parallel->count;
    TRY(count_rows(parallel));
    default_buckets(parallel);
    TRY(check_precision(parallel));
    parallel->channels = yoke_model_output_shape(parallel->model).channels;
    parallel->classification = yoke_model_loss_kind(parallel->model) == YOKE_LOSS_CROSS_ENTROPY;
    TRY(build_tables(parallel));
    TRY(build_trace(parallel));
    TRY(build_workers(parallel));
    TRY(build_replicas(parallel));
    TRY(build_memory(parallel));
    TRY(build_doubt(parallel));
    TRY(build_parties(parallel));
    TRY(yoke_queues_create(parallel));
    if (parallel->options.schedule == YOKE_SCHEDULE_CLASSIC) TRY(yoke_root_loss_create(parallel));
    TRY(yoke_apply(parallel, YOKE_STAGE_UPDATE, initialize_root));
    parallel->weights_version = parallel->buffers_version = 1;
    TRY(yoke_data_parallel_synchronize(parallel));
    TRY(yoke_data_parallel_prepare(parallel, parallel->options.batch, true));
    TRY(yoke_replicate(parallel));
    yoke_trace_reset(parallel->trace);
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
    yoke_data_parallel *own = calloc(1, sizeof *own);
    if (own == NULL) return FAIL_MEMORY(sizeof *own, "the engine");
    own->model = model;
    own->devices = devices;
    yoke_status status = build(own, options, optimizer);
    if (status != YOKE_OK) {
        yoke_error error = yoke_error_take(yoke_process_group_abort(own->ranks, status));
        yoke_data_parallel_destroy(own);
        return yoke_error_restore(&error);
    }
    *parallel = own;
    return YOKE_OK;
}

static int optimizer_count(const yoke_data_parallel *parallel) {
    return parallel->optimizers == NULL ? 0
                                        : parallel->optimizer_homes * parallel->flat->bucket_count;
}

static void destroy_device_memory(yoke_data_parallel *parallel) {
    yoke_device *root = yoke_devices_at(parallel->devices, 0);
    (void)yoke_queues_synchronize(parallel);
    yoke_queues_destroy(parallel);
    yoke_device_free_host(root, parallel->corrects);
    yoke_device_free_host(root, parallel->loss_sums);
    yoke_root_loss_destroy(parallel);
    if (parallel->good_buffers != NULL) yoke_device_free(root, parallel->good_buffers);
    for (int k = parallel->count - 1; k >= 0; k--) {
        yoke_device *device = yoke_devices_at(parallel->devices, k);
        if (parallel->accumulated && parallel->accumulated[k])
            yoke_device_free(device, parallel->accumulated[k]);
        if (parallel->blocks && parallel->blocks[k]) yoke_device_free(device, parallel->blocks[k]);
    }
    for (int i = optimizer_count(parallel) - 1; i >= 0; i--)
        yoke_optimizer_destroy(parallel->optimizers[i]);
    for (int k = parallel->count - 1; k >= 0 && parallel->replicas; k--)
        yoke_replica_destroy(parallel->replicas[k]);
}

void yoke_data_parallel_destroy(yoke_data_parallel *parallel) {
    if (parallel == NULL) return;
    yoke_data_parallel_release(parallel);
    destroy_device_memory(parallel);
    yoke_workers_destroy(parallel->workers);
    yoke_trace_destroy(parallel->trace);
    yoke_choices_destroy(parallel->choices);
    free(parallel->optimizers);
    free(parallel->arrivals);
    free(parallel->boards);
    free(parallel->party_parameters);
    free(parallel->party_gradients);
    free(parallel->exchanged);
    free(parallel->square_sums);
    free(parallel->bad_layers);
    free(parallel->shards);
    free(parallel->replica_buffers);
    free(parallel->replica_weights);
    free(parallel->accumulated);
    free(parallel->blocks);
    free(parallel->replicas);
    free(parallel->scopes);
    free(parallel);
}
