/* SPDX-License-Identifier: Apache-2.0 */
/* Opens what a run needs, in the order of use, and closes it in reverse; summarizes a run. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/data.h"
#include "train/run.h"
#include "train/weights.h"

/* Options. */

/* The texts of the caller may be gone when run needs them. */
static yoke_status keep_texts(yoke_trainer *trainer) {
    yoke_trainer_options *options = &trainer->options;
    const char **fields[] = {&options->model,
                             &options->dataset,
                             &options->devices,
                             &options->init,
                             &options->save,
                             &options->metrics,
                             &options->trace,
                             &options->init_allow_missing,
                             &options->init_allow_unknown,
                             &options->checkpoint_dir,
                             &options->resume,
                             &options->resume_anyway,
                             &trainer->engine.choices,
                             &trainer->engine.link};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        if (*fields[i] == NULL) continue;
        trainer->texts[i] = strdup(*fields[i]);
        if (trainer->texts[i] == NULL) return FAIL_MEMORY(strlen(*fields[i]) + 1, "an option");
        *fields[i] = trainer->texts[i];
    }
    return YOKE_OK;
}

static yoke_status check_resume(const yoke_trainer_options *options) {
    bool automatic = options->resume != NULL && strcmp(options->resume, "auto") == 0;
    if (automatic && options->checkpoint_dir == NULL)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "resume auto looks for the newest checkpoint in checkpoint_dir, which is not "
                    "set");
    if (options->resume != NULL && !automatic && options->init != NULL)
        return FAIL(
            YOKE_ERROR_ARGUMENT,
            "resume %s and init %s both bring weights: leave one out, or resume auto, which "
            "takes init where there is no checkpoint",
            options->resume, options->init);
    if (options->resume_anyway != NULL && options->resume == NULL)
        return FAIL(YOKE_ERROR_ARGUMENT, "resume_anyway %s needs resume", options->resume_anyway);
    return yoke_facts_check_names(options->resume_anyway);
}

static yoke_status check_checkpoint_options(const yoke_trainer_options *options) {
    double every = options->checkpoint_every;
    if (!(every >= 0) || isinf(every))
        return FAIL(YOKE_ERROR_ARGUMENT, "checkpoint_every is %g: at least 0", every);
    if (options->checkpoint_unit < YOKE_CHECKPOINT_EPOCHS ||
        options->checkpoint_unit > YOKE_CHECKPOINT_SECONDS)
        return FAIL(YOKE_ERROR_ARGUMENT, "checkpoint_unit %d is unknown",
                    (int)options->checkpoint_unit);
    if (options->checkpoint_unit != YOKE_CHECKPOINT_SECONDS && every != floor(every))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "checkpoint_every is %g: a whole number of steps or epochs; only seconds may "
                    "have a fraction",
                    every);
    if (options->keep < 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "keep is %d: at least 1, or 0 for 3", options->keep);
    if (options->keep_best && options->evaluate_every < 0)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "keep_best needs evaluations, and evaluate_every is %d: never; 1 evaluates "
                    "after every epoch",
                    options->evaluate_every);
    return check_resume(options);
}

static yoke_status check_options(const yoke_trainer_options *options) {
    if (options->batch < 0 || options->epochs < 0 || options->threads < 0 ||
        options->engine->accumulate < 0)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "batch %d, epochs %d, threads %d, accumulate %d: none may be negative",
                    options->batch, options->epochs, options->threads, options->engine->accumulate);
    if (options->mistakes < 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "mistakes is %d: at least 0", options->mistakes);
    if (options->evaluate_every < -1)
        return FAIL(YOKE_ERROR_ARGUMENT, "evaluate_every is %d: -1 never, 0 at the end, or epochs",
                    options->evaluate_every);
    if (options->mode < YOKE_MODE_DATA_PARALLEL ||
        options->mode > YOKE_MODE_DISTRIBUTED_DATA_PARALLEL)
        return FAIL(YOKE_ERROR_ARGUMENT, "mode %d is unknown", (int)options->mode);
    if (options->lr_schedule < YOKE_LR_CONSTANT || options->lr_schedule > YOKE_LR_PLATEAU)
        return FAIL(YOKE_ERROR_ARGUMENT, "lr_schedule is %d: it is one of yoke_lr_schedule_kind",
                    (int)options->lr_schedule);
    TRY(yoke_watch_check(options));
    return check_checkpoint_options(options);
}

