/* SPDX-License-Identifier: Apache-2.0 */
/* Opens what a run needs, in the order of use, and closes it in reverse; answers what it has. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "train/epochs.h"
#include "train/rank_survival.h"
#include "train/record.h"
#include "train/resume.h"
#include "train/run_engine.h"
#include "train/run_ranks.h"
#include "train/splits.h"
#include "train/trace_file.h"
#include "train/trainer_parts.h"
#include "train/unknown_length.h"
#include "train/views.h"

/* Options. */

/* The texts of the caller may be gone when run needs them. */
static yoke_status keep_texts(yoke_trainer *trainer) {
    yoke_trainer_options *options = &trainer->run.options;
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
                             &options->whiten,
                             &trainer->run.engine.algorithm_cache,
                             &trainer->run.engine.link,
                             &trainer->apart.async.record_order,
                             &trainer->apart.async.replay_order};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        if (*fields[i] == NULL) continue;
        trainer->texts[i] = yoke_strdup(*fields[i]);
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
    if (options->misclassified < 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "misclassified is %d: at least 0", options->misclassified);
    if (options->evaluate_every < -1)
        return FAIL(YOKE_ERROR_ARGUMENT, "evaluate_every is %d: -1 never, 0 at the end, or epochs",
                    options->evaluate_every);
    if (yoke_step_kind_of(options->mode) == NULL)
        return FAIL(YOKE_ERROR_ARGUMENT, "mode %d is unknown", (int)options->mode);
    if (options->lr_schedule < YOKE_LR_CONSTANT || options->lr_schedule > YOKE_LR_LINEAR)
        return FAIL(YOKE_ERROR_ARGUMENT, "lr_schedule is %d: it is one of yoke_lr_schedule_kind",
                    (int)options->lr_schedule);
    TRY(yoke_watch_check(options));
    TRY(yoke_views_check(options));
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

static yoke_status load_engine(yoke_run *run) {
    static const yoke_data_parallel_options defaults = YOKE_DATA_PARALLEL_OPTIONS_INIT;
    yoke_data_parallel_options *engine = &run->engine;
    const yoke_data_parallel_options *given = run->options.engine;
    TRY(yoke_options_load(engine, sizeof *engine, given != NULL ? given : &defaults,
                          "yoke_data_parallel_options"));
    if (engine->batch != 0 || engine->seed != 0 || engine->process_group != NULL ||
        engine->pixels || engine->input_gradients || engine->inference)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "engine: the trainer sets batch, seed, process_group and pixels itself: leave "
                    "them 0, as well as input_gradients and inference");
    if (run->options.trace != NULL) engine->time_devices = true;
    run->options.engine = engine;
    return YOKE_OK;
}

static yoke_status check_local(const yoke_local_options *local) {
    if (local->every >= 1 && local->outer_rate > 0 && isfinite(local->outer_rate) &&
        local->outer_momentum >= 0 && local->outer_momentum < 1)
        return YOKE_OK;
    return FAIL(
        YOKE_ERROR_ARGUMENT,
        "local: every is %d, outer_rate %g, outer_momentum %g: at least 1, above 0, and from "
        "0 to below 1",
        local->every, local->outer_rate, local->outer_momentum);
}

/* Devices that train apart. */
static yoke_status load_apart(yoke_trainer *trainer) {
    static const yoke_async_options async = YOKE_ASYNC_OPTIONS_INIT;
    static const yoke_local_options local = YOKE_LOCAL_OPTIONS_INIT;
    yoke_trainer_options *options = &trainer->run.options;
    yoke_apart *apart = &trainer->apart;
    trainer->steps = yoke_step_kind_of(options->mode);
    trainer->run.is_apart = trainer->steps->is_apart;
    TRY(yoke_options_load(&apart->async, sizeof apart->async,
                          options->asynchronous != NULL ? options->asynchronous : &async,
                          "yoke_async_options"));
    TRY(yoke_options_load(&apart->local, sizeof apart->local,
                          options->local != NULL ? options->local : &local, "yoke_local_options"));
    if (apart->local.every == 0) apart->local.every = 1;
    if (apart->local.outer_rate == 0) apart->local.outer_rate = 1;
    options->asynchronous = &apart->async;
    options->local = &apart->local;
    if (!(apart->async.compensation >= 0 && isfinite(apart->async.compensation)) ||
        apart->async.max_staleness < 0)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "async: max_staleness is %d and compensation %g: neither may be negative",
                    apart->async.max_staleness, apart->async.compensation);
    TRY(check_local(&apart->local));
    return yoke_step_kind_check(&trainer->run);
}

