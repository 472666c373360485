/* SPDX-License-Identifier: Apache-2.0 */
#include "train/watch.h"

#include <math.h>
#include <stdio.h>

#define NAMES 8 /* facts of a checkpoint */

yoke_status yoke_watch_check(const yoke_trainer_options *options) {
    bool plateau = options->lr_schedule == YOKE_LR_PLATEAU;
    if (!(options->lr_gamma >= 0 && options->lr_gamma <= 1))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "lr_gamma is %g: above 0 and at most 1, or 0 for the "
                    "schedule's default",
                    options->lr_gamma);
    if (options->lr_patience < 0 || options->patience < 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "lr_patience is %d, patience %d: neither may be negative",
                    options->lr_patience, options->patience);
    if (!(options->min_delta >= 0) || isinf(options->min_delta))
        return FAIL(YOKE_ERROR_ARGUMENT, "min_delta is %g: at least 0", options->min_delta);
    if ((plateau || options->patience > 0) && options->evaluate_every <= 0)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%s needs evaluations during the run, and evaluate_every is %d: 1 evaluates "
                    "after every epoch",
                    plateau ? "lr_schedule plateau" : "patience", options->evaluate_every);
    return YOKE_OK;
}

void yoke_watch_begin(yoke_watch *watch, yoke_run *run) {
    const yoke_trainer_options *options = &run->options;
    double gamma = options->lr_gamma;
    run->schedule.epoch_steps = yoke_loader_batch_count(run->training.loader);
    watch->plateau = (yoke_lr_plateau)YOKE_LR_PLATEAU_INIT;
    watch->plateau.learning_rate = options->optimizer->learning_rate;
    watch->plateau.patience = options->lr_patience;
    if (gamma > 0) watch->plateau.factor = gamma;
    bool by_losses = options->lr_schedule == YOKE_LR_PLATEAU;
    run->schedule.gamma = gamma > 0 ? gamma : by_losses ? watch->plateau.factor : 0.95;
}

bool yoke_watch_is_over(const yoke_watch *watch, const yoke_run *run) {
    return run->options.patience > 0 && watch->bad >= run->options.patience;
}

static void report_end(const yoke_watch *watch, yoke_run *run) {
    char text[160];
    if (watch->has_best)
        snprintf(text, sizeof text,
                 "stopped early: %d evaluations without a better test loss than %.4f of epoch %llu",
                 watch->bad, watch->best_loss, (unsigned long long)watch->best_epoch + 1);
    else
        snprintf(text, sizeof text, "stopped early: %d evaluations without a finite test loss",
                 watch->bad);
    yoke_run_say(run, YOKE_EVENT_STOPPED, text);
}

/* A run that resumes behind an evaluation repeats it: it counts once. */
void yoke_watch_add(yoke_watch *watch, yoke_run *run, const yoke_step_result *evaluation,
                    bool *better) {
    double loss = evaluation->loss;
    bool plateau = run->options.lr_schedule == YOKE_LR_PLATEAU;
    bool watches = plateau || run->options.patience > 0;
    *better = false;
    if (!watches || watch->step == run->at.step) return;
    watch->step = run->at.step;
    if (plateau) run->schedule.learning_rate = yoke_lr_plateau_update(&watch->plateau, loss);
    if (run->options.patience == 0) return;
    bool lower = !watch->has_best || loss < watch->best_loss - run->options.min_delta;
    *better = isfinite(loss) && lower;
    watch->bad = *better ? 0 : watch->bad + 1;
    if (yoke_watch_is_over(watch, run)) report_end(watch, run);
    if (!*better) return;
    watch->has_best = true;
    watch->best_loss = loss;
    watch->best_rows = evaluation->rows;
    watch->best_labels = evaluation->labels;
    watch->best_correct = evaluation->correct;
    watch->best_epoch = run->at.epoch;
}

