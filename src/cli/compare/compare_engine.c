/* SPDX-License-Identifier: Apache-2.0 */
/* Builds an engine from a setup, trains it and times its steps. */
#include "cli/compare/compare_engine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "cli/cli.h"

struct compare_engine {
    compare_setup setup;
    compare_role role;
    yoke_devices *devices;
    yoke_dataset *dataset;
    yoke_dataset_info rows;
    yoke_model *model;
    yoke_loader *loader;
    uint64_t epoch;
    yoke_process_group *group;
    yoke_data_parallel *parallel;
    yoke_batch batch;           /* the last one of the loader */
    yoke_account_window window; /* of the last run */
};

static bool is_rank(const compare_engine *engine) {
    return engine->role.rank.world > 0;
}

static int participants_of(const compare_engine *engine) {
    return is_rank(engine) ? engine->role.rank.world : engine->role.devices;
}

static bool has_shares(const compare_engine *engine) {
    return participants_of(engine) > 1 && engine->setup.share_count > 0;
}

static yoke_status open_devices(compare_engine *engine) {
    char list[COMPARE_LIST_BYTES];
    compare_setup_list(&engine->setup, engine->role.devices, list);
    yoke_devices_options options = {.struct_size = sizeof options,
                                    .list = list,
                                    .threads = engine->role.threads > 0 ? engine->role.threads
                                                                        : engine->setup.threads,
                                    .local_rank = engine->role.rank.local_rank,
                                    .local_world = engine->role.rank.local_world};
    return yoke_devices_open(&engine->devices, &options);
}

static yoke_status open_data(compare_engine *engine) {
    const compare_setup *setup = &engine->setup;
    yoke_loader_options options = {.struct_size = sizeof options,
                                   .batch = setup->batch,
                                   .shards = setup->shards,
                                   .shuffle = true,
                                   .drop_last = true,
                                   .seed = setup->seed,
                                   .devices = engine->devices,
                                   .rank = engine->role.rank.rank,
                                   .world = engine->role.rank.world};
    if (has_shares(engine)) options.rank = options.world = 0; /* take_share cuts whole batches */
    yoke_status status = compare_setup_open(setup, !is_rank(engine), &engine->dataset);
    engine->rows.struct_size = sizeof engine->rows;
    if (status == YOKE_OK) status = yoke_dataset_describe(engine->dataset, &engine->rows);
    if (status != YOKE_OK) return status;
    if ((size_t)setup->batch > engine->rows.rows)
        return cli_refuse(YOKE_ERROR_ARGUMENT,
                          "--batch %d is more than the %zu rows of %s; choose a smaller batch",
                          setup->batch, engine->rows.rows, setup->dataset);
    status = yoke_loader_create(&engine->loader, engine->dataset, &options);
    return status == YOKE_OK ? yoke_loader_begin(engine->loader, 0) : status;
}

static yoke_status join_ranks(compare_engine *engine) {
    yoke_device_info device = {.struct_size = sizeof device};
    yoke_process_group_options options = {.struct_size = sizeof options,
                                          .rank = &engine->role.rank};
    if (!is_rank(engine)) return YOKE_OK;
    yoke_status status = yoke_devices_describe(engine->devices, 0, &device);
    if (device.capability > 0) options.devices = engine->devices;
    return status == YOKE_OK ? yoke_process_group_create(&engine->group, &options) : status;
}

/* single stays the yardstick. */
static bool has_straggler(const compare_engine *engine) {
    int participants = participants_of(engine);
    return participants > 1 && engine->setup.straggler < participants;
}

/* Ranks bring as many rows as their share has: each engine has room for the largest one. */
static int largest_batch(const compare_engine *engine) {
    const compare_setup *setup = &engine->setup;
    int world = engine->role.rank.world, most = 0;
    if (!is_rank(engine) || !has_shares(engine)) return setup->batch;
    for (int i = 0; i < world; i++) {
        int count = compare_setup_rows(setup, world, i).count;
        most = count > most ? count : most;
    }
    return most * world;
}