/* Rows of the host program replace the SPEC; its name then stands for them in records. */
static yoke_status name_rows(yoke_trainer_options *options) {
    yoke_dataset_info info = {.struct_size = sizeof info};
    if (options->training_rows == NULL && options->test_rows != NULL)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "test_rows is set and training_rows is NULL: set both, or name a dataset");
    if (options->training_rows != NULL && (options->limit_rows > 0 || options->skip_bad))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "limit_rows and skip_bad are for a dataset that the trainer opens: call "
                    "yoke_dataset_limit and yoke_dataset_skip_bad on training_rows");
    if (options->training_rows == NULL) {
        if (options->dataset == NULL) options->dataset = "synthetic";
        return YOKE_OK;
    }
    if (options->dataset != NULL)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "dataset %s and training_rows are both set: leave one of them NULL",
                    options->dataset);
    if (options->test_rows == NULL && options->evaluate_every != -1)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "evaluate_every is %d and test_rows is NULL: set test_rows, or evaluate_every "
                    "to -1, never",
                    options->evaluate_every);
    TRY(yoke_dataset_describe(options->training_rows, &info));
    options->dataset = info.name;
    return YOKE_OK;
}

static yoke_status load_engine(yoke_trainer *trainer) {
    static const yoke_data_parallel_options defaults = YOKE_DATA_PARALLEL_OPTIONS_INIT;
    yoke_data_parallel_options *engine = &trainer->engine;
    const yoke_data_parallel_options *given = trainer->options.engine;
    TRY(yoke_options_load(engine, sizeof *engine, given != NULL ? given : &defaults,
                          "yoke_data_parallel_options"));
    if (engine->batch != 0 || engine->seed != 0 || engine->process_group != NULL ||
        engine->pixels || engine->input_gradients || engine->inference)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "engine: the trainer sets batch, seed, process_group and pixels itself: leave "
                    "them 0, as well as input_gradients and inference");
    trainer->options.engine = engine;
    return YOKE_OK;
}

static yoke_status load_options(yoke_trainer *trainer, const yoke_trainer_options *given) {
    yoke_trainer_options *options = &trainer->options;
    yoke_data_parallel_options *engine = &trainer->engine;
    static const yoke_trainer_options defaults = YOKE_TRAINER_OPTIONS_INIT;
    if (given == NULL) given = &defaults;
    TRY(yoke_options_load(options, sizeof *options, given, "yoke_trainer_options"));
    TRY(load_engine(trainer));
    TRY(check_options(options));
    TRY(yoke_trainer_check_host_parts(trainer));
    TRY(name_rows(options));
    if (options->devices == NULL) options->devices = "auto";
    if (options->batch == 0) options->batch = 64;
    if (options->epochs == 0) options->epochs = 1;
    if (engine->accumulate == 0) engine->accumulate = 1;
    if (options->checkpoint_every == 0) options->checkpoint_every = 1;
    if (options->keep == 0) options->keep = 3;
    /* Measurements end differently on another number of devices, and shards promise equal bits. */
    if (engine->shards > 0 && engine->choices == NULL) engine->algorithm = YOKE_ALGORITHM_DIRECT;
    TRY(yoke_optimizer_options_load(&trainer->optimizer, options->optimizer));
    options->optimizer = &trainer->optimizer;
    return keep_texts(trainer);
}

/* Opening. */

