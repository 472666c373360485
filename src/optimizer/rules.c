/* SPDX-License-Identifier: Apache-2.0 */
/* The kinds of optimizers: their names, the options that each reads, and the update rule of
 * device/update.h that it runs. */
#include <math.h>

#include "optimizer/optimizer.h"

enum { ADAM = YOKE_READS_BETAS | YOKE_READS_EPSILON };

static const yoke_optimizer_rule rules[] = {
    [YOKE_SGD] = {"sgd",
                  "SGD",
                  "YOKE_SGD_OPTIONS_INIT",
                  YOKE_READS_MOMENTUM | YOKE_READS_NESTEROV,
                  YOKE_UPDATE_SGD,
                  YOKE_UPDATE_MOMENTUM,
                  {"momentum_buffer"}},
    [YOKE_ADAMW] = {"adamw",
                    "AdamW",
                    "YOKE_ADAMW_OPTIONS_INIT",
                    ADAM,
                    YOKE_UPDATE_ADAMW,
                    YOKE_UPDATE_ADAMW,
                    {"exp_avg", "exp_avg_sq"}},
    [YOKE_ADAM] = {"adam",
                   "Adam",
                   "YOKE_ADAM_OPTIONS_INIT",
                   ADAM,
                   YOKE_UPDATE_ADAM,
                   YOKE_UPDATE_ADAM,
                   {"exp_avg", "exp_avg_sq"}},
    [YOKE_RMSPROP] = {"rmsprop",
                      "RMSprop",
                      "YOKE_RMSPROP_OPTIONS_INIT",
                      YOKE_READS_MOMENTUM | YOKE_READS_ALPHA | YOKE_READS_EPSILON,
                      YOKE_UPDATE_RMSPROP,
                      YOKE_UPDATE_RMSPROP_MOMENTUM,
                      {"square_avg", "momentum_buffer"}},
    [YOKE_LION] = {"lion",
                   "Lion",
                   "YOKE_LION_OPTIONS_INIT",
                   YOKE_READS_BETAS,
                   YOKE_UPDATE_LION,
                   YOKE_UPDATE_LION,
                   {"exp_avg"}},
    [YOKE_ADAGRAD] = {"adagrad",
                      "Adagrad",
                      "YOKE_ADAGRAD_OPTIONS_INIT",
                      YOKE_READS_EPSILON,
                      YOKE_UPDATE_ADAGRAD,
                      YOKE_UPDATE_ADAGRAD,
                      {"sum"}},
    [YOKE_LAMB] = {"lamb",
                   "LAMB",
                   "YOKE_LAMB_OPTIONS_INIT",
                   ADAM,
                   YOKE_UPDATE_LAMB,
                   YOKE_UPDATE_LAMB,
                   {"exp_avg", "exp_avg_sq"},
                   YOKE_SEES_TENSORS},
    [YOKE_MUON] = {"muon",
                   "Muon",
                   "YOKE_MUON_OPTIONS_INIT",
                   YOKE_READS_MOMENTUM | YOKE_READS_NESTEROV | ADAM,
                   YOKE_UPDATE_ADAMW, /* of what is no matrix */
                   YOKE_UPDATE_ADAMW,
                   {"exp_avg", "exp_avg_sq"}, /* a matrix has the first alone: its momentum */
                   YOKE_SEES_MATRICES},
    [YOKE_MUON_FILTERS] = {"muon-filters",
                           "Muon for filters",
                           "YOKE_MUON_FILTERS_OPTIONS_INIT",
                           YOKE_READS_MOMENTUM | YOKE_READS_NESTEROV,
                           YOKE_UPDATE_MOMENTUM, /* of what is no filter */
                           YOKE_UPDATE_MOMENTUM,
                           {"momentum_buffer"},
                           YOKE_SEES_FILTERS},
};
enum { KINDS = sizeof rules / sizeof rules[0] };

#define STATES(NAME, name, states, formula) states,
static const int states[] = {YOKE_UPDATES(STATES)};

const yoke_optimizer_rule *yoke_optimizer_rule_of(yoke_optimizer_kind kind) {
    return (unsigned)kind < KINDS ? &rules[kind] : NULL;
}

const char *yoke_optimizer_name(yoke_optimizer_kind kind) {
    const yoke_optimizer_rule *rule = yoke_optimizer_rule_of(kind);
    return rule != NULL ? rule->name : NULL;
}

yoke_update_rule yoke_optimizer_update_rule(const yoke_optimizer_options *options) {
    const yoke_optimizer_rule *rule = &rules[options->kind];
    return options->momentum > 0 ? rule->with_momentum : rule->plain;
}

int yoke_optimizer_state_count(const yoke_optimizer_options *options) {
    return states[yoke_optimizer_update_rule(options)];
}

const char *yoke_optimizer_state_name(const yoke_optimizer_options *options, int state) {
    return rules[options->kind].states[state];
}

yoke_update_scalars yoke_optimizer_scalars(const yoke_optimizer_options *options, uint64_t step,
                                           double learning_rate, double weight_decay) {
    double updates = (double)step + 1;
    return (yoke_update_scalars){
        .rate = learning_rate,
        .decay = weight_decay,
        .shrink = 1 - learning_rate * weight_decay,
        .first = step == 0,
        .momentum = options->momentum,
        .nesterov = options->nesterov,
        .beta1 = options->beta1,
        .beta2 = options->beta2,
        .alpha = options->alpha,
        .epsilon = options->epsilon,
        .rise1 = 1 - options->beta1,
        .rise2 = 1 - options->beta2,
        .rise = 1 - options->alpha,
        .dampen = 1 - options->momentum,
        .correction1 = 1 - pow(options->beta1, updates),
        .step_size = learning_rate / (1 - pow(options->beta1, updates)),
        .correction2_root = sqrt(1 - pow(options->beta2, updates)),
    };
}
