/* SPDX-License-Identifier: Apache-2.0 */
/* The loop: epochs of batches, each batch one step; then evaluation, checkpoint and trace. */
#include "train/run.h"

#include <string.h>

#include "data/data.h"
#include "trace/trace.h"

#define ROOT_LANE 0

void yoke_trainer_emit(yoke_trainer *trainer, yoke_event *event) {
    if (trainer->options.on_event == NULL) return;
    event->struct_size = sizeof *event;
    event->step = trainer->step;
    event->steps = trainer->steps < UINT64_MAX ? trainer->steps : 0;
    event->epoch = trainer->epoch;
    if (trainer->begin_ns > 0)
        event->seconds_elapsed = (double)(yoke_now_ns() - trainer->begin_ns) * 1e-9;
    yoke_outside outside = yoke_step_out(trainer->parallel);
    trainer->options.on_event(event, trainer->options.payload);
    (void)yoke_step_in(trainer->parallel, &outside, YOKE_OK); /* the next step reports a failure */
}

void yoke_trainer_stop(yoke_trainer *trainer) {
    if (trainer != NULL) atomic_store(&trainer->stopping, true);
}

/* The run continues, or ends for another reason. */
void yoke_trainer_warn(yoke_trainer *trainer) {
    yoke_event event = {.kind = YOKE_EVENT_WARNING, .accuracy = -1, .text = yoke_last_error()};
    yoke_trainer_emit(trainer, &event);
}

static void warn_of_choices(yoke_trainer *trainer) {
    yoke_event event = {.kind = YOKE_EVENT_WARNING,
                        .accuracy = -1,
                        .text = yoke_data_parallel_choices_warning(trainer->parallel)};
    if (event.text != NULL) yoke_trainer_emit(trainer, &event);
}

static void warn_of_unreached(yoke_trainer *trainer) {
    yoke_event event = {.kind = YOKE_EVENT_WARNING,
                        .accuracy = -1,
                        .text = yoke_data_parallel_unreached(trainer->parallel)};
    if (event.text != NULL) yoke_trainer_emit(trainer, &event);
}

/* Training continues without metrics: warns once, and tries again with every line. */
static void record(yoke_trainer *trainer, yoke_event *event) {
    event->step = trainer->step;
    event->epoch = trainer->epoch;
    if (yoke_metrics_write(&trainer->metrics, event) == YOKE_OK || trainer->metrics_failed) return;
    trainer->metrics_failed = true;
    yoke_trainer_warn(trainer);
}

/* Before. */

static yoke_status prepare(yoke_trainer *trainer, size_t rows, bool training) {
    return rows == 0 ? YOKE_OK : yoke_data_parallel_prepare(trainer->parallel, (int)rows, training);
}

/* Makes the plans for every batch size now, so that no step makes one; but the last batch of a row
 * stream has a size that nobody knows. */
static yoke_status prepare_all(yoke_trainer *trainer) {
    size_t batch = (size_t)trainer->options.batch, rows = trainer->dataset.rows;
    TRY(prepare(trainer, batch, true));
    if (trainer->steps >= yoke_loader_batches(trainer->loader) && !trainer->options.drop_last)
        TRY(prepare(trainer, rows % batch, true));
    if (trainer->test_loader == NULL) return YOKE_OK;
    size_t test_rows = trainer->test_dataset.rows;
    if (test_rows >= batch || test_rows == 0) TRY(prepare(trainer, batch, false));
    return prepare(trainer, test_rows % batch, false);
}

yoke_status yoke_trainer_begin(yoke_trainer *trainer, bool saves) {
    TRY(prepare_all(trainer));
    if (saves) TRY(yoke_trainer_prepare_save(trainer));
    TRY(yoke_room_check());
    trainer->begin_ns = yoke_now_ns();
    trainer->running = true;
    yoke_trainer_publish(trainer);
    warn_of_choices(trainer);
    yoke_event ready = {.kind = YOKE_EVENT_READY, .accuracy = -1};
    yoke_trainer_emit(trainer, &ready);
    return YOKE_OK;
}

/* A step. */

/* Whether the loader is at the end of the epoch. A batch with rows = 0 may be one whose rows other
 * ranks have. */
static bool epoch_is_over(const yoke_batch *batch) {
    return batch->rows == 0 && batch->whole_rows == 0;
}