/* Weights that a run begins with may be replaced at its end. */
static yoke_status check_apart(const yoke_trainer_options *options) {
    bool replaces = options->init != NULL && options->save != NULL &&
                    yoke_file_is_same(options->init, options->save);
    bool names = options->resume != NULL && strcmp(options->resume, "auto") != 0;
    const yoke_used_file files[] = {
        {"save", options->save, YOKE_FILE_WRITTEN},
        {"metrics", options->metrics, YOKE_FILE_WRITTEN},
        {"trace", options->trace, YOKE_FILE_WRITTEN},
        {"init", replaces ? NULL : options->init, YOKE_FILE_READ},
        {"resume", names ? options->resume : NULL, YOKE_FILE_READ},
        {"choices", options->engine->choices, YOKE_FILE_READ},
        {"dataset", options->training_rows == NULL ? options->dataset : NULL, YOKE_FILE_SPEC},
        {"checkpoint_dir", options->checkpoint_dir, YOKE_FILE_CHECKPOINTS}};
    return yoke_files_check_apart(files, (int)(sizeof files / sizeof files[0]));
}

static yoke_status check_files(yoke_trainer *trainer) {
    if (yoke_trainer_writes(trainer)) TRY(check_apart(&trainer->options));
    yoke_trainer_forget_traces(trainer);
    if (!yoke_trainer_writes(trainer)) return YOKE_OK;
    TRY(yoke_file_check_whole(trainer->options.save));
    TRY(yoke_file_check(trainer->options.trace));
    return yoke_metrics_open(&trainer->metrics, trainer->options.metrics);
}

/* A resumed run keeps the lines of the steps and evaluations that it does not repeat. */
static yoke_status go_on_with_metrics(yoke_trainer *trainer) {
    yoke_metrics_place place = {.step = trainer->step,
                                .evaluates = yoke_trainer_evaluates_first(trainer)};
    if (!yoke_trainer_writes(trainer) || !trainer->checkpoints.resumed) return YOKE_OK;
    return yoke_metrics_go_on(&trainer->metrics, &place);
}

/* Mode single uses only the first device, with the number of threads that it has in the whole
 * list. */
static yoke_status keep_root(yoke_trainer *trainer) {
    yoke_device_info root = {.struct_size = sizeof root};
    TRY(yoke_devices_describe(trainer->devices, 0, &root));
    yoke_devices_close(trainer->devices);
    trainer->devices = NULL;
    char list[sizeof root.name + sizeof root.ways]; /* "cuda:0", though the first of two is #0 */
    snprintf(list, sizeof list, "%.*s%s", (int)strcspn(root.name, "#"), root.name, root.ways);
    yoke_devices_options alone = {
        .struct_size = sizeof alone, .list = list, .threads = root.threads};
    return yoke_devices_open(&trainer->devices, &alone);
}

static yoke_status open_devices(yoke_trainer *trainer) {
    if (trainer->options.mode == YOKE_MODE_DISTRIBUTED_DATA_PARALLEL)
        return yoke_trainer_join(trainer);
    yoke_devices_options all = {.struct_size = sizeof all,
                                .list = trainer->options.devices,
                                .threads = trainer->options.threads,
                                .shards = trainer->engine.shards};
    TRY(yoke_devices_open(&trainer->devices, &all));
    bool several = yoke_devices_count(trainer->devices) > 1;
    return several && trainer->options.mode == YOKE_MODE_SINGLE ? keep_root(trainer) : YOKE_OK;
}

static yoke_status open_dataset(yoke_trainer *trainer) {
    const yoke_trainer_options *options = &trainer->options;
    yoke_dataset_info *info = &trainer->dataset;
    trainer->training_rows = options->training_rows;
    if (trainer->training_rows == NULL) {
        TRY(yoke_trainer_open_split(trainer, YOKE_SPLIT_TRAIN));
        trainer->training_rows = trainer->opened[0];
    }
    info->struct_size = sizeof *info;
    TRY(yoke_dataset_describe(trainer->training_rows, info));
    TRY(yoke_trainer_labels_text(trainer->training_rows, trainer->labels));
    if (info->rows > 0 && (size_t)options->batch > info->rows)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "a batch of %d rows: %s has %zu rows to train on; choose a batch of at most "
                    "that many",
                    options->batch, options->dataset, info->rows);
    yoke_loader_options loader = {.struct_size = sizeof loader,
                                  .batch = options->batch,
                                  .shuffle = !options->no_shuffle,
                                  .augment = options->augment,
                                  .color_jitter = options->color_jitter,
                                  .erasing = options->erasing,
                                  .mixup = options->mixup,
                                  .drop_last = options->drop_last,
                                  .sampling = options->sampling,
                                  .threads = options->loader_threads,
                                  .seed = options->seed,
                                  .devices = trainer->devices};
    yoke_trainer_set_shard(trainer, &loader);
    TRY(yoke_loader_create(&trainer->loader, trainer->training_rows, &loader));
    yoke_trainer_stop_loader(trainer, trainer->loader);
    return options->evaluate_every == -1 ? YOKE_OK : yoke_trainer_open_test(trainer);
}