static yoke_status load_options(yoke_trainer *trainer, const yoke_trainer_options *given) {
    yoke_trainer_options *options = &trainer->run.options;
    yoke_data_parallel_options *engine = &trainer->run.engine;
    static const yoke_trainer_options defaults = YOKE_TRAINER_OPTIONS_INIT;
    if (given == NULL) given = &defaults;
    TRY(yoke_options_load(options, sizeof *options, given, "yoke_trainer_options"));
    TRY(load_engine(&trainer->run));
    TRY(check_options(options));
    TRY(load_apart(trainer));
    TRY(yoke_custom_parts_check(&trainer->parts, options));
    TRY(name_rows(options));
    if (options->devices == NULL) options->devices = "auto";
    if (options->batch == 0) options->batch = 64;
    if (options->epochs == 0) options->epochs = 1;
    if (engine->accumulate == 0) engine->accumulate = 1;
    if (options->checkpoint_every == 0) options->checkpoint_every = 1;
    if (options->keep == 0) options->keep = 3;
    /* Measurements end differently on another number of devices, and shards promise equal bits. */
    if (engine->shards > 0 && engine->algorithm_cache == NULL)
        engine->algorithm = YOKE_ALGORITHM_DIRECT;
    TRY(yoke_optimizer_options_load(&trainer->optimizer, options->optimizer));
    options->optimizer = &trainer->optimizer;
    return keep_texts(trainer);
}

/* Opening. */

static yoke_status check_files(yoke_trainer *trainer) {
    const yoke_run *run = &trainer->run;
    const yoke_trainer_options *options = &run->options;
    /* Weights that a run begins with may be replaced at its end. */
    bool writes = yoke_run_writes(run);
    bool replaces = writes && options->init != NULL && options->save != NULL &&
                    yoke_file_is_same(options->init, options->save);
    bool names = options->resume != NULL && strcmp(options->resume, "auto") != 0;
    const yoke_used_file files[] = {
        {"save", options->save, YOKE_FILE_WRITTEN},
        {"metrics", options->metrics, YOKE_FILE_WRITTEN},
        {"trace", options->trace, YOKE_FILE_WRITTEN},
        {"record_order", options->asynchronous->record_order, YOKE_FILE_WRITTEN},
        {"replay_order", options->asynchronous->replay_order, YOKE_FILE_READ},
        {"init", replaces ? NULL : options->init, YOKE_FILE_READ},
        {"resume", names ? options->resume : NULL, YOKE_FILE_READ},
        {"algorithm_cache", options->engine->algorithm_cache, YOKE_FILE_READ},
        {"dataset", options->training_rows == NULL ? options->dataset : NULL, YOKE_FILE_SPEC},
        {"checkpoint_dir", options->checkpoint_dir, YOKE_FILE_CHECKPOINTS}};
    if (writes) TRY(yoke_files_check_apart(files, (int)(sizeof files / sizeof files[0])));
    yoke_trace_file_forget(options->trace);
    if (!writes) return YOKE_OK;
    TRY(yoke_file_check_whole(options->save));
    TRY(yoke_file_check(options->trace));
    return yoke_metrics_open(&trainer->metrics, options->metrics);
}

/* Mode single uses only the first device, and so does the server of devices that train apart, with
 * the number of threads that it has in the whole list. */
static yoke_status keep_root(yoke_run *run) {
    yoke_device_info root = {.struct_size = sizeof root};
    TRY(yoke_devices_describe(run->devices, 0, &root));
    yoke_devices_close(run->devices);
    run->devices = NULL;
    /* "cuda:0", though the first of two is #0 */
    char list[sizeof root.name + sizeof root.variants];
    snprintf(list, sizeof list, "%.*s%s", (int)strcspn(root.name, "#"), root.name, root.variants);
    yoke_devices_options alone = {
        .struct_size = sizeof alone, .list = list, .threads = root.threads};
    return yoke_devices_open(&run->devices, &alone);
}

static yoke_status open_devices(yoke_run *run) {
    if (run->options.mode == YOKE_MODE_DISTRIBUTED_DATA_PARALLEL) return yoke_run_join(run);
    yoke_devices_options all = {.struct_size = sizeof all,
                                .list = run->options.devices,
                                .threads = run->options.threads,
                                .shards = run->engine.shards};
    TRY(yoke_devices_open(&run->devices, &all));
    bool several = yoke_devices_count(run->devices) > 1;
    return several && run->options.mode != YOKE_MODE_DATA_PARALLEL ? keep_root(run) : YOKE_OK;
}

