/* What an optimizer may be asked for: torch.optim's conditions. */
#include <math.h>

#include "optimizer/optimizer.h"

/* Written so that NaN fails too. */
static yoke_status check_not_negative(const char *field, double value) {
    if (value >= 0 && isfinite(value)) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT, "%s is %g: 0 or more is needed", field, value);
}

static yoke_status check_decay(const char *field, double value) {
    if (value >= 0 && value < 1) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT, "%s is %g: 0 <= %s < 1 is needed", field, value, field);
}

static yoke_status check_sgd(const yoke_optimizer_options *options) {
    TRY(check_decay("momentum", options->momentum));
    if (options->nesterov && options->momentum == 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "nesterov needs momentum, which is 0: set it, to 0.9 say");
    return YOKE_OK;
}

static yoke_status check_adamw(const yoke_optimizer_options *options) {
    TRY(check_decay("beta1", options->beta1));
    TRY(check_decay("beta2", options->beta2));
    TRY(check_not_negative("epsilon", options->epsilon));
    if (options->nesterov)
        return FAIL(YOKE_ERROR_ARGUMENT, "nesterov is for SGD: AdamW has no such form");
    return YOKE_OK;
}

static void fill_in(yoke_optimizer_options *options) {
    bool sgd = options->kind == YOKE_SGD;
    if (options->learning_rate == 0) options->learning_rate = sgd ? 0.1 : 1e-3;
    if (sgd) return;
    if (options->beta1 == 0) options->beta1 = 0.9;
    if (options->beta2 == 0) options->beta2 = 0.999;
    if (options->epsilon == 0) options->epsilon = 1e-8;
}

yoke_status yoke_optimizer_options_load(yoke_optimizer_options *own,
                                        const yoke_optimizer_options *given) {
    TRY(yoke_options_load(own, sizeof *own, given, "yoke_optimizer_options"));
    if (own->kind != YOKE_SGD && own->kind != YOKE_ADAMW)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "optimizer kind %d: YOKE_SGD (%d) and YOKE_ADAMW (%d) are known",
                    (int)own->kind, YOKE_SGD, YOKE_ADAMW);
    TRY(check_not_negative("learning_rate", own->learning_rate));
    TRY(check_not_negative("weight_decay", own->weight_decay));
    TRY(check_not_negative("clip_norm", own->clip_norm));
    TRY(own->kind == YOKE_SGD ? check_sgd(own) : check_adamw(own));
    fill_in(own);
    return YOKE_OK;
}