static yoke_status build_parallel(compare_engine *engine) {
    const compare_setup *setup = &engine->setup;
    size_t bucket_bytes = (size_t)(setup->bucket_mb * 1048576);
    yoke_collectives collectives = engine->role.chains ? YOKE_COLLECTIVES_NCCL : setup->collectives;
    yoke_data_parallel_options options = {
        .struct_size = sizeof options,
        .schedule = engine->role.schedule,
        .precision = setup->precision,
        .algorithm = setup->algorithm,
        .time_devices = true,
        .algorithm_cache = setup->algorithm_cache[0] != '\0' ? setup->algorithm_cache : NULL,
        .replace_broken_cache = setup->replace_broken_cache,
        .collectives = collectives,
        .first_bucket_bytes = bucket_bytes,
        .bucket_bytes = bucket_bytes,
        .batch = largest_batch(engine),
        .shards = setup->shards,
        .seed = setup->seed,
        .process_group = engine->group,
        .interpreter_us = setup->interpreter_us,
        .custom_exchange = engine->role.exchange,
        .link = setup->link[0] != '\0' ? setup->link : NULL,
        .pixels = yoke_loader_pixels(engine->loader)};
    if (has_shares(engine) && !is_rank(engine)) {
        options.shares = setup->shares;
        options.share_count = engine->role.devices;
    }
    if (has_straggler(engine)) {
        options.straggler = setup->straggler;
        options.straggler_factor = setup->straggler_factor;
    }
    yoke_loss_options loss = YOKE_LOSS_OPTIONS_INIT;
    const yoke_dataset_info *rows = &engine->rows;
    TRY(yoke_dataset_default_loss(engine->dataset, &loss));
    TRY(yoke_model_preset(&engine->model, setup->model, rows->shape,
                          rows->classes > 0 ? rows->classes : rows->target_count, &loss));
    TRY(yoke_loader_select_inputs(engine->loader, engine->model));
    yoke_status status = yoke_data_parallel_create(&engine->parallel, engine->model,
                                                   engine->devices, &setup->optimizer, &options);
    const char *warning = yoke_data_parallel_algorithms_warning(engine->parallel);
    if (warning != NULL) fprintf(stderr, "yoke: warning: %s\n", warning);
    return status;
}

yoke_status compare_engine_create(compare_engine **engine, const compare_setup *setup,
                                  const compare_role *role) {
    *engine = NULL;
    compare_engine *made = calloc(1, sizeof *made);
    if (made == NULL) return cli_refuse(YOKE_ERROR_MEMORY, "no memory for an engine");
    made->setup = *setup;
    made->role = *role;
    made->batch.struct_size = sizeof made->batch;
    yoke_status status = open_devices(made);
    if (status == YOKE_OK) status = open_data(made);
    if (status == YOKE_OK) status = join_ranks(made);
    if (status == YOKE_OK) status = build_parallel(made);
    if (status == YOKE_OK)
        *engine = made;
    else
        compare_engine_destroy(made);
    return status;
}

void compare_engine_destroy(compare_engine *engine) {
    if (engine == NULL) return;
    yoke_data_parallel_destroy(engine->parallel);
    yoke_process_group_destroy(engine->group);
    yoke_loader_destroy(engine->loader);
    yoke_model_destroy(engine->model);
    yoke_dataset_close(engine->dataset);
    yoke_devices_close(engine->devices);
    free(engine);
}

void compare_engine_describe(const compare_engine *engine, compare_facts *facts) {
    *facts = (compare_facts){0};
    snprintf(facts->dataset, sizeof facts->dataset, "%s", engine->rows.name);
    if (engine->group != NULL)
        snprintf(facts->transport, sizeof facts->transport, "%s",
                 yoke_process_group_transport(engine->group));
    for (int i = 0; i < yoke_model_tensor_count(engine->model); i++) {
        yoke_tensor_info info = {.struct_size = sizeof info};
        if (yoke_model_tensor(engine->model, i, &info) != YOKE_OK) continue;
        if (info.trainable) facts->parameters += info.count;
        facts->batch_norm = facts->batch_norm || info.integer; /* num_batches_tracked */
    }
}

/* Leaves this rank's rows of a whole batch. */
static void take_share(compare_engine *engine) {
    yoke_batch *batch = &engine->batch;
    size_t rows = (size_t)batch->rows;
    compare_rows own =
        compare_setup_rows(&engine->setup, participants_of(engine), engine->role.rank.rank);
    size_t first = (size_t)own.first, count = (size_t)own.count;
    if (batch->inputs != NULL) batch->inputs += first * (batch->inputs_count / rows);
    if (batch->labels != NULL) batch->labels += first * (batch->labels_count / rows);
    if (batch->targets != NULL) batch->targets += first * (batch->targets_count / rows);
    batch->inputs_count = batch->inputs_count / rows * count;
    batch->labels_count = batch->labels_count / rows * count;
    batch->targets_count = batch->targets_count / rows * count;
    batch->first_row = own.first;
    batch->whole_rows = batch->rows;
    batch->rows = own.count;
}