/* Before the other ranks wait for a newcomer. */
static yoke_status open_early(yoke_run *run) {
    const yoke_process_group_options *ranks = run->options.process_group;
    bool waits = run->options.mode == YOKE_MODE_DISTRIBUTED_DATA_PARALLEL && ranks != NULL &&
                 ranks->struct_size == sizeof *ranks && ranks->roll != NULL;
    if (!waits) return YOKE_OK;
    run->seat = ranks->rank != NULL ? ranks->rank->rank : 0;
    return yoke_rows_open(&run->training, run, YOKE_SPLIT_TRAIN, run->options.training_rows);
}

static yoke_status open_dataset(yoke_trainer *trainer) {
    yoke_run *run = &trainer->run;
    const yoke_trainer_options *options = &run->options;
    const yoke_dataset_info *info = &run->training.info;
    TRY(yoke_rows_open(&run->training, run, YOKE_SPLIT_TRAIN, options->training_rows));
    TRY(yoke_rows_digest(&run->training, run->labels));
    if (info->rows > 0 && (size_t)options->batch > info->rows)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "a batch of %d rows: %s has %zu rows to train on; choose a batch of at most "
                    "that many",
                    options->batch, options->dataset, info->rows);
    yoke_loader_options loader = {.shuffle = !options->no_shuffle,
                                  .augment = options->augment,
                                  .color_jitter = options->color_jitter,
                                  .erasing = options->erasing,
                                  .mixup = options->mixup,
                                  .crop_flip = options->crop_flip,
                                  .drop_last = options->drop_last,
                                  .sampling = options->sampling};
    TRY(yoke_rows_load(&run->training, run, loader));
    return options->evaluate_every == -1 ? YOKE_OK : yoke_test_split_open(&trainer->test, run);
}

static yoke_status describe_weights(yoke_run *run) {
    const yoke_dataset_info *rows = &run->training.info;
    yoke_weights_info info = {.struct_size = sizeof info,
                              .model = run->options.model,
                              .input = rows->shape,
                              .classes = rows->classes,
                              .target_count = rows->target_count,
                              .class_names = rows->class_names,
                              .dataset = rows->name,
                              .resize = rows->resize,
                              .exact = rows->exact,
                              .feature_names = rows->feature_names,
                              .means = rows->means,
                              .stds = rows->stds};
    if (run->options.custom_loss == NULL) info.loss = yoke_model_loss(run->model);
    memcpy(info.mean, rows->mean, sizeof info.mean);
    memcpy(info.std, rows->std, sizeof info.std);
    return yoke_notes_write(&run->description, &info);
}

static yoke_status plan_steps(yoke_trainer *trainer) {
    yoke_run *run = &trainer->run;
    const yoke_trainer_options *options = &run->options;
    uint64_t a_epoch = yoke_loader_batch_count(run->training.loader);
    run->at.steps = options->steps > 0 ? options->steps : (uint64_t)options->epochs * a_epoch;
    run->at.epochs = UINT64_MAX;
    run->schedule = (yoke_lr_schedule){.struct_size = sizeof run->schedule,
                                       .kind = options->lr_schedule,
                                       .learning_rate = options->optimizer->learning_rate,
                                       .steps = run->at.steps,
                                       .warmup_steps = options->warmup_steps};
    yoke_watch_begin(&trainer->watch, run);
    return yoke_run_plan_stream(run, &trainer->test.rows);
}

static yoke_status build(yoke_trainer *trainer, const yoke_trainer_options *options) {
    yoke_run *run = &trainer->run;
    TRY(load_options(trainer, options));
    TRY(open_early(run));
    TRY(open_devices(run));
    TRY(open_dataset(trainer));
    TRY(yoke_run_check_ranks(run, trainer->test.rows.info.rows));
    TRY(yoke_custom_parts_open(&trainer->parts, run));
    TRY(yoke_rows_select_inputs(&run->training, run));
    TRY(yoke_rows_select_inputs(&trainer->test.rows, run));
    TRY(describe_weights(run));
    TRY(check_files(trainer));
    TRY(yoke_run_build_engine(run));
    TRY(plan_steps(trainer));
    if (trainer->steps->open != NULL) TRY(trainer->steps->open(trainer));
    TRY(yoke_resume(run, &trainer->saving, &trainer->watch));
    TRY(yoke_survival_open(&trainer->survival, run));
    TRY(yoke_ranks_come(trainer));
    /* A resumed run keeps the lines of the steps and evaluations that it does not repeat. */
    yoke_metrics_place place = {.step = run->at.step, .evaluates = yoke_run_evaluates_first(run)};
    bool keeps = yoke_run_writes(run) && trainer->saving.resumed;
    return keeps ? yoke_metrics_go_on(&trainer->metrics, &place) : YOKE_OK;
}

