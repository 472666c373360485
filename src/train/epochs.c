/* SPDX-License-Identifier: Apache-2.0 */
/* The loop: what a run does before its first step, for each batch, and at the end of an epoch.
 * run_epoch and end_epoch read as the lists of their stages. */
#include "train/epochs.h"

#include <math.h>

#include "trace/trace.h"
#include "train/finish.h"
#include "train/last_weights.h"
#include "train/rank_shares.h"
#include "train/rank_survival.h"
#include "train/record.h"
#include "train/run_thread.h"
#include "train/trainer_parts.h"
#include "train/unknown_length.h"

#define ROOT_LANE 0

void yoke_trainer_stop(yoke_trainer *trainer) {
    if (trainer != NULL) atomic_store(&trainer->run.stopping, true);
}

/* Before. */

static yoke_status prepare(const yoke_run *run, size_t rows, bool training) {
    return rows == 0 ? YOKE_OK : yoke_data_parallel_prepare(run->parallel, (int)rows, training);
}

/* Makes the plans for every batch size now, so that no step makes one. Only the last batch of a row
 * stream has an unknown size. */
static yoke_status prepare_all(const yoke_run *run, const yoke_rows *test) {
    size_t batch = (size_t)run->options.batch, rows = run->training.info.rows;
    TRY(prepare(run, batch, true));
    if (run->at.steps >= yoke_loader_batch_count(run->training.loader) && !run->options.drop_last)
        TRY(prepare(run, rows % batch, true));
    if (test->loader == NULL) return YOKE_OK;
    if (test->info.rows >= batch || test->info.rows == 0) TRY(prepare(run, batch, false));
    return prepare(run, test->info.rows % batch, false);
}

yoke_status yoke_trainer_begin(yoke_trainer *trainer, bool saves) {
    yoke_run *run = &trainer->run;
    TRY(prepare_all(run, &trainer->test.rows));
    if (saves) TRY(yoke_last_weights_prepare(&trainer->last_weights, run));
    TRY(yoke_room_check());
    run->begin_ns = yoke_now_ns();
    trainer->running = true;
    yoke_trainer_publish(trainer);
    yoke_run_say(run, YOKE_EVENT_WARNING, yoke_data_parallel_algorithms_warning(run->parallel));
    yoke_event ready = {.kind = YOKE_EVENT_READY, .accuracy = -1};
    yoke_run_emit(run, &ready);
    return YOKE_OK;
}

/* The stages of a step. */

/* Begins a checkpoint that is due on rank 0. CANCELLED: the caller stops a rank. */
static yoke_status save_or_stop(yoke_trainer *trainer) {
    yoke_run *run = &trainer->run;
    yoke_requests asked = {.save = false};
    char steps[32];
    yoke_saving_collect(&trainer->saving, run);
    asked.save = yoke_saving_is_due(&trainer->saving, run);
    asked.keep = yoke_survival_is_due(&trainer->survival);
    asked.grow = trainer->survival.kept[0].state != NULL && yoke_process_group_is_asked(run->ranks);
    TRY(yoke_run_poll(run, &asked));
    if (asked.save) TRY(yoke_saving_begin(&trainer->saving, run));
    if (asked.keep || asked.grow) TRY(yoke_survival_keep(trainer));
    if (asked.grow && !asked.stop) return yoke_ranks_admit(trainer);
    if (!asked.stop) return YOKE_OK;
    return FAIL(YOKE_ERROR_CANCELLED, "stopped after step %llu%s", (unsigned long long)run->at.step,
                yoke_run_of_steps(run, steps));
}