/* The next batch; starts another epoch at the end of one. */
static yoke_status next_batch(compare_engine *engine) {
    TRY(yoke_loader_next(engine->loader, &engine->batch, NULL));
    if (engine->batch.rows == 0 && engine->batch.whole_rows == 0) {
        TRY(yoke_loader_begin(engine->loader, ++engine->epoch));
        TRY(yoke_loader_next(engine->loader, &engine->batch, NULL));
    }
    if (!is_rank(engine) || !has_shares(engine)) return YOKE_OK;
    if (engine->batch.more_input_count > 0)
        return cli_refuse(YOKE_ERROR_ARGUMENT, "--shares: rows of one input; %s has several",
                          engine->rows.name);
    take_share(engine);
    return YOKE_OK;
}

const yoke_dataset_info *compare_engine_rows(const compare_engine *engine) {
    return &engine->rows;
}

yoke_status compare_engine_next(compare_engine *engine, const yoke_batch **batch) {
    *batch = &engine->batch;
    return next_batch(engine);
}

yoke_status compare_engine_save(compare_engine *engine, const char *path) {
    return yoke_weights_save(engine->parallel, engine->model, path);
}

yoke_status compare_engine_learn(compare_engine *engine, int steps, compare_learned *learned) {
    yoke_status status = yoke_data_parallel_bind(engine->parallel);
    learned->steps = steps;
    for (int i = 0; i < steps && status == YOKE_OK; i++) {
        yoke_step_result result = {.struct_size = sizeof result};
        status = next_batch(engine);
        if (status == YOKE_OK)
            status = yoke_data_parallel_step(engine->parallel, &engine->batch,
                                             YOKE_OPTIMIZER_LEARNING_RATE, &result);
        learned->losses[i] = result.loss;
    }
    if (status == YOKE_OK) status = yoke_data_parallel_hash(engine->parallel, &learned->hash);
    yoke_data_parallel_unbind(engine->parallel);
    return status;
}

yoke_status compare_engine_run(compare_engine *engine, int steps, bool fresh,
                               double *milliseconds) {
    yoke_step_result result = {.struct_size = sizeof result};
    bool has_batch = engine->batch.rows > 0 || engine->batch.whole_rows > 0;
    yoke_status status = has_batch ? YOKE_OK : next_batch(engine);
    if (status == YOKE_OK) status = yoke_data_parallel_bind(engine->parallel);
    if (fresh) yoke_trace_reset(yoke_data_parallel_trace(engine->parallel));
    if (status == YOKE_OK && engine->group != NULL)
        status = yoke_process_group_barrier(engine->group);
    engine->window = (yoke_account_window){.begin_ns = yoke_now_ns(), .steps = steps};
    for (int i = 0; i < steps && status == YOKE_OK; i++)
        status =
            yoke_data_parallel_step(engine->parallel, &engine->batch, COMPARE_RACE_RATE, &result);
    if (status == YOKE_OK) status = yoke_devices_synchronize(engine->devices);
    engine->window.end_ns = yoke_now_ns();
    *milliseconds = 1e-6 * (double)(engine->window.end_ns - engine->window.begin_ns) / steps;
    yoke_data_parallel_unbind(engine->parallel);
    return status;
}

void compare_engine_stages(compare_engine *engine, compare_stages *stages) {
    for (int i = 0; i < YOKE_STAGE_COUNT; i++)
        stages->rows[i].struct_size = sizeof stages->rows[i];
    stages->count = yoke_trace_summarize(yoke_data_parallel_trace(engine->parallel), stages->rows,
                                         YOKE_STAGE_COUNT);
}