/* The other ranks do not know of an error of this rank's rows or metrics, whatever its status. */
static yoke_status end_ranks_on(const yoke_trainer *trainer, yoke_status status) {
    return yoke_process_group_abort(trainer->ranks, status);
}

static yoke_status serve_requests(yoke_trainer *trainer) {
    yoke_requests asked;
    char steps[32];
    yoke_trainer_collect_saves(trainer);
    TRY(yoke_trainer_poll(trainer, &asked));
    if (asked.save) TRY(yoke_trainer_begin_save(trainer));
    if (!asked.stop) return YOKE_OK;
    return FAIL(YOKE_ERROR_CANCELLED, "stopped after step %llu%s",
                (unsigned long long)trainer->step, yoke_trainer_of_steps(trainer, steps));
}

/* A stop ends the wait for large pictures. A rank that left the others in their step would take
 * their result along: ranks wait for the batch, and agree on the stop after it. */
void yoke_trainer_stop_loader(const yoke_trainer *trainer, yoke_loader *loader) {
    if (trainer->ranks == NULL) yoke_loader_stop_on(loader, &trainer->stopping);
}

yoke_status yoke_trainer_next_batch(yoke_trainer *trainer, yoke_batch *batch, uint64_t *waited_ns) {
    yoke_trace *trace = yoke_data_parallel_recorder(trainer->parallel);
    uint64_t begin = yoke_trace_now();
    *waited_ns = 0;
    yoke_status status = yoke_loader_next(trainer->loader, batch, waited_ns);
    bool alone = trainer->ranks == NULL; /* ranks agree on a stop after the step */
    if (status == YOKE_ERROR_CANCELLED && alone) TRY(serve_requests(trainer));
    TRY(end_ranks_on(trainer, status));
    TRY(yoke_trainer_agree(trainer, &trainer->dataset, trainer->loader, batch));
    if (!epoch_is_over(batch))
        yoke_trace_span(trace, ROOT_LANE, YOKE_STAGE_LOAD,
                        yoke_data_parallel_steps(trainer->parallel), begin, 0);
    return YOKE_OK;
}

yoke_status yoke_trainer_update(yoke_trainer *trainer, const yoke_batch *batch, double rate,
                                yoke_step_result *result) {
    uint64_t before = yoke_data_parallel_steps(trainer->parallel);
    yoke_status status =
        trainer->own_loss.compute != NULL
            ? yoke_data_parallel_step_own(trainer->parallel, batch, rate, &trainer->own_loss,
                                          &trainer->host_rows, result)
            : yoke_data_parallel_step(trainer->parallel, batch, rate, result);
    if (status == YOKE_OK || status == YOKE_ERROR_NUMERIC) return status;
    trainer->in_step = !yoke_data_parallel_is_whole(trainer->parallel);
    trainer->step += yoke_data_parallel_steps(trainer->parallel) - before; /* without a result */
    return status;
}

static yoke_status take_step(yoke_trainer *trainer, const yoke_batch *batch, uint64_t waited_ns) {
    double rate = yoke_learning_rate(&trainer->schedule, trainer->step);
    yoke_step_result result = {.struct_size = sizeof result};
    uint64_t begin = yoke_now_ns();
    TRY(yoke_trainer_update(trainer, batch, rate, &result));
    uint64_t computed_ns = yoke_now_ns() - begin;
    double step_ms = (double)(computed_ns + waited_ns) * 1e-6;
    bool is_first = trainer->last_step.rows == 0;
    trainer->step++;
    trainer->batches++;
    trainer->last_step = result;
    trainer->computed_ns += computed_ns;
    trainer->waited_ns += waited_ns;
    if (result.rows == trainer->options.batch) yoke_step_times_add(&trainer->times, step_ms);
    yoke_trainer_publish(trainer);
    yoke_course_add(&trainer->course, result.loss);
    yoke_epoch_add(&trainer->sums, &result, rate, computed_ns + waited_ns);
    yoke_event event = {.kind = YOKE_EVENT_STEP,
                        .loss = result.loss,
                        .accuracy = yoke_trainer_accuracy(&result),
                        .learning_rate = rate,
                        .rows = result.rows,
                        .step_ms = step_ms};
    record(trainer, &event);
    yoke_trainer_emit(trainer, &event);
    if (is_first) warn_of_unreached(trainer);
    return YOKE_OK;
}

