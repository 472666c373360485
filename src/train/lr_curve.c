/* SPDX-License-Identifier: Apache-2.0 */
#include "train/lr_curve.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"

#define STEPS_LEAST 20
#define STEPS_MOST 1000000
#define FALLING 0.75 /* of its fall is still before the loss where it begins */
#define CLEAR 1.25   /* times the noise of a batch, a fall is more than noise */

static yoke_status check(const yoke_lr_find_options *options) {
    if (options->steps < STEPS_LEAST || options->steps > STEPS_MOST)
        return FAIL(YOKE_ERROR_ARGUMENT, "steps of a range test is %d: from %d to %d, or 0 for 100",
                    options->steps, STEPS_LEAST, STEPS_MOST);
    if (!(options->lowest > 0 && options->highest > options->lowest) ||
        isinf(options->highest / options->lowest))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "rates from %g to %g: the lowest must be above 0, the highest above it, and "
                    "their quotient finite",
                    options->lowest, options->highest);
    if (!(options->smoothing >= 0 && options->smoothing < 1))
        return FAIL(YOKE_ERROR_ARGUMENT, "smoothing is %g: from 0, none, to below 1",
                    options->smoothing);
    if (!(options->divergence > 1))
        return FAIL(YOKE_ERROR_ARGUMENT, "divergence is %g: above 1, or 0 for 4",
                    options->divergence);
    return YOKE_OK;
}

yoke_status yoke_lr_curve_create(yoke_lr_curve *curve, const yoke_lr_find_options *options) {
    static const yoke_lr_find_options defaults = YOKE_LR_FIND_OPTIONS_INIT;
    yoke_lr_find_options own;
    if (options == NULL) options = &defaults;
    TRY(yoke_options_load(&own, sizeof own, options, "yoke_lr_find_options"));
    if (own.steps == 0) own.steps = 100;
    if (own.lowest == 0) own.lowest = 1e-7;
    if (own.highest == 0) own.highest = 10;
    if (own.divergence == 0) own.divergence = 4;
    TRY(check(&own));
    size_t steps = (size_t)own.steps;
    *curve = (yoke_lr_curve){.options = own, .lowest = INFINITY, .suggested = -1};
    curve->rates = yoke_calloc(3 * steps, sizeof *curve->rates);
    if (curve->rates == NULL)
        return FAIL_MEMORY(3 * steps * sizeof *curve->rates, "the points of a range test");
    curve->losses = curve->rates + steps;
    curve->smoothed = curve->losses + steps;
    return YOKE_OK;
}

void yoke_lr_curve_clear(yoke_lr_curve *curve) {
    yoke_free(curve->rates);
    *curve = (yoke_lr_curve){.suggested = -1};
}

double yoke_lr_curve_rate(const yoke_lr_curve *curve) {
    const yoke_lr_find_options *options = &curve->options;
    double done = (double)curve->count / (options->steps - 1);
    return options->lowest * pow(options->highest / options->lowest, done);
}

/* An exponential moving average that begins at 0, divided by the weight that its losses have:
 * Adam's bias correction. The test has diverged at the first value above `divergence` times the
 * lowest. */
void yoke_lr_curve_add(yoke_lr_curve *curve, double loss) {
    const yoke_lr_find_options *options = &curve->options;
    double beta = options->smoothing;
    if (!isfinite(loss)) {
        curve->diverged = true;
        return;
    }
    int at = curve->count;
    curve->rates[at] = yoke_lr_curve_rate(curve);
    curve->losses[at] = loss;
    curve->mean = beta * curve->mean + (1 - beta) * loss;
    curve->smoothed[at] = curve->mean / (1 - pow(beta, at + 1));
    curve->lowest = fmin(curve->lowest, curve->smoothed[at]);
    double room =
        (options->divergence - 1) * fabs(curve->lowest); /* a host's loss may be negative */
    curve->diverged = curve->smoothed[at] > curve->lowest + room;
    curve->count++;
}

/* The suggestion. */

/* The points in between are evenly spaced in the logarithm of the rate: numpy.gradient. */
static double slope(const double *values, int first, int end, int at) {
    int before = at > first ? at - 1 : at, behind = at < end - 1 ? at + 1 : at;
    return (values[behind] - values[before]) / (behind - before);
}

/* The mean of the first quarter before the lowest point: one smoothed loss is one batch's noise. */
static double level_before(const double *smoothed, int first, int lowest) {
    int count = (lowest - first) / 4 + 1;
    double sum = 0;
    for (int i = first; i < first + count; i++)
        sum += smoothed[i];
    return sum / count;
}

/* Where the loss leaves its first level for good: before it the steepest fall is one of the noise,
 * at a rate that changes nothing. */
static int begin_of_fall(const yoke_lr_curve *curve, int first, int lowest, double fall) {
    double level = curve->smoothed[lowest] + FALLING * fall;
    int begin = lowest;
    while (begin > first && curve->smoothed[begin] < level)
        begin--;
    return begin;
}

/* Up to the lowest point: a fall behind it recovers from a rate that was too high. */
static int steepest_fall(const yoke_lr_curve *curve, int first, int begin, int lowest, int end) {
    int steepest = begin;
    for (int i = begin; i <= lowest; i++)
        if (slope(curve->smoothed, first, end, i) < slope(curve->smoothed, first, end, steepest))
            steepest = i;
    return steepest;
}

static int lowest_point(const yoke_lr_curve *curve, int first, int end) {
    int lowest = first;
    for (int i = first; i < end; i++)
        if (curve->smoothed[i] < curve->smoothed[lowest]) lowest = i;
    return lowest;
}

/* The standard deviation of a batch's loss, from the differences between neighbours: a trend of
 * many steps adds next to nothing to them. */
static double noise_of(const double *losses, int count) {
    double sum = 0;
    for (int i = 1; i < count; i++)
        sum += (losses[i] - losses[i - 1]) * (losses[i] - losses[i - 1]);
    return count > 1 ? sqrt(sum / (count - 1) / 2) : 0;
}

void yoke_lr_curve_suggest(yoke_lr_curve *curve) {
    const yoke_lr_find_options *options = &curve->options;
    int first = YOKE_LR_SKIPPED, end = curve->count - 1; /* the last point may have diverged */
    curve->suggested = -1;
    if (end < first + 2) {
        snprintf(curve->text, sizeof curve->text,
                 "no suggestion: the loss diverges behind step %d, at a rate of %.3g, before there "
                 "is a curve: look at the data and the first weights",
                 curve->count, yoke_lr_curve_rate(curve));
        return;
    }
    int lowest = lowest_point(curve, first, end);
    double fall = level_before(curve->smoothed, first, lowest) - curve->smoothed[lowest];
    double noise = noise_of(curve->losses, lowest + 1);
    double rounding = 1e-6 * fabs(curve->smoothed[first]);
    if (!(fall > CLEAR * noise + rounding)) {
        snprintf(curve->text, sizeof curve->text,
                 "no suggestion: between rates of %.3g and %.3g the smoothed loss never falls "
                 "by more than the losses of neighbouring batches differ (%.2g): take more steps "
                 "or a larger batch, or look at the data",
                 options->lowest, curve->rates[curve->count - 1], noise);
        return;
    }
    int begin = begin_of_fall(curve, first, lowest, fall);
    curve->suggested = steepest_fall(curve, first, begin, lowest, end);
    curve->cautious = fmin(curve->rates[curve->suggested], curve->rates[lowest] / 10);
    snprintf(curve->text, sizeof curve->text, "the smoothed loss falls fastest at a rate of %.3g",
             curve->rates[curve->suggested]);
}
