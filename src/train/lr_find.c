/* SPDX-License-Identifier: Apache-2.0 */
/* A range test by a trainer: steps at growing rates, after which it is as before. */
#include <stdio.h>

#include "data/data.h"
#include "parallel/parallel.h"
#include "train/lr_curve.h"
#include "train/run.h"
#include "yoke/lr_find.h"

/* What the steps change besides the engine. */
typedef struct counters {
    uint64_t step, steps, epoch, batches, begin_ns;
} counters;

static counters counters_of(const yoke_trainer *trainer) {
    return (counters){trainer->step, trainer->steps, trainer->epoch, trainer->batches,
                      trainer->begin_ns};
}

static void restore_counters(yoke_trainer *trainer, const counters *before) {
    trainer->step = before->step;
    trainer->steps = before->steps;
    trainer->epoch = before->epoch;
    trainer->batches = before->batches;
    trainer->begin_ns = before->begin_ns;
}

static yoke_status take_point(yoke_trainer *trainer, const yoke_batch *batch, uint64_t waited_ns) {
    yoke_lr_curve *curve = &trainer->lr_curve;
    double rate = yoke_lr_curve_rate(curve);
    yoke_step_result result = {.struct_size = sizeof result};
    uint64_t begin = yoke_now_ns();
    TRY(yoke_trainer_update(trainer, batch, rate, &result));
    trainer->step++;
    trainer->batches++;
    yoke_lr_curve_add(curve, result.loss);
    yoke_event event = {.kind = YOKE_EVENT_STEP,
                        .loss = result.loss,
                        .accuracy = yoke_trainer_accuracy(&result),
                        .learning_rate = rate,
                        .rows = result.rows,
                        .step_ms = (double)(yoke_now_ns() - begin + waited_ns) * 1e-6};
    yoke_trainer_emit(trainer, &event);
    return YOKE_OK;
}

static yoke_status take_points(yoke_trainer *trainer) {
    const yoke_lr_curve *curve = &trainer->lr_curve;
    TRY(yoke_loader_begin_at(trainer->loader, trainer->epoch, (size_t)trainer->batches));
    while (trainer->step < trainer->steps && !curve->diverged) {
        yoke_batch batch = {.struct_size = sizeof batch};
        yoke_requests asked;
        uint64_t waited_ns;
        TRY(yoke_trainer_poll(trainer, &asked));
        if (asked.stop)
            return FAIL(YOKE_ERROR_CANCELLED, "stopped after step %d of %d of the range test",
                        curve->count, curve->options.steps);
        TRY(yoke_trainer_next_batch(trainer, &batch, &waited_ns));
        if (batch.rows > 0 || batch.whole_rows > 0) {
            TRY(take_point(trainer, &batch, waited_ns));
            continue;
        }
        TRY(yoke_trainer_check_epoch(trainer));
        trainer->epoch++;
        trainer->batches = 0;
        TRY(yoke_loader_begin_at(trainer->loader, trainer->epoch, 0));
    }
    return YOKE_OK;
}

/* A loss or gradient that is not finite ends the test, as a large one does; without a finite loss
 * before it there is nothing to test. */
static yoke_status end_of(yoke_lr_curve *curve, yoke_status status) {
    if (status != YOKE_ERROR_NUMERIC || curve->count == 0) return status;
    curve->diverged = true;
    return YOKE_OK;
}

/* The engine's state lies on the host meanwhile. After a failure that one rank alone has, and
 * within a step, nothing can be given back. */
static yoke_status test(yoke_trainer *trainer) {
    yoke_state *state;
    TRY(yoke_state_create(&state, trainer->parallel, false));
    yoke_status status = yoke_state_take(state, trainer->parallel);
    if (status == YOKE_OK) status = yoke_trainer_begin(trainer, false);
    if (status == YOKE_OK) status = end_of(&trainer->lr_curve, take_points(trainer));
    yoke_error error = yoke_error_take(status);
    bool together = trainer->ranks == NULL || yoke_trainer_is_common(error.status);
    bool gives = together && !trainer->in_step;
    /* GPUs may find late that the last gradient was not finite: what the test undoes anyway. */
    if (gives) (void)yoke_data_parallel_settle(trainer->parallel);
    status = gives ? yoke_state_give(trainer->parallel, state) : YOKE_OK;
    yoke_state_destroy(state);
    return error.status != YOKE_OK ? yoke_error_restore(&error) : status;
}

static yoke_status agree(const yoke_trainer *trainer) {
    const yoke_lr_find_options *options = &trainer->lr_curve.options;
    char facts[256];
    if (trainer->ranks == NULL) return YOKE_OK;
    snprintf(facts, sizeof facts, "steps %d\nlowest %a\nhighest %a\nsmoothing %a\ndivergence %a\n",
             options->steps, options->lowest, options->highest, options->smoothing,
             options->divergence);
    return yoke_ranks_agree(trainer->ranks, facts);
}

/* The rows that the test takes could not come again. */
static yoke_status check_rows(const yoke_trainer *trainer) {
    if (trainer->dataset.rows > 0 || yoke_dataset_rewinds(trainer->training_rows)) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "a range test on a row stream of one pass would leave a run no rows: set its "
                "`rewind`");
}

static yoke_status find(yoke_trainer *trainer, const yoke_lr_find_options *options) {
    counters before = counters_of(trainer);
    TRY(check_rows(trainer));
    TRY(yoke_lr_curve_create(&trainer->lr_curve, options));
    TRY(agree(trainer));
    trainer->step = 0;
    trainer->steps = (uint64_t)trainer->lr_curve.options.steps;
    yoke_status status = test(trainer);
    restore_counters(trainer, &before);
    if (status == YOKE_OK)
        yoke_lr_curve_suggest(&trainer->lr_curve);
    else
        snprintf(trainer->lr_curve.text, sizeof trainer->lr_curve.text, "no suggestion: %s",
                 status == YOKE_ERROR_CANCELLED ? "the test was stopped" : "the test failed");
    return status;
}

static yoke_status fill(const yoke_lr_curve *curve, yoke_lr_find_result *result) {
    int at = curve->suggested;
    yoke_lr_find_result own = {.struct_size = sizeof own,
                               .count = curve->count,
                               .learning_rates = curve->rates,
                               .losses = curve->losses,
                               .smoothed = curve->smoothed,
                               .diverged = curve->diverged,
                               .suggested = at,
                               .suggestion = at >= 0 ? curve->rates[at] : 0,
                               .cautious = curve->cautious,
                               .text = curve->text};
    return yoke_options_store(result, &own, sizeof own, "yoke_lr_find_result");
}

yoke_status yoke_trainer_find_lr(yoke_trainer *trainer, const yoke_lr_find_options *options,
                                 yoke_lr_find_result *result) {
    TRY(yoke_pointer_check(trainer, "trainer"));
    TRY(yoke_pointer_check(result, "result"));
    TRY(yoke_trainer_begin_work(trainer, "yoke_trainer_find_lr"));
    yoke_lr_curve_clear(&trainer->lr_curve);
    yoke_status status = fill(&trainer->lr_curve, result); /* before a long test */
    if (status == YOKE_OK) status = find(trainer, options);
    atomic_store(&trainer->stopping, false); /* the stop was seen, or came too late */
    trainer->running = false;
    yoke_trainer_publish(trainer);
    yoke_trainer_end_work(trainer);
    if (!yoke_trainer_is_common(status)) status = yoke_process_group_abort(trainer->ranks, status);
    yoke_error error = yoke_error_take(status);
    status = fill(&trainer->lr_curve, result);
    return error.status != YOKE_OK ? yoke_error_restore(&error) : status;
}
