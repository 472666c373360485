/* SPDX-License-Identifier: Apache-2.0 */
/* The learning rate over a run: the formulas of torch.optim.lr_scheduler in closed form. */
#include <math.h>

#include "base/base.h"
#include "yoke/optimizer.h"

/* Half a cosine wave from `start` to `end`, as `done` goes from 0 to 1. */
static double anneal(double start, double end, double done) {
    const double pi = 3.14159265358979323846;
    return end + (start - end) / 2 * (1 + cos(pi * done));
}

/* OneCycleLR: pct_start 0.3, div_factor 25, final_div_factor 1e4, cosine, two phases. As in PyTorch
 * the warm-up may end between two steps, and in a very short run before the first. */
static double one_cycle(double peak, uint64_t steps, uint64_t step) {
    double first = peak / 25, last = first / 1e4;
    double top = 0.3 * (double)steps - 1, end = (double)steps - 1;
    double at = (double)step < end ? (double)step : end;
    if (at <= top) return anneal(first, peak, at / top);
    return anneal(peak, last, (at - top) / (end - top));
}

/* How much of the run after the warm-up is over, 0 to 1. */
static double share_done(const yoke_lr_schedule *schedule, uint64_t step) {
    double steps = (double)schedule->steps - (double)schedule->warmup_steps;
    double done = (double)step - (double)schedule->warmup_steps;
    return done < steps ? done / steps : 1;
}

static double drop_twice(const yoke_lr_schedule *schedule, uint64_t step) {
    double done = (double)step / (double)schedule->steps;
    return schedule->learning_rate * (done < 0.5 ? 1 : done < 0.75 ? 0.1 : 0.01);
}

double yoke_lr_schedule_rate(const yoke_lr_schedule *given, uint64_t step) {
    if (given == NULL) return 0;
    yoke_lr_schedule own, *schedule = &own;
    if (yoke_options_load(&own, sizeof own, given, "yoke_lr_schedule") != YOKE_OK) return NAN;
    double peak = schedule->learning_rate;
    /* A run of unknown length keeps the peak rate. */
    bool shaped = schedule->steps > 0;
    if (shaped && schedule->kind == YOKE_LR_ONECYCLE) return one_cycle(peak, schedule->steps, step);
    if (step < schedule->warmup_steps)
        return peak * (double)(step + 1) / (double)schedule->warmup_steps;
    if (schedule->kind == YOKE_LR_EXPONENTIAL && schedule->epoch_steps > 0)
        return peak * pow(schedule->gamma, (double)(step / schedule->epoch_steps));
    if (shaped && schedule->kind == YOKE_LR_STEP) return drop_twice(schedule, step);
    if (shaped && schedule->kind == YOKE_LR_COSINE)
        return anneal(peak, 0, share_done(schedule, step));
    if (shaped && schedule->kind == YOKE_LR_LINEAR) return peak * (1 - share_done(schedule, step));
    return peak;
}

static double update(yoke_lr_plateau *plateau, double loss) {
    const double smallest_change = 1e-8; /* PyTorch's eps */
    bool first = plateau->evaluations == 0;
    bool better = first ? isfinite(loss) : loss < plateau->best * (1 - plateau->threshold);
    if (better || !first) plateau->evaluations++;
    plateau->bad = better ? 0 : plateau->bad + 1;
    if (better) plateau->best = loss;
    if (plateau->bad <= plateau->patience) return plateau->learning_rate;
    double lower = fmax(plateau->learning_rate * plateau->factor, plateau->minimum);
    if (plateau->learning_rate - lower > smallest_change) plateau->learning_rate = lower;
    plateau->bad = 0;
    return plateau->learning_rate;
}

double yoke_lr_plateau_update(yoke_lr_plateau *plateau, double loss) {
    if (plateau == NULL) return 0;
    yoke_lr_plateau own;
    if (yoke_options_load(&own, sizeof own, plateau, "yoke_lr_plateau") != YOKE_OK) return NAN;
    double rate = update(&own, loss);
    (void)yoke_options_store(plateau, &own, sizeof own, "yoke_lr_plateau"); /* load took the size */
    return rate;
}
