/* SPDX-License-Identifier: Apache-2.0 */
/* A run ends with a checkpoint, unless a loss or gradient is not finite: the step that failed would
 * be the next one of a resumed run. It saves the weights after the last step, after a stop, after a
 * failure of the data or of another rank, and after a loss or gradient that is not finite, from
 * which no weight was updated. */
#include "train/finish.h"

#include <stdio.h>
#include <string.h>

#include "train/last_weights.h"
#include "train/trace_file.h"
#include "train/trainer_parts.h"

/* A stop is no failure. */
static void add_failure(yoke_run *run, yoke_error *first, yoke_status later) {
    if (later == YOKE_OK) return;
    if (first->status == YOKE_OK || first->status == YOKE_ERROR_CANCELLED)
        *first = yoke_error_take(later);
    else
        yoke_run_warn(run);
}

/* GPUs may find after the last step's answer that its gradient was not finite. The steps that they
 * have undone do not count. Whether all is finite. */
static bool settle(yoke_run *run, yoke_error *first) {
    yoke_status late = run->in_step ? YOKE_OK : yoke_data_parallel_settle(run->parallel);
    bool is_numeric = late == YOKE_ERROR_NUMERIC || first->status == YOKE_ERROR_NUMERIC;
    add_failure(run, first, late);
    if (is_numeric) run->at.step = yoke_data_parallel_steps(run->parallel);
    return !is_numeric;
}

/* Says in the error that ended the run what the file has. A user of patience who stops the run
 * wants the best weights, too. */
static void say_saved(const yoke_run *run, const yoke_watch *watch, const char *path,
                      yoke_error *first) {
    char *end = first->text + strlen(first->text);
    size_t room = sizeof first->text - strlen(first->text);
    if (run->in_step)
        snprintf(end, room,
                 "; in the middle of an update the weights are those of no step: %s is not written",
                 path);
    else if (watch->has_best)
        snprintf(end, room, "; %s has the weights of epoch %llu, the best evaluation", path,
                 (unsigned long long)watch->best_epoch + 1);
    else if (!yoke_status_is_common(first->status))
        snprintf(end, room, "; %s has the weights after step %llu", path,
                 (unsigned long long)run->at.step);
}

static yoke_status save_last(yoke_trainer *trainer, bool together, yoke_error *first) {
    yoke_run *run = &trainer->run;
    const yoke_watch *watch = &trainer->watch;
    yoke_ending ending = {.run = run, .trend = &trainer->trend, .keeps_best = watch->has_best};
    char beside[PATH_MAX];
    bool failed = first->status != YOKE_OK;
    /* Before the first step there is nothing to keep; an older file may have something. */
    if (run->at.step == 0 && failed && first->status != YOKE_ERROR_NUMERIC) return YOKE_OK;
    bool writes = yoke_run_writes(run) && run->options.save != NULL;
    yoke_last_weights what = {.path = run->options.save,
                              .best = watch->has_best ? trainer->saving.state : NULL,
                              .together = together};
    if (writes && !run->in_step) what.path = yoke_save_place(&ending, first->status, beside);
    if (!run->in_step) TRY(yoke_last_weights_save(trainer->last_weights, run, &what));
    if (failed && writes) say_saved(run, watch, what.path, first);
    return yoke_save_place_report(&ending, what.path, first);
}

yoke_status yoke_trainer_finish(yoke_trainer *trainer, yoke_status status) {
    yoke_run *run = &trainer->run;
    yoke_error first = yoke_error_take(status);
    if (run->parallel == NULL) return yoke_error_restore(&first); /* no device is left */
    bool is_finite = settle(run, &first);
    bool together = run->ranks == NULL || yoke_status_is_common(first.status);
    if (!run->in_step && together)
        add_failure(run, &first, yoke_saving_end(&trainer->saving, run, is_finite));
    if (first.status == YOKE_OK && trainer->watch.has_best)
        add_failure(
            run, &first,
            yoke_watch_end(&trainer->watch, run, trainer->saving.state, &trainer->test.last));
    add_failure(run, &first, save_last(trainer, together, &first));
    add_failure(run, &first, yoke_trace_file_write(run, together));
    /* No rank returns before rank 0 has written the files. */
    if (yoke_status_is_common(first.status) && run->ranks != NULL)
        add_failure(run, &first, yoke_process_group_barrier(run->ranks));
    if (!yoke_status_is_common(first.status)) {
        (void)yoke_error_restore(&first);
        (void)yoke_process_group_abort(run->ranks, first.status);
    }
    return yoke_error_restore(&first);
}
