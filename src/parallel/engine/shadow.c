/* SPDX-License-Identifier: Apache-2.0 */
/* What shadow.h promises: a contest of an update with a pass behind it and one without. */
#include "parallel/engine/shadow.h"

#include <stdio.h>

#include "parallel/engine/spare_update.h"
#include "parallel/exchange/exchange.h"

enum { IN_A_PASS, IN_THE_UPDATE, VARIANTS };
static const char *const names[VARIANTS] = {"shadow in a pass", "shadow in the update"};

typedef struct shadow_trial {
    const yoke_step *step;
    size_t elements;
    yoke_spare_update update;
} shadow_trial;

/* The contest updates no more weights than this: they already keep a GPU busy. */
#define MOST_ELEMENTS ((size_t)1 << 24)

static yoke_status prepare_trial(void *context) {
    shadow_trial *trial = context;
    return yoke_spare_update_open(&trial->update, trial->step, trial->elements);
}

static yoke_status run_trial(void *context, int candidate) {
    const yoke_spare_update *update = &((const shadow_trial *)context)->update;
    TRY(yoke_spare_update_run(update, candidate == IN_THE_UPDATE));
    if (candidate == IN_THE_UPDATE) return YOKE_OK;
    return yoke_device_shadow(update->device, update->precision, update->shadow, update->weights,
                              update->elements);
}

static bool learns_by_shadow(const yoke_step *step) {
    return step->queued && !step->options.inference && step->flat->trainable_elements > 0 &&
           yoke_replica_reads_shadow(step->lanes[0].replica);
}

static bool is_open(const yoke_step *step) {
    const yoke_exchange *exchange = step->exchange;
    return learns_by_shadow(step) && exchange->participants == 1 && !exchange->sees_tensors;
}

/* Several owners' weights in float32 meet nowhere in a step, and the average would need them. */
static bool publishes(const yoke_step *step) {
    const yoke_exchange *exchange = step->exchange;
    bool averages = step->options.ema_decay > 0;
    return learns_by_shadow(step) && exchange->participants > 1 &&
           (exchange->owners == 1 || !averages);
}

yoke_status yoke_shadow_choose(int lane, void *context) {
    yoke_step *step = context;
    const yoke_optimizer_options *optimizer = &step->optimizer_options;
    const yoke_optimizer_rule *rule = yoke_optimizer_rule_of(optimizer->kind);
    size_t elements = step->flat->trainable_elements;
    if (elements > MOST_ELEMENTS) elements = MOST_ELEMENTS;
    yoke_device *device = step->lanes[lane].device;
    shadow_trial trial = {.step = step, .elements = elements};
    char key[96];
    int best;
    if (publishes(step)) {
        step->exchange->writes_shadow = step->exchange->publishes_shadow = true;
        yoke_replica_leave_shadow(step->lanes[lane].replica, step->exchange->owners > 1);
    }
    if (!is_open(step)) return YOKE_OK;
    snprintf(key, sizeof key, "update of %zu by %s%s", step->flat->trainable_elements, rule->name,
             yoke_optimizer_update_rule(optimizer) != rule->plain ? " with momentum" : "");
    const yoke_contest contest = {key,
                                  step->options.precision,
                                  step->options.algorithm,
                                  step->algorithms,
                                  names,
                                  VARIANTS,
                                  prepare_trial,
                                  run_trial,
                                  &trial};
    yoke_status status = yoke_device_choose(device, &contest, &best);
    yoke_spare_update_close(&trial.update);
    TRY(status);
    step->exchange->writes_shadow = best == IN_THE_UPDATE;
    if (best == IN_THE_UPDATE) yoke_replica_leave_shadow(step->lanes[lane].replica, false);
    return YOKE_OK;
}

const char *yoke_shadow_algorithm(const yoke_step *step) {
    if (!is_open(step) && !publishes(step)) return NULL;
    return names[step->exchange->writes_shadow ? IN_THE_UPDATE : IN_A_PASS];
}