yoke_status yoke_watch_end(const yoke_watch *watch, const yoke_run *run, yoke_state *state,
                           yoke_step_result *evaluation) {
    TRY(yoke_state_give_best(run->parallel, state));
    evaluation->loss = watch->best_loss;
    evaluation->rows = (int)watch->best_rows;
    evaluation->labels = (int)watch->best_labels;
    evaluation->correct = (int)watch->best_correct;
    return YOKE_OK;
}

/* In checkpoints. */

static const char *const names[NAMES] = {
    "watch.plateau_rate", "watch.plateau_best", "watch.plateau_bad", "watch.best_loss",
    "watch.bad",          "watch.best_rows",    "watch.best_labels", "watch.best_correct"};

static void collect(yoke_watch *watch, double *values[NAMES], double whole[2]) {
    double *fields[NAMES] = {&watch->plateau.learning_rate,
                             &watch->plateau.best,
                             &whole[0],
                             &watch->best_loss,
                             &whole[1],
                             &watch->best_rows,
                             &watch->best_labels,
                             &watch->best_correct};
    for (int i = 0; i < NAMES; i++)
        values[i] = fields[i];
    whole[0] = watch->plateau.bad;
    whole[1] = watch->bad;
}

void yoke_watch_describe(const yoke_watch *own, yoke_facts *facts) {
    yoke_watch watch = *own;
    double *values[NAMES], whole[2];
    collect(&watch, values, whole);
    for (int i = 0; i < NAMES; i++)
        if (i < 3 ? watch.plateau.evaluations > 0 : watch.has_best || watch.bad > 0)
            yoke_facts_add_real(facts, names[i], *values[i]);
    if (watch.plateau.evaluations > 0)
        yoke_facts_add(facts, "watch.plateau_evaluations", "%llu",
                       (unsigned long long)watch.plateau.evaluations);
    if (watch.step > 0) yoke_facts_add(facts, "watch.step", "%llu", (unsigned long long)watch.step);
    if (watch.has_best)
        yoke_facts_add(facts, "watch.best_epoch", "%llu", (unsigned long long)watch.best_epoch);
}

yoke_status yoke_watch_read(yoke_watch *watch, const yoke_run *run,
                            const yoke_checkpoint *checkpoint) {
    double *values[NAMES], whole[2];
    collect(watch, values, whole);
    for (int i = 0; i < NAMES; i++) {
        const char *text = yoke_safetensors_note(&checkpoint->file, names[i]);
        if (text != NULL && !yoke_text_real(text, -1e300, 1e300, values[i]))
            return FAIL(YOKE_ERROR_DATA, "%s: %s is '%.40s', not a number", checkpoint->file.path,
                        names[i], text);
    }
    if (!(whole[0] >= 0 && whole[0] < 1e9 && whole[1] >= 0 && whole[1] < 1e9))
        return FAIL(YOKE_ERROR_DATA, "%s: %s is %g and %s %g: evaluations are from 0 to 1e9",
                    checkpoint->file.path, names[2], whole[0], names[4], whole[1]);
    watch->plateau.bad = (int)whole[0];
    watch->bad = (int)whole[1];
    watch->has_best = run->options.patience > 0 &&
                      yoke_safetensors_note(&checkpoint->file, "watch.best_epoch") != NULL;
    TRY(yoke_checkpoint_number(checkpoint, "watch.plateau_evaluations", INT32_MAX,
                               &watch->plateau.evaluations));
    TRY(yoke_checkpoint_number(checkpoint, "watch.step", YOKE_STEPS_LIMIT, &watch->step));
    return yoke_checkpoint_number(checkpoint, "watch.best_epoch", INT32_MAX, &watch->best_epoch);
}

yoke_status yoke_watch_share(yoke_watch *watch, yoke_run *run) {
    if (run->ranks != NULL)
        TRY(yoke_process_group_broadcast(run->ranks, watch, sizeof *watch / sizeof(int64_t),
                                         YOKE_ELEMENT_INT64, 0));
    if (run->options.lr_schedule == YOKE_LR_PLATEAU)
        run->schedule.learning_rate = watch->plateau.learning_rate;
    return YOKE_OK;
}