static yoke_status describe_weights(yoke_trainer *trainer) {
    const yoke_dataset_info *rows = &trainer->dataset;
    yoke_weights_info info = {.struct_size = sizeof info,
                              .model = trainer->options.model,
                              .input = rows->shape,
                              .classes = rows->classes,
                              .target_count = rows->target_count,
                              .class_names = rows->class_names,
                              .dataset = rows->name,
                              .resize = rows->resize,
                              .exact = rows->exact,
                              .feature_names = rows->feature_names,
                              .means = rows->means,
                              .deviations = rows->deviations};
    if (trainer->own_loss.compute == NULL) info.loss = yoke_model_loss(trainer->model);
    memcpy(info.mean, rows->mean, sizeof info.mean);
    memcpy(info.deviation, rows->deviation, sizeof info.deviation);
    return yoke_notes_write(&trainer->description, &info);
}

static void on_skip(const yoke_weights_skip *skip, void *payload) {
    const yoke_trainer_options *options = payload;
    yoke_event event = {.struct_size = sizeof event,
                        .kind = YOKE_EVENT_SKIPPED,
                        .accuracy = -1,
                        .text = skip->text,
                        .skip = skip};
    if (options->on_event != NULL) options->on_event(&event, options->payload);
}

/* The first weights, which rank 0 reads. */
typedef struct first_weights {
    yoke_trainer *trainer;
    yoke_weights_source source;
} first_weights;

static yoke_status read_weights(void *context) {
    first_weights *weights = context;
    yoke_trainer *trainer = weights->trainer;
    yoke_trainer_options *options = &trainer->options;
    yoke_weights_load_options load = {.struct_size = sizeof load,
                                      .allow_missing = options->init_allow_missing,
                                      .allow_unknown = options->init_allow_unknown,
                                      .on_skip = on_skip,
                                      .payload = options,
                                      .new_head = options->init_new_head};
    return yoke_weights_open(&weights->source, trainer->parallel, trainer->model, options->init,
                             &load);
}

/* By all ranks together. */
static yoke_status load_init(yoke_trainer *trainer) {
    first_weights weights = {.trainer = trainer};
    yoke_status status = yoke_trainer_file_work(trainer, read_weights, &weights);
    if (status == YOKE_OK && yoke_trainer_writes(trainer))
        status = yoke_weights_give(&weights.source, trainer->parallel);
    yoke_weights_close(&weights.source);
    return status;
}

/* Training rows as crops arrive as pixels where their colours change, test rows do not. */
static bool rows_come_as_pixels(const yoke_trainer *trainer) {
    return yoke_loader_pixels(trainer->loader) && !yoke_dataset_has_crops(trainer->training_rows) &&
           !yoke_dataset_has_crops(trainer->options.test_rows);
}

static yoke_status build_engine(yoke_trainer *trainer) {
    const yoke_trainer_options *options = &trainer->options;
    yoke_data_parallel_options *engine = &trainer->engine;
    engine->batch = options->batch;
    engine->seed = options->seed;
    engine->process_group = trainer->ranks;
    engine->pixels = rows_come_as_pixels(trainer);
    TRY(yoke_data_parallel_create(&trainer->parallel, trainer->model, trainer->devices,
                                  options->optimizer, engine));
    engine->groups = NULL; /* may be gone after create */
    if (options->init == NULL) return YOKE_OK;
    TRY(load_init(trainer));
    return yoke_data_parallel_synchronize(trainer->parallel);
}

