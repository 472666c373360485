/* SPDX-License-Identifier: Apache-2.0 */
/* Which options an optimizer accepts: torch.optim's conditions. */
#include <math.h>

#include "optimizer/optimizer.h"

/* Written so that NaN fails too. */
static yoke_status check_not_negative(const yoke_optimizer_options *options, const char *field,
                                      double value) {
    if (value >= 0 && isfinite(value)) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT, "%s is %g: it must be 0 or more; %s sets the default", field,
                value, yoke_optimizer_rule_of(options->kind)->init);
}

static yoke_status check_decay(const yoke_optimizer_options *options, const char *field,
                               double value) {
    if (value >= 0 && value < 1) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT, "%s is %g: 0 <= %s < 1 is required; %s sets the default",
                field, value, field, yoke_optimizer_rule_of(options->kind)->init);
}

static yoke_status check_rule(const yoke_optimizer_options *options) {
    const yoke_optimizer_rule *rule = yoke_optimizer_rule_of(options->kind);
    if ((rule->reads & YOKE_READS_MOMENTUM) != 0)
        TRY(check_decay(options, "momentum", options->momentum));
    if ((rule->reads & YOKE_READS_BETAS) != 0) {
        TRY(check_decay(options, "beta1", options->beta1));
        TRY(check_decay(options, "beta2", options->beta2));
    }
    if ((rule->reads & YOKE_READS_ALPHA) != 0) TRY(check_decay(options, "alpha", options->alpha));
    if ((rule->reads & YOKE_READS_EPSILON) != 0)
        TRY(check_not_negative(options, "epsilon", options->epsilon));
    if (options->nesterov && (rule->reads & YOKE_READS_NESTEROV) == 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "nesterov is for SGD and Muon: %s has no such form",
                    rule->title);
    if (options->nesterov && options->momentum == 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "nesterov needs momentum, which is 0: set it, to 0.9 say");
    return YOKE_OK;
}

yoke_status yoke_optimizer_options_load(yoke_optimizer_options *own,
                                        const yoke_optimizer_options *given) {
    static const yoke_optimizer_options defaults = YOKE_SGD_OPTIONS_INIT;
    if (given == NULL) given = &defaults;
    TRY(yoke_options_load(own, sizeof *own, given, "yoke_optimizer_options"));
    if (yoke_optimizer_rule_of(own->kind) == NULL)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "optimizer kind is %d: it must be YOKE_SGD (%d) to YOKE_MUON_FILTERS (%d)",
                    (int)own->kind, YOKE_SGD, YOKE_MUON_FILTERS);
    TRY(check_not_negative(own, "learning_rate", own->learning_rate));
    TRY(check_not_negative(own, "weight_decay", own->weight_decay));
    TRY(check_not_negative(own, "clip_norm", own->clip_norm));
    return check_rule(own);
}