/* The loop. */

/* An epoch of a row stream may be empty: without steps the run would never end. */
yoke_status yoke_trainer_check_epoch(const yoke_trainer *trainer) {
    bool drops = trainer->options.drop_last;
    if (trainer->batches > 0) return YOKE_OK;
    return FAIL(YOKE_ERROR_DATA, "the row stream gave no %s in epoch %llu",
                drops ? "whole batch, and drop_last leaves out a short one," : "row",
                (unsigned long long)trainer->epoch + 1);
}

/* A stopped or resumed run continues behind the batches of this epoch that it has trained on. */
static yoke_status run_epoch(yoke_trainer *trainer) {
    TRY(yoke_loader_begin_at(trainer->loader, trainer->epoch, (size_t)trainer->batches));
    while (trainer->step < trainer->steps) {
        yoke_batch batch = {.struct_size = sizeof batch};
        uint64_t waited_ns;
        TRY(serve_requests(trainer));
        TRY(yoke_trainer_next_batch(trainer, &batch, &waited_ns));
        if (epoch_is_over(&batch)) return yoke_trainer_check_epoch(trainer);
        TRY(take_step(trainer, &batch, waited_ns));
    }
    return YOKE_OK; /* a stop after the last step has no effect */
}

/* Evaluation: one pass over the test split, every row once, in order; the last batch may be
 * short. */

static yoke_status open_test_rows(yoke_trainer *trainer) {
    const yoke_trainer_options *options = &trainer->options;
    trainer->test_rows = options->test_rows != NULL ? options->test_rows : trainer->opened[1];
    if (trainer->test_rows != NULL) return YOKE_OK;
    if (options->training_rows != NULL)
        return FAIL(YOKE_ERROR_ARGUMENT, "no rows to evaluate on: test_rows is NULL");
    TRY(yoke_trainer_open_split(trainer, YOKE_SPLIT_TEST));
    trainer->test_rows = trainer->opened[1];
    return YOKE_OK;
}

/* Rows of the host program may differ. */
static yoke_status check_test_rows(const yoke_dataset_info *training,
                                   const yoke_dataset_info *test) {
    const yoke_shape *one = &training->shape, *other = &test->shape;
    if (one->channels == other->channels && one->height == other->height &&
        one->width == other->width && one->flat == other->flat &&
        one->sequence == other->sequence && training->label_count == test->label_count &&
        training->classes == test->classes && training->target_count == test->target_count)
        return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "test_rows are %dx%dx%d with %d classes and %d targets, training_rows %dx%dx%d "
                "with %d and %d: they must be alike",
                other->channels, other->height, other->width, test->classes, test->target_count,
                one->channels, one->height, one->width, training->classes, training->target_count);
}

yoke_status yoke_trainer_open_test(yoke_trainer *trainer) {
    const yoke_trainer_options *options = &trainer->options;
    if (trainer->test_loader != NULL) return YOKE_OK;
    TRY(open_test_rows(trainer));
    trainer->test_dataset.struct_size = sizeof trainer->test_dataset;
    TRY(yoke_dataset_describe(trainer->test_rows, &trainer->test_dataset));
    TRY(check_test_rows(&trainer->dataset, &trainer->test_dataset));
    yoke_loader_options loader = {.struct_size = sizeof loader,
                                  .batch = options->batch,
                                  .seed = options->seed,
                                  .threads = options->loader_threads,
                                  .devices = trainer->devices};
    yoke_trainer_set_shard(trainer, &loader);
    TRY(yoke_loader_create(&trainer->test_loader, trainer->test_rows, &loader));
    yoke_trainer_stop_loader(trainer, trainer->test_loader);
    return yoke_trainer_open_tallies(trainer);
}

double yoke_trainer_accuracy(const yoke_step_result *result) {
    if (result->correct < 0 || result->labels == 0) return -1;
    return (double)result->correct / result->labels;
}

/* The host program's metrics. */
static yoke_status add_to_metrics(yoke_trainer *trainer, const yoke_outputs *rows) {
    if (trainer->own_metrics.count == 0) return YOKE_OK;
    yoke_outside outside = yoke_step_out(trainer->parallel);
    yoke_status status = yoke_own_metrics_add(&trainer->own_metrics, rows);
    return yoke_step_in(trainer->parallel, &outside, status);
}