yoke_status yoke_trainer_load(yoke_trainer *trainer, yoke_loop_step *step) {
    yoke_run *run = &trainer->run;
    yoke_trace *trace = yoke_data_parallel_recorder(run->parallel);
    uint64_t begin = yoke_trace_now();
    *step = (yoke_loop_step){.batch.struct_size = sizeof step->batch};
    yoke_status status = yoke_loader_next(run->training.loader, &step->batch, &step->waited_ns);
    bool alone = run->ranks == NULL; /* ranks agree on a stop after the step */
    if (status == YOKE_ERROR_CANCELLED && alone) TRY(save_or_stop(trainer));
    /* The other ranks do not know of an error of this rank's rows, whatever its status. */
    TRY(yoke_process_group_abort(run->ranks, status));
    TRY(yoke_run_compare_streams(run, &run->training, &step->batch));
    /* A batch with rows = 0 may be one whose rows other ranks have. */
    step->is_end = step->batch.rows == 0 && step->batch.whole_rows == 0;
    if (step->is_end && run->at.batches > 0) return YOKE_OK;
    if (step->is_end) /* an empty epoch of a row stream: without steps the run would never end */
        return FAIL(YOKE_ERROR_DATA, "the row stream gave no %s in epoch %llu",
                    run->options.drop_last ? "whole batch, and drop_last leaves out a short one,"
                                           : "row",
                    (unsigned long long)run->at.epoch + 1);
    yoke_trace_span(trace, ROOT_LANE, YOKE_STAGE_LOAD, yoke_data_parallel_steps(run->parallel),
                    begin, 0);
    return YOKE_OK;
}

yoke_status yoke_trainer_update(yoke_trainer *trainer, yoke_loop_step *step) {
    yoke_run *run = &trainer->run;
    const yoke_custom_loss *loss = run->options.custom_loss;
    uint64_t before = yoke_data_parallel_steps(run->parallel), begin = yoke_now_ns();
    step->result.struct_size = sizeof step->result;
    yoke_status status =
        loss != NULL
            ? yoke_data_parallel_step_own(run->parallel, &step->batch, step->rate, loss,
                                          &trainer->parts.outputs, &step->result)
            : yoke_data_parallel_step(run->parallel, &step->batch, step->rate, &step->result);
    step->computed_ns = yoke_now_ns() - begin;
    if (status == YOKE_OK) {
        run->at.step++;
        run->at.batches++;
    } else if (status != YOKE_ERROR_NUMERIC) {
        run->in_step = !yoke_data_parallel_is_whole(run->parallel);
        run->at.step += yoke_data_parallel_steps(run->parallel) - before; /* without a result */
    }
    return status;
}

yoke_event yoke_loop_step_event(const yoke_loop_step *step) {
    return (yoke_event){.kind = YOKE_EVENT_STEP,
                        .loss = step->result.loss,
                        .accuracy = yoke_step_accuracy(&step->result),
                        .learning_rate = step->rate,
                        .rows = step->result.rows,
                        .step_ms = (double)(step->computed_ns + step->waited_ns) * 1e-6};
}

static void report_step(yoke_trainer *trainer, const yoke_loop_step *step) {
    yoke_event event = yoke_loop_step_event(step);
    bool is_dynamic;
    yoke_scale_state scale = yoke_data_parallel_scale(trainer->run.parallel, &is_dynamic);
    event.loss_scale = is_dynamic ? scale.scale : 0;
    event.skipped_steps = scale.skipped;
    bool is_first = trainer->sums.last.rows == 0;
    yoke_step_sums_add(&trainer->sums, &step->result, step->rate,
                       (yoke_step_cost){step->computed_ns, step->waited_ns});
    if (step->result.rows == trainer->run.options.batch)
        yoke_step_times_add(&trainer->sums.times, event.step_ms);
    yoke_loss_trend_add(&trainer->trend, step->result.loss);
    if (yoke_survival_repeats(&trainer->survival, trainer->run.at.step)) return;
    yoke_trainer_publish(trainer);
    yoke_trainer_record(trainer, &event);
    if (is_first)
        yoke_run_say(&trainer->run, YOKE_EVENT_WARNING,
                     yoke_data_parallel_unreached(trainer->run.parallel));
}