static yoke_status plan_steps(yoke_trainer *trainer) {
    const yoke_trainer_options *options = &trainer->options;
    uint64_t a_epoch = yoke_loader_batches(trainer->loader);
    trainer->steps = options->steps > 0 ? options->steps : (uint64_t)options->epochs * a_epoch;
    trainer->epochs = UINT64_MAX;
    trainer->schedule = (yoke_lr_schedule){.struct_size = sizeof trainer->schedule,
                                           .kind = options->lr_schedule,
                                           .learning_rate = options->optimizer->learning_rate,
                                           .steps = trainer->steps,
                                           .warmup_steps = options->warmup_steps};
    yoke_watch_begin(trainer);
    return yoke_trainer_plan_stream(trainer);
}

static yoke_status build(yoke_trainer *trainer, const yoke_trainer_options *options) {
    TRY(load_options(trainer, options));
    TRY(open_devices(trainer));
    TRY(open_dataset(trainer));
    TRY(yoke_trainer_check_ranks(trainer));
    TRY(yoke_trainer_open_model(trainer));
    TRY(yoke_trainer_open_host_rows(trainer));
    TRY(describe_weights(trainer));
    TRY(check_files(trainer));
    TRY(build_engine(trainer));
    TRY(plan_steps(trainer));
    TRY(yoke_trainer_resume(trainer));
    return go_on_with_metrics(trainer);
}

yoke_status yoke_trainer_create(yoke_trainer **trainer, const yoke_trainer_options *options) {
    TRY(yoke_pointer_check(trainer, "trainer"));
    *trainer = NULL;
    yoke_trainer *made = calloc(1, sizeof *made);
    if (made == NULL) return FAIL_MEMORY(sizeof *made, "a trainer");
    made->process = getpid();
    yoke_trainer_begin_turns(made);
    yoke_status status = build(made, options);
    if (status != YOKE_OK) {
        yoke_error error = yoke_error_take(yoke_process_group_abort(made->ranks, status));
        yoke_trainer_destroy(made);
        return yoke_error_restore(&error);
    }
    yoke_trainer_publish(made);
    *trainer = made;
    return YOKE_OK;
}

void yoke_trainer_destroy(yoke_trainer *trainer) {
    if (trainer == NULL || trainer->process != getpid()) return; /* a fork has no writer to end */
    yoke_checkpoint_writer_destroy(trainer->checkpoints.writer);
    yoke_folder_close(&trainer->checkpoints.folder);
    yoke_state_destroy(trainer->checkpoints.state);
    yoke_weights_writer_destroy(trainer->weights);
    yoke_workers_destroy(trainer->file_workers);
    yoke_data_parallel_destroy(trainer->parallel);
    yoke_metrics_close(&trainer->metrics);
    yoke_lr_curve_clear(&trainer->lr_curve);
    free(trainer->mistake_pixels);
    yoke_trainer_close_host_parts(trainer);
    yoke_tally_end(&trainer->predictions);
    yoke_tally_end(&trainer->tally);
    yoke_notes_clear(&trainer->description);
    yoke_loader_destroy(trainer->test_loader);
    yoke_loader_destroy(trainer->loader);
    yoke_dataset_close(trainer->opened[1]);
    yoke_dataset_close(trainer->opened[0]);
    yoke_process_group_destroy(trainer->ranks);
    yoke_devices_close(trainer->devices);
    for (size_t i = 0; i < sizeof trainer->texts / sizeof trainer->texts[0]; i++)
        free(trainer->texts[i]);
    yoke_trainer_end_turns(trainer);
    free(trainer);
}

yoke_status yoke_trainer_check(const yoke_trainer *trainer) {
    TRY(yoke_pointer_check(trainer, "trainer"));
    return yoke_process_check(trainer->process, "this trainer");
}

/* Results. */

yoke_data_parallel *yoke_trainer_engine(yoke_trainer *trainer) {
    return trainer != NULL ? trainer->parallel : NULL;
}

const yoke_model *yoke_trainer_model(const yoke_trainer *trainer) {
    return trainer != NULL ? trainer->model : NULL;
}

