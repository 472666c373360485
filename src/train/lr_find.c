/* SPDX-License-Identifier: Apache-2.0 */
/* A range test by a trainer: steps at growing rates, after which it is as before. */
#include "yoke/lr_find.h"

#include <stdio.h>

#include "train/epochs.h"
#include "train/trainer_parts.h"

static yoke_status take_points(yoke_trainer *trainer) {
    yoke_run *run = &trainer->run;
    yoke_lr_curve *curve = &trainer->lr_curve;
    TRY(yoke_loader_begin_at(run->training.loader, run->at.epoch, (size_t)run->at.batches));
    while (run->at.step < run->at.steps && !curve->diverged) {
        yoke_loop_step step;
        yoke_requests asked = {.save = false};
        TRY(yoke_run_poll(run, &asked));
        if (asked.stop)
            return FAIL(YOKE_ERROR_CANCELLED, "stopped after step %d of %d of the range test",
                        curve->count, curve->options.steps);
        TRY(yoke_trainer_load(trainer, &step));
        if (step.is_end) {
            run->at.epoch++;
            run->at.batches = 0;
            TRY(yoke_loader_begin_at(run->training.loader, run->at.epoch, 0));
            continue;
        }
        step.rate = yoke_lr_curve_rate(curve);
        TRY(yoke_trainer_update(trainer, &step));
        yoke_lr_curve_add(curve, step.result.loss);
        yoke_event event = yoke_loop_step_event(&step);
        yoke_run_emit(run, &event);
    }
    return YOKE_OK;
}

/* The engine's state lies on the host meanwhile. After a failure that one rank alone has, and
 * within a step, nothing can be given back. */
static yoke_status test(yoke_trainer *trainer) {
    yoke_run *run = &trainer->run;
    yoke_lr_curve *curve = &trainer->lr_curve;
    yoke_state *state;
    TRY(yoke_state_create(&state, run->parallel, false));
    yoke_status status = yoke_state_take(state, run->parallel);
    if (status == YOKE_OK) status = yoke_trainer_begin(trainer, false);
    if (status == YOKE_OK) {
        status = take_points(trainer);
        /* A loss or gradient that is not finite ends the test, as a large one does; without a
         * finite loss before it there is nothing to test. */
        curve->diverged |= status == YOKE_ERROR_NUMERIC && curve->count > 0;
        if (status == YOKE_ERROR_NUMERIC && curve->count > 0) status = YOKE_OK;
    }
    yoke_error error = yoke_error_take(status);
    bool together = run->ranks == NULL || yoke_status_is_common(error.status);
    bool gives = together && !run->in_step;
    /* GPUs may find late that the last gradient was not finite: what the test undoes anyway. */
    if (gives) (void)yoke_data_parallel_settle(run->parallel);
    status = gives ? yoke_state_give(run->parallel, state) : YOKE_OK;
    yoke_state_destroy(state);
    return error.status != YOKE_OK ? yoke_error_restore(&error) : status;
}

static yoke_status agree(const yoke_run *run, const yoke_lr_find_options *options) {
    char facts[256];
    if (run->ranks == NULL) return YOKE_OK;
    snprintf(facts, sizeof facts, "steps %d\nlowest %a\nhighest %a\nsmoothing %a\ndivergence %a\n",
             options->steps, options->lowest, options->highest, options->smoothing,
             options->divergence);
    return yoke_ranks_agree(run->ranks, facts);
}

static yoke_status find(yoke_trainer *trainer, const yoke_lr_find_options *options) {
    yoke_run *run = &trainer->run;
    yoke_lr_curve *curve = &trainer->lr_curve;
    yoke_position before = run->at; /* what the steps change besides the engine */
    uint64_t begin_ns = run->begin_ns;
    if (run->training.info.rows == 0 && !yoke_dataset_rewinds(run->training.rows))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "a range test on a row stream of one pass would leave a run no rows: set its "
                    "`rewind`");
    TRY(yoke_lr_curve_create(curve, options));
    TRY(agree(run, &curve->options));
    run->at.step = 0;
    run->at.steps = (uint64_t)curve->options.steps;
    yoke_status status = test(trainer);
    run->at = before;
    run->begin_ns = begin_ns;
    if (status == YOKE_OK)
        yoke_lr_curve_suggest(curve);
    else
        snprintf(curve->text, sizeof curve->text, "no suggestion: %s",
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
    yoke_trainer_end(trainer);
    if (!yoke_status_is_common(status))
        status = yoke_process_group_abort(trainer->run.ranks, status);
    yoke_error error = yoke_error_take(status);
    status = fill(&trainer->lr_curve, result);
    return error.status != YOKE_OK ? yoke_error_restore(&error) : status;
}
