/* SPDX-License-Identifier: Apache-2.0 */
/* What follows from an evaluation: a lower learning rate, the weights to keep, the end of the run.
 */
#include <math.h>
#include <stdio.h>

#include "train/run.h"

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

void yoke_watch_begin(yoke_trainer *trainer) {
    const yoke_trainer_options *options = &trainer->options;
    static const yoke_lr_plateau usual = YOKE_LR_PLATEAU_INIT;
    double gamma = options->lr_gamma;
    trainer->schedule.gamma = gamma > 0 ? gamma : 0.95;
    trainer->schedule.epoch_steps = yoke_loader_batches(trainer->loader);
    trainer->watch.plateau = usual;
    trainer->watch.plateau.learning_rate = options->optimizer->learning_rate;
    trainer->watch.plateau.patience = options->lr_patience;
    if (gamma > 0) trainer->watch.plateau.factor = gamma;
}

bool yoke_watch_is_over(const yoke_trainer *trainer) {
    int patience = trainer->options.patience;
    return patience > 0 && trainer->watch.bad >= patience;
}

static void report_end(yoke_trainer *trainer) {
    const yoke_watch *watch = &trainer->watch;
    char text[160];
    if (watch->has_best)
        snprintf(text, sizeof text,
                 "stopped early: %d evaluations without a better test loss than %.4f of epoch %llu",
                 watch->bad, watch->best_loss, (unsigned long long)watch->best_epoch + 1);
    else
        snprintf(text, sizeof text, "stopped early: %d evaluations without a finite test loss",
                 watch->bad);
    yoke_event event = {.kind = YOKE_EVENT_STOPPED, .accuracy = -1, .text = text};
    yoke_trainer_emit(trainer, &event);
}

/* A run that resumes behind an evaluation repeats it: it counts once. */
yoke_status yoke_watch_evaluation(yoke_trainer *trainer) {
    yoke_watch *watch = &trainer->watch;
    double loss = trainer->last_evaluation.loss;
    bool plateau = trainer->options.lr_schedule == YOKE_LR_PLATEAU;
    bool watches = plateau || trainer->options.patience > 0;
    if (!watches || watch->step == trainer->step) return YOKE_OK;
    watch->step = trainer->step;
    if (plateau) trainer->schedule.learning_rate = yoke_lr_plateau_update(&watch->plateau, loss);
    if (trainer->options.patience == 0) return YOKE_OK;
    bool lower = !watch->has_best || loss < watch->best_loss - trainer->options.min_delta;
    bool better = isfinite(loss) && lower;
    watch->bad = better ? 0 : watch->bad + 1;
    if (yoke_watch_is_over(trainer)) report_end(trainer);
    if (!better) return YOKE_OK;
    watch->has_best = true;
    watch->best_loss = loss;
    watch->best_rows = trainer->last_evaluation.rows;
    watch->best_labels = trainer->last_evaluation.labels;
    watch->best_correct = trainer->last_evaluation.correct;
    watch->best_epoch = trainer->epoch;
    TRY(yoke_trainer_await_saves(trainer)); /* the writer reads what is overwritten */
    return yoke_state_keep_best(trainer->checkpoints.state, trainer->parallel);
}

yoke_status yoke_watch_end(yoke_trainer *trainer) {
    const yoke_watch *watch = &trainer->watch;
    if (!watch->has_best) return YOKE_OK;
    TRY(yoke_state_give_best(trainer->parallel, trainer->checkpoints.state));
    trainer->last_evaluation.loss = watch->best_loss;
    trainer->last_evaluation.rows = (int)watch->best_rows;
    trainer->last_evaluation.labels = (int)watch->best_labels;
    trainer->last_evaluation.correct = (int)watch->best_correct;
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

void yoke_watch_describe(const yoke_trainer *trainer, yoke_facts *facts) {
    yoke_watch watch = trainer->watch;
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

static yoke_status read_real(const yoke_checkpoint *checkpoint, const char *name, double *value) {
    const char *text = yoke_safetensors_note(&checkpoint->file, name);
    if (text == NULL || yoke_text_real(text, -1e300, 1e300, value)) return YOKE_OK;
    return FAIL(YOKE_ERROR_DATA, "%s: %s is '%.40s', not a number", checkpoint->file.path, name,
                text);
}

yoke_status yoke_watch_read(yoke_trainer *trainer, const yoke_checkpoint *checkpoint) {
    yoke_watch *watch = &trainer->watch;
    double *values[NAMES], whole[2];
    collect(watch, values, whole);
    for (int i = 0; i < NAMES; i++)
        TRY(read_real(checkpoint, names[i], values[i]));
    if (!(whole[0] >= 0 && whole[0] < 1e9 && whole[1] >= 0 && whole[1] < 1e9))
        return FAIL(YOKE_ERROR_DATA, "%s: %s is %g and %s %g: evaluations are from 0 to 1e9",
                    checkpoint->file.path, names[2], whole[0], names[4], whole[1]);
    watch->plateau.bad = (int)whole[0];
    watch->bad = (int)whole[1];
    watch->has_best = trainer->options.patience > 0 &&
                      yoke_safetensors_note(&checkpoint->file, "watch.best_epoch") != NULL;
    TRY(yoke_checkpoint_number(checkpoint, "watch.plateau_evaluations", INT32_MAX,
                               &watch->plateau.evaluations));
    TRY(yoke_checkpoint_number(checkpoint, "watch.step", YOKE_STEPS_LIMIT, &watch->step));
    return yoke_checkpoint_number(checkpoint, "watch.best_epoch", INT32_MAX, &watch->best_epoch);
}

yoke_status yoke_watch_share(yoke_trainer *trainer) {
    yoke_watch *watch = &trainer->watch;
    if (trainer->ranks != NULL)
        TRY(yoke_process_group_broadcast(trainer->ranks, watch, sizeof *watch / sizeof(int64_t),
                                         YOKE_ELEMENT_INT64, 0));
    if (trainer->options.lr_schedule == YOKE_LR_PLATEAU)
        trainer->schedule.learning_rate = watch->plateau.learning_rate;
    return YOKE_OK;
}