static yoke_status end_metrics(yoke_trainer *trainer) {
    if (trainer->own_metrics.count == 0) return YOKE_OK;
    yoke_outside outside = yoke_step_out(trainer->parallel);
    yoke_status status = yoke_own_metrics_end(&trainer->own_metrics, trainer->ranks);
    return yoke_step_in(trainer->parallel, &outside, status);
}

/* One batch of the test split. */
static yoke_status evaluate_batch(yoke_trainer *trainer, const yoke_batch *batch,
                                  yoke_step_result *sum) {
    yoke_step_result result = {.struct_size = sizeof result};
    const yoke_output_rows *host = &trainer->host_rows;
    bool own = trainer->own_loss.compute != NULL;
    TRY(yoke_data_parallel_evaluate_outputs(trainer->parallel, batch, &result, host,
                                            own ? &trainer->own_loss : NULL));
    yoke_outputs rows = {.struct_size = sizeof rows,
                         .batch = batch,
                         .count = own ? yoke_model_output_count(trainer->model) : 1,
                         .outputs = (const float *const *)host->outputs};
    TRY(end_ranks_on(trainer, add_to_metrics(trainer, &rows)));
    yoke_tally_add(&trainer->tally,
                   &(yoke_tally_rows){batch, host->outputs[0], trainer->model, (size_t)sum->rows});
    sum->loss += result.loss * result.weight; /* a sum over rows until all are added */
    sum->rows += result.rows;
    sum->weight += result.weight;
    sum->labels += result.labels;
    sum->correct = result.correct < 0 ? -1 : sum->correct + result.correct;
    return YOKE_OK;
}

static yoke_status sum_batches(yoke_trainer *trainer, yoke_step_result *sum) {
    yoke_batch batch = {.struct_size = sizeof batch};
    TRY(yoke_loader_begin(trainer->test_loader, 0));
    for (;;) {
        TRY(end_ranks_on(trainer, yoke_loader_next(trainer->test_loader, &batch, NULL)));
        TRY(yoke_trainer_agree(trainer, &trainer->test_dataset, trainer->test_loader, &batch));
        yoke_requests asked;
        if (epoch_is_over(&batch) && sum->rows == 0)
            return FAIL(YOKE_ERROR_DATA, "the row stream gave no row to evaluate on");
        if (epoch_is_over(&batch)) return YOKE_OK;
        TRY(yoke_trainer_poll(trainer, &asked));
        if (asked.stop)
            return FAIL(YOKE_ERROR_CANCELLED, "stopped during evaluation, after %d rows",
                        sum->rows);
        TRY(evaluate_batch(trainer, &batch, sum));
    }
}

static yoke_status evaluate_rows(yoke_trainer *trainer, yoke_step_result *result) {
    yoke_step_result sum = {.struct_size = sizeof sum, .gradient_norm = -1};
    TRY(yoke_trainer_open_test(trainer));
    yoke_tally_begin(&trainer->tally, trainer->step);
    yoke_own_metrics_begin(&trainer->own_metrics);
    TRY(sum_batches(trainer, &sum));
    TRY(yoke_trainer_end_tally(trainer));
    TRY(end_metrics(trainer));
    sum.loss /= sum.weight > 0 ? sum.weight : 1;
    trainer->last_evaluation = sum;
    yoke_trainer_publish(trainer);
    return yoke_options_store(result, &sum, sizeof sum, "yoke_step_result");
}

yoke_status yoke_trainer_evaluate(yoke_trainer *trainer, yoke_step_result *result) {
    TRY(yoke_trainer_check(trainer));
    if (yoke_trainer_is_mine(trainer)) return evaluate_rows(trainer, result);
    TRY(yoke_trainer_begin_work(trainer, "yoke_trainer_evaluate"));
    yoke_status status = evaluate_rows(trainer, result);
    yoke_trainer_end_work(trainer);
    return status;
}