/* The stages at the end of an epoch. */

static yoke_status evaluate_and_report(yoke_trainer *trainer) {
    const yoke_custom_metrics *metrics = &trainer->parts.metrics;
    const yoke_step_result *result = &trainer->test.last;
    bool better;
    TRY(yoke_test_split_evaluate(&trainer->test, &trainer->run, &trainer->parts));
    yoke_trainer_publish(trainer);
    yoke_event event = {.kind = YOKE_EVENT_EVALUATION,
                        .loss = result->loss,
                        .accuracy = yoke_step_accuracy(result),
                        .rows = result->rows,
                        .metrics = metrics->values,
                        .metric_count = metrics->count};
    if (!yoke_survival_repeats_evaluation(&trainer->survival, trainer->run.at.step))
        yoke_trainer_record(trainer, &event);
    yoke_watch_add(&trainer->watch, &trainer->run, result, &better);
    return better ? yoke_saving_keep_best(&trainer->saving, &trainer->run) : YOKE_OK;
}

/* Evaluates the average of the weights, if the run has one, and saves the best. */
static yoke_status evaluate_and_save(yoke_trainer *trainer) {
    yoke_run *run = &trainer->run;
    bool averages = run->engine.ema_decay > 0;
    if (averages) TRY(yoke_data_parallel_use_average(run->parallel, true));
    yoke_error error = yoke_error_take(evaluate_and_report(trainer));
    if (averages) TRY(yoke_data_parallel_use_average(run->parallel, false));
    TRY(yoke_error_restore(&error));
    return yoke_saving_add(&trainer->saving, run, &trainer->test.last);
}

static void report_epoch(yoke_trainer *trainer, bool evaluated) {
    yoke_epoch_sums *epoch = &trainer->sums.epoch;
    const yoke_step_result *test = &trainer->test.last;
    if (epoch->is_over) *epoch = (yoke_epoch_sums){0}; /* the run took no step in this epoch */
    yoke_event event = {.kind = YOKE_EVENT_EPOCH,
                        .loss = yoke_epoch_loss(epoch),
                        .accuracy = yoke_epoch_accuracy(epoch),
                        .learning_rate = epoch->learning_rate,
                        .rows = (int)epoch->rows,
                        .test_loss = evaluated ? test->loss : (double)NAN,
                        .test_accuracy = evaluated ? yoke_step_accuracy(test) : -1};
    if (epoch->ns > 0) event.images_per_second = 1e9 * (double)epoch->rows / (double)epoch->ns;
    epoch->is_over = true;
    if (!yoke_survival_repeats_epoch(&trainer->survival, trainer->run.at.epoch))
        yoke_run_emit(&trainer->run, &event);
}

static yoke_status end_epoch(yoke_trainer *trainer) {
    yoke_run *run = &trainer->run;
    bool evaluates = yoke_run_evaluation_is_due(run);
    if (trainer->steps->settle != NULL) TRY(trainer->steps->settle(trainer));
    if (evaluates) TRY(evaluate_and_save(trainer));
    report_epoch(trainer, evaluates);
    if (yoke_run_epoch_is_done(run)) {
        run->at.epoch++;
        run->at.batches = 0;
    }
    return evaluates ? yoke_survival_keep(trainer) : YOKE_OK;
}

/* The loop. */

/* A run that was stopped, resumed or resized continues behind the batches of this epoch that it has
 * trained on. A stop after the last step has no effect. */