yoke_status yoke_trainer_dataset(const yoke_trainer *trainer, yoke_split split,
                                 yoke_dataset_info *info) {
    TRY(yoke_pointer_check(trainer, "trainer"));
    const yoke_dataset *rows =
        split == YOKE_SPLIT_TRAIN ? trainer->training_rows : trainer->test_rows;
    if (rows == NULL)
        return FAIL(YOKE_ERROR_ARGUMENT, "the test split is not open: evaluate_every is -1");
    return yoke_dataset_describe(rows, info);
}

static const char *schedule_name(yoke_schedule schedule) {
    switch (schedule) {
    case YOKE_SCHEDULE_CLASSIC:
        return "classic";
    case YOKE_SCHEDULE_PYTHON:
        return "python";
    case YOKE_SCHEDULE_SHARDED:
        return "sharded";
    case YOKE_SCHEDULE_OVERLAP:
        break;
    }
    return "overlap";
}

static yoke_status peak_bytes(const yoke_trainer *trainer, size_t *bytes) {
    *bytes = 0;
    for (int i = 0; i < yoke_data_parallel_device_count(trainer->parallel); i++) {
        yoke_memory_report report = {.struct_size = sizeof report};
        TRY(yoke_data_parallel_memory(trainer->parallel, i, &report));
        if (report.total > *bytes) *bytes = report.total;
    }
    return YOKE_OK;
}

static void describe_setting(const yoke_trainer *trainer, yoke_trainer_summary *summary) {
    const yoke_trainer_options *options = &trainer->options;
    static const char *const modes[] = {"dp", "single", "ddp"};
    summary->mode = modes[options->mode];
    summary->schedule = schedule_name(options->engine->schedule);
    summary->world = 1;
    if (trainer->ranks != NULL) {
        summary->rank = yoke_process_group_rank(trainer->ranks);
        summary->world = yoke_process_group_world(trainer->ranks);
        summary->transport = yoke_process_group_transport(trainer->ranks);
    }
    summary->link = options->engine->link;
    summary->model = options->model;
    summary->dataset = options->dataset;
    summary->precision = yoke_precision_name(options->engine->precision);
    summary->devices = yoke_data_parallel_device_count(trainer->parallel) * summary->world;
    summary->parameters = yoke_model_parameter_count(trainer->model);
    summary->batch = options->batch;
}

static void describe_result(const yoke_trainer *trainer, yoke_trainer_summary *summary) {
    const yoke_step_times *times = &trainer->times;
    bool evaluated = trainer->last_evaluation.rows > 0;
    summary->steps = trainer->step;
    summary->step_ms_median = yoke_step_times_quantile(times, 0.5);
    summary->step_ms_p90 = yoke_step_times_quantile(times, 0.9);
    if (summary->step_ms_median > 0)
        summary->images_per_second = 1e3 * summary->batch / summary->step_ms_median;
    if (trainer->computed_ns + trainer->waited_ns > 0)
        summary->load_wait_share =
            (double)trainer->waited_ns / (double)(trainer->computed_ns + trainer->waited_ns);
    summary->loss = evaluated ? trainer->last_evaluation.loss : trainer->last_step.loss;
    summary->accuracy = evaluated ? yoke_trainer_accuracy(&trainer->last_evaluation) : -1;
    summary->train_loss = yoke_epoch_loss(&trainer->sums);
    summary->train_accuracy = yoke_epoch_accuracy(&trainer->sums);
    summary->test_loss = evaluated ? trainer->last_evaluation.loss : (double)NAN;
    summary->test_accuracy = summary->accuracy;
}

static yoke_status summarize(yoke_trainer *trainer, yoke_trainer_summary *summary) {
    yoke_trainer_summary own = {.struct_size = sizeof own};
    describe_setting(trainer, &own);
    describe_result(trainer, &own);
    TRY(peak_bytes(trainer, &own.peak_bytes));
    TRY(yoke_data_parallel_hash(trainer->parallel, &own.weights_hash));
    return yoke_options_store(summary, &own, sizeof own, "yoke_trainer_summary");
}

yoke_status yoke_trainer_summarize(yoke_trainer *trainer, yoke_trainer_summary *summary) {
    TRY(yoke_trainer_begin_question(trainer, "yoke_trainer_summarize"));
    yoke_status status = summarize(trainer, summary);
    yoke_trainer_end_question(trainer);
    return status;
}