static yoke_status evaluate(yoke_trainer *trainer) {
    yoke_step_result result = {.struct_size = sizeof result};
    TRY(evaluate_rows(trainer, &result));
    yoke_event event = {.kind = YOKE_EVENT_EVALUATION,
                        .loss = result.loss,
                        .accuracy = yoke_trainer_accuracy(&result),
                        .rows = result.rows,
                        .metrics = trainer->own_metrics.values,
                        .metric_count = trainer->own_metrics.count};
    record(trainer, &event);
    yoke_trainer_emit(trainer, &event);
    return YOKE_OK;
}

static bool epoch_is_done(const yoke_trainer *trainer) {
    return trainer->batches >= yoke_loader_batches(trainer->loader);
}

static bool evaluation_is_due(const yoke_trainer *trainer) {
    int every = trainer->options.evaluate_every;
    if (every < 0) return false;
    if (trainer->step >= trainer->steps) return true;
    if (trainer->epoch + epoch_is_done(trainer) >= trainer->epochs) return true;
    return every > 0 && (trainer->epoch + 1) % (uint64_t)every == 0;
}

bool yoke_trainer_evaluates_first(const yoke_trainer *trainer) {
    return (yoke_trainer_is_over(trainer) || epoch_is_done(trainer)) && evaluation_is_due(trainer);
}

static yoke_status evaluate_and_keep(yoke_trainer *trainer) {
    bool averages = trainer->engine.ema_decay > 0;
    if (averages) TRY(yoke_data_parallel_use_average(trainer->parallel, true));
    yoke_status status = evaluate(trainer);
    if (status == YOKE_OK) status = yoke_watch_evaluation(trainer);
    yoke_error error = yoke_error_take(status);
    if (averages) TRY(yoke_data_parallel_use_average(trainer->parallel, false));
    TRY(yoke_error_restore(&error));
    return yoke_trainer_save_best(trainer);
}

static void end_epoch(yoke_trainer *trainer) {
    if (!epoch_is_done(trainer)) return;
    trainer->epoch++;
    trainer->batches = 0;
}

/* A run that was complete only evaluates, at the end of its last epoch. Of a row stream nobody
 * knows how many batches that had: SIZE_MAX. */
static yoke_status evaluate_again(yoke_trainer *trainer) {
    if (trainer->options.evaluate_every < 0) return YOKE_OK;
    if (trainer->batches == 0 && trainer->epoch > 0) {
        trainer->epoch--;
        trainer->batches = yoke_loader_batches(trainer->loader);
    }
    TRY(evaluate_and_keep(trainer));
    yoke_trainer_report_epoch(trainer, true);
    end_epoch(trainer);
    return YOKE_OK;
}

static yoke_status train(yoke_trainer *trainer) {
    bool was_complete = trainer->checkpoints.resumed && yoke_trainer_is_over(trainer);
    if (was_complete) return evaluate_again(trainer);
    while (!yoke_trainer_is_over(trainer) && !yoke_watch_is_over(trainer)) {
        TRY(run_epoch(trainer));
        bool evaluates = evaluation_is_due(trainer);
        if (evaluates) TRY(evaluate_and_keep(trainer));
        yoke_trainer_report_epoch(trainer, evaluates);
        end_epoch(trainer);
    }
    return YOKE_OK;
}

/* After. */

void yoke_trainer_emit_saved(yoke_trainer *trainer, const char *path) {
    yoke_event event = {.kind = YOKE_EVENT_SAVED, .accuracy = -1, .text = path};
    yoke_trainer_emit(trainer, &event);
}

/* The run returns its first failure and reports later ones as warnings. A stop is no failure. */
static void add_failure(yoke_trainer *trainer, yoke_error *first, yoke_status later) {
    if (later == YOKE_OK) return;
    if (first->status == YOKE_OK || first->status == YOKE_ERROR_CANCELLED)
        *first = yoke_error_take(later);
    else
        yoke_trainer_warn(trainer);
}

/* Results that all ranks reach after the same step. A launcher ends the other ranks when one exits
 * with a failure, so these ranks wait for each other. */
bool yoke_trainer_is_common(yoke_status status) {
    return status == YOKE_OK || status == YOKE_ERROR_CANCELLED || status == YOKE_ERROR_NUMERIC;
}

/* GPUs may find after the last step's answer that its gradient was not finite. The steps that they
 * have undone do not count. */