yoke_status yoke_trainer_create(yoke_trainer **trainer, const yoke_trainer_options *options) {
    TRY(yoke_pointer_check(trainer, "trainer"));
    *trainer = NULL;
    yoke_trainer *made = yoke_calloc(1, sizeof *made);
    if (made == NULL) return FAIL_MEMORY(sizeof *made, "a trainer");
    made->process = getpid();
    yoke_turns_begin(&made->turns);
    yoke_status status = build(made, options);
    if (status != YOKE_OK) {
        yoke_error error = yoke_error_take(yoke_process_group_abort(made->run.ranks, status));
        yoke_trainer_destroy(made);
        return yoke_error_restore(&error);
    }
    yoke_trainer_publish(made);
    *trainer = made;
    return YOKE_OK;
}

void yoke_trainer_destroy(yoke_trainer *trainer) {
    if (trainer == NULL || trainer->process != getpid()) return; /* a fork has no writer to end */
    yoke_run *run = &trainer->run;
    yoke_saving_close(&trainer->saving);
    yoke_survival_close(&trainer->survival);
    yoke_resize_close(&trainer->resize);
    yoke_weights_writer_destroy(trainer->last_weights);
    yoke_workers_destroy(run->file_workers);
    if (trainer->steps != NULL && trainer->steps->close != NULL) trainer->steps->close(trainer);
    yoke_run_close_engine(run);
    yoke_metrics_close(&trainer->metrics);
    yoke_lr_curve_clear(&trainer->lr_curve);
    yoke_notes_clear(&run->description);
    if (yoke_devices_are_kept(run->devices)) {
        /* A thread that hangs may read the model and the rows of its batch when it comes back. */
        yoke_devices_stay_open(run->devices, trainer);
        return;
    }
    yoke_custom_parts_close(&trainer->parts);
    yoke_test_split_close(&trainer->test);
    yoke_rows_close(&run->training);
    yoke_process_group_destroy(run->ranks);
    yoke_devices_close(run->devices);
    for (size_t i = 0; i < sizeof trainer->texts / sizeof trainer->texts[0]; i++)
        yoke_free(trainer->texts[i]);
    yoke_turns_end(&trainer->turns);
    yoke_free(trainer);
}

/* Answers. */

yoke_data_parallel *yoke_trainer_engine(yoke_trainer *trainer) {
    return trainer != NULL ? trainer->run.parallel : NULL;
}

const yoke_model *yoke_trainer_model(const yoke_trainer *trainer) {
    return trainer != NULL ? trainer->run.model : NULL;
}

yoke_status yoke_trainer_dataset(const yoke_trainer *trainer, yoke_split split,
                                 yoke_dataset_info *info) {
    TRY(yoke_pointer_check(trainer, "trainer"));
    const yoke_rows *rows =
        split == YOKE_SPLIT_TRAIN ? &trainer->run.training : &trainer->test.rows;
    if (rows->rows == NULL)
        return FAIL(YOKE_ERROR_ARGUMENT, "the test split is not open: evaluate_every is -1");
    return yoke_dataset_describe(rows->rows, info);
}

yoke_status yoke_trainer_progress(const yoke_trainer *trainer, yoke_progress *progress) {
    yoke_progress own;
    TRY(yoke_pointer_check(trainer, "trainer"));
    YOKE_PUBLISHED_READ(&trainer->progress, &own);
    return yoke_options_store(progress, &own, sizeof own, "yoke_progress");
}

yoke_status yoke_trainer_predictions(const yoke_trainer *trainer, yoke_predictions *predictions) {
    TRY(yoke_trainer_check_idle(trainer, "yoke_trainer_predictions"));
    if (trainer->run.options.misclassified == 0)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "this trainer keeps no predictions: set options.misclassified");
    const yoke_tally *tally = &trainer->test.predictions;
    const yoke_dataset_info *rows = &trainer->run.training.info;
    yoke_predictions own = {.struct_size = sizeof own,
                            .step = tally->step,
                            .rows = tally->rows,
                            .classes = rows->classes,
                            .counts = tally->rows > 0 ? tally->counts : NULL,
                            .misclassified = tally->worst_count,
                            .shape = rows->shape,
                            .class_names = rows->class_names};
    return yoke_options_store(predictions, &own, sizeof own, "yoke_predictions");
}

yoke_status yoke_trainer_misclassified(const yoke_trainer *trainer, int index,
                                       yoke_misclassified *misclassified) {
    TRY(yoke_trainer_check_idle(trainer, "yoke_trainer_misclassified"));
    return yoke_test_split_misclassified(&trainer->test, index, misclassified);
}