yoke_status compare_engine_account(compare_engine *engine, yoke_account *lanes) {
    yoke_spans spans;
    int count = is_rank(engine) ? 1 : engine->role.devices;
    yoke_status status = yoke_spans_read(yoke_data_parallel_trace(engine->parallel),
                                         (uint64_t)engine->window.steps, &spans);
    if (status == YOKE_OK) status = yoke_account_read(&spans, &engine->window, lanes, count);
    yoke_spans_free(&spans);
    /* The span of an all-reduce counts the whole collective; every rank moves an equal part. */
    if (is_rank(engine)) lanes[0].bytes[YOKE_STAGE_ALL_REDUCE] /= engine->role.rank.world;
    return status;
}

yoke_status compare_engine_steps(compare_engine *engine, yoke_span_info *steps, int capacity,
                                 int *count) {
    yoke_spans spans;
    yoke_status status = yoke_spans_read(yoke_data_parallel_trace(engine->parallel), 0, &spans);
    *count = status == YOKE_OK ? compare_steps_list(&spans, steps, capacity) : 0;
    yoke_spans_free(&spans);
    return status;
}

yoke_status compare_engine_step(compare_engine *engine, compare_step *step, int capacity) {
    yoke_spans spans;
    yoke_status status = yoke_spans_read(yoke_data_parallel_trace(engine->parallel), 0, &spans);
    step->count = step->left_out = 0;
    if (status == YOKE_OK) compare_step_read(&spans, step, capacity);
    yoke_spans_free(&spans);
    return status;
}

yoke_status compare_engine_memory(const compare_engine *engine, compare_memory *devices) {
    for (int i = 0; i < yoke_data_parallel_device_count(engine->parallel); i++) {
        yoke_memory_report report = {.struct_size = sizeof report};
        yoke_status status = yoke_data_parallel_memory(engine->parallel, i, &report);
        if (status != YOKE_OK) return status;
        devices[i] = (compare_memory){.weights = (double)(report.parameters + report.buffers),
                                      .gradients = (double)report.gradients,
                                      .optimizer = (double)report.optimizer,
                                      .activations = (double)report.activations,
                                      .other = (double)(report.scratch + report.batch),
                                      .total = (double)report.total};
    }
    return YOKE_OK;
}

void compare_engine_algorithms(const compare_engine *engine, char text[COMPARE_ALGORITHMS_BYTES]) {
    const char *pass, *algorithm;
    double milliseconds;
    int passes = 0, winograd = 0;
    while (
        yoke_data_parallel_algorithm(engine->parallel, passes, &pass, &algorithm, &milliseconds)) {
        winograd += strncmp(algorithm, "winograd", 8) == 0;
        passes++;
    }
    if (engine->setup.algorithm == YOKE_ALGORITHM_DIRECT)
        snprintf(text, COMPARE_ALGORITHMS_BYTES, "direct");
    else
        snprintf(text, COMPARE_ALGORITHMS_BYTES, "winograd in %d of %d passes", winograd, passes);
}

const yoke_model *compare_engine_model(const compare_engine *engine) {
    return engine->model;
}

bool compare_next_tensor(const yoke_model *model, int *place, yoke_tensor_info *info) {
    while (*place < yoke_model_tensor_count(model)) {
        *info = (yoke_tensor_info){.struct_size = sizeof *info};
        if (yoke_model_tensor(model, (*place)++, info) == YOKE_OK && !info->integer) return true;
    }
    return false;
}

size_t compare_weights_count(const yoke_model *model) {
    yoke_tensor_info info;
    size_t count = 0;
    for (int place = 0; compare_next_tensor(model, &place, &info);)
        count += info.count;
    return count;
}

yoke_status compare_engine_read(compare_engine *engine, float *weights) {
    yoke_tensor_info info;
    yoke_status status = YOKE_OK;
    for (int place = 0; status == YOKE_OK && compare_next_tensor(engine->model, &place, &info);) {
        status = yoke_data_parallel_read(engine->parallel, info.name, weights, info.count);
        weights += info.count;
    }
    return status;
}

yoke_status compare_engine_read_gradients(compare_engine *engine, float *gradients) {
    yoke_tensor_info info;
    yoke_status status = YOKE_OK;
    for (int place = 0; status == YOKE_OK && compare_next_tensor(engine->model, &place, &info);) {
        memset(gradients, 0, info.count * sizeof *gradients);
        if (info.trainable)
            status = yoke_data_parallel_read_gradient(engine->parallel, info.name, gradients,
                                                      info.count);
        gradients += info.count;
    }
    return status;
}