static yoke_status run_epoch(yoke_trainer *trainer) {
    yoke_run *run = &trainer->run;
    TRY(yoke_loader_begin_at(run->training.loader, run->at.epoch, (size_t)run->at.batches));
    while (run->at.step < run->at.steps) {
        yoke_loop_step step;
        if (yoke_resize_is_asked(&trainer->resize)) return yoke_resize_run(trainer);
        bool dealt = false;
        if (yoke_rank_shares_are_due(run)) TRY(yoke_rank_shares_compare(trainer, &dealt));
        if (dealt) return YOKE_OK;
        TRY(save_or_stop(trainer));
        TRY(trainer->steps->load(trainer, &step));
        if (step.is_end) break;
        step.rate = yoke_lr_schedule_rate(&run->schedule, run->at.step);
        TRY(trainer->steps->update(trainer, &step));
        report_step(trainer, &step);
    }
    return end_epoch(trainer);
}

/* A run that was complete only evaluates, at the end of its last epoch. How many batches that had
 * is unknown for a row stream: SIZE_MAX. */
static yoke_status evaluate_again(yoke_trainer *trainer) {
    yoke_position *at = &trainer->run.at;
    if (trainer->run.options.evaluate_every < 0) return YOKE_OK;
    if (at->batches == 0 && at->epoch > 0) {
        at->epoch--;
        at->batches = yoke_loader_batch_count(trainer->run.training.loader);
    }
    return end_epoch(trainer);
}

static yoke_status take_steps(yoke_trainer *trainer) {
    const yoke_run *run = &trainer->run;
    if (trainer->survival.newest < 0) TRY(yoke_survival_keep(trainer)); /* no newcomer */
    while (!yoke_run_is_over(run) && !yoke_watch_is_over(&trainer->watch, run))
        TRY(yoke_survive(trainer, run_epoch(trainer)));
    return YOKE_OK;
}

static yoke_status train(yoke_trainer *trainer) {
    bool was_complete = trainer->saving.resumed && yoke_run_is_over(&trainer->run);
    if (was_complete) return evaluate_again(trainer);
    yoke_status status = take_steps(trainer);
    if (trainer->steps->rest != NULL) trainer->steps->rest(trainer);
    return status;
}

void yoke_trainer_end(yoke_trainer *trainer) {
    atomic_store(&trainer->run.stopping, false); /* the stop was seen, or came too late */
    trainer->running = false;
    yoke_trainer_publish(trainer);
    yoke_trainer_end_work(trainer);
}

/* A rank may be lost while the ranks finish, too: the others then finish again. */
static yoke_status train_and_finish(yoke_trainer *trainer) {
    for (;;) {
        yoke_status trained = yoke_run_on_thread(trainer, train);
        yoke_status finished = yoke_trainer_finish(trainer, trained);
        bool others_failed = yoke_status_is_common(trained) && !yoke_status_is_common(finished);
        if (!others_failed || trainer->run.ranks == NULL) return finished;
        TRY(yoke_survive(trainer, finished));
    }
}

yoke_status yoke_trainer_run(yoke_trainer *trainer) {
    TRY(yoke_trainer_begin_work(trainer, "yoke_trainer_run"));
    yoke_status status =
        yoke_process_group_abort(trainer->run.ranks, yoke_trainer_begin(trainer, true));
    if (status == YOKE_OK) status = train_and_finish(trainer);
    yoke_trainer_end(trainer);
    return status;
}

static yoke_status evaluate_test_rows(yoke_trainer *trainer, yoke_step_result *result) {
    TRY(yoke_test_split_evaluate(&trainer->test, &trainer->run, &trainer->parts));
    yoke_trainer_publish(trainer);
    return yoke_options_store(result, &trainer->test.last, sizeof trainer->test.last,
                              "yoke_step_result");
}

yoke_status yoke_trainer_evaluate(yoke_trainer *trainer, yoke_step_result *result) {
    TRY(yoke_trainer_check(trainer));
    if (yoke_turns_are_mine(&trainer->turns)) return evaluate_test_rows(trainer, result);
    TRY(yoke_trainer_begin_work(trainer, "yoke_trainer_evaluate"));
    yoke_status status = evaluate_test_rows(trainer, result);
    yoke_trainer_end_work(trainer);
    return status;
}