static bool settle(yoke_trainer *trainer, yoke_error *first) {
    yoke_status late = trainer->in_step ? YOKE_OK : yoke_data_parallel_settle(trainer->parallel);
    bool is_numeric = late == YOKE_ERROR_NUMERIC || first->status == YOKE_ERROR_NUMERIC;
    add_failure(trainer, first, late);
    if (is_numeric) trainer->step = yoke_data_parallel_steps(trainer->parallel);
    return !is_numeric;
}

/* What the file has after a failure. A user of patience who stops the run wants the best weights,
 * too. */
static void say_saved(const yoke_trainer *trainer, const char *path, yoke_error *first) {
    size_t used = strlen(first->text);
    char *end = first->text + used;
    if (trainer->in_step)
        snprintf(end, sizeof first->text - used,
                 "; in the middle of an update the weights are those of no step: %s is not written",
                 path);
    else if (trainer->watch.has_best)
        snprintf(end, sizeof first->text - used,
                 "; %s has the weights of epoch %llu, the best evaluation", path,
                 (unsigned long long)trainer->watch.best_epoch + 1);
    else if (!yoke_trainer_is_common(first->status))
        snprintf(end, sizeof first->text - used, "; %s has the weights after step %llu", path,
                 (unsigned long long)trainer->step);
}

/* Before the first step there is nothing to keep; an older file may have something. */
static bool has_trained(const yoke_trainer *trainer, yoke_status status) {
    return trainer->step > 0 || status == YOKE_OK || status == YOKE_ERROR_NUMERIC;
}

/* Says what became of the weights in the error that ended the run. */
static yoke_status save_last(yoke_trainer *trainer, bool together, yoke_error *first) {
    char beside[PATH_MAX];
    bool says = first->status != YOKE_OK && trainer->options.save != NULL;
    if (!has_trained(trainer, first->status)) return YOKE_OK;
    bool writes = yoke_trainer_writes(trainer) && trainer->options.save != NULL;
    const char *path = writes && !trainer->in_step
                           ? yoke_trainer_save_place(trainer, first->status, beside)
                           : trainer->options.save;
    if (!trainer->in_step) TRY(yoke_trainer_save(trainer, path, together));
    if (says && writes) say_saved(trainer, path, first);
    return yoke_trainer_report_place(trainer, path, first);
}

/* Waits for the checkpoint in progress. Writes the last one, unless a loss or gradient is not
 * finite: the step that failed would be the next one of a resumed run. Saves the weights after the
 * last step, after a stop, after a failure of the data or of another rank, and after a loss or
 * gradient that is not finite, from which no weight was updated. */
static yoke_status finish(yoke_trainer *trainer, yoke_status status) {
    yoke_error first = yoke_error_take(status);
    bool is_finite = settle(trainer, &first);
    bool together = trainer->ranks == NULL || yoke_trainer_is_common(first.status);
    if (!trainer->in_step && together)
        add_failure(trainer, &first, yoke_trainer_end_saves(trainer, is_finite));
    bool ends_with_best = first.status == YOKE_OK && trainer->watch.has_best;
    if (ends_with_best) add_failure(trainer, &first, yoke_watch_end(trainer));
    add_failure(trainer, &first, save_last(trainer, together, &first));
    add_failure(trainer, &first, yoke_trainer_write_trace(trainer, together));
    /* No rank returns before rank 0 has written the files. */
    if (yoke_trainer_is_common(first.status) && trainer->ranks != NULL)
        add_failure(trainer, &first, yoke_process_group_barrier(trainer->ranks));
    if (!yoke_trainer_is_common(first.status)) {
        (void)yoke_error_restore(&first);
        (void)yoke_process_group_abort(trainer->ranks, first.status);
    }
    return yoke_error_restore(&first);
}

static yoke_status run(yoke_trainer *trainer) {
    TRY(end_ranks_on(trainer, yoke_trainer_begin(trainer, true)));
    return finish(trainer, train(trainer));
}

yoke_status yoke_trainer_run(yoke_trainer *trainer) {
    TRY(yoke_trainer_begin_work(trainer, "yoke_trainer_run"));
    yoke_status status = run(trainer);
    atomic_store(&trainer->stopping, false); /* the stop was seen, or came too late */
    trainer->running = false;
    yoke_trainer_publish(trainer);
    yoke_trainer_end_work(trainer);
    return status;
}
