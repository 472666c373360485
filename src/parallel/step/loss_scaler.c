/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/step/loss_scaler.h"

#include <math.h>

#define FIRST_SCALE 65536.0
#define INTERVAL 2000
#define FACTOR 2.0
#define FIXED_MOST 0x1p32
#define LARGEST 0x1p126  /* twice that is a float, too */
#define SMALLEST 0x1p-16 /* where gradients overflow all the same, no scale helps */

static bool is_power_of_two(double value) {
    int exponent;
    return frexp(value, &exponent) == 0.5;
}

yoke_status yoke_loss_scaler_open(yoke_step *step) {
    yoke_data_parallel_options *own = &step->options;
    yoke_loss_scaler *scaler = &step->scaler;
    double asked = own->loss_scale;
    if (asked == 0) asked = own->precision == YOKE_FLOAT16 ? YOKE_LOSS_SCALE_DYNAMIC : 1;
    scaler->is_dynamic = asked == YOKE_LOSS_SCALE_DYNAMIC;
    if (own->loss_scale_interval == 0) own->loss_scale_interval = INTERVAL;
    if (own->loss_scale_interval < 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "loss_scale_interval is %d: steps, at least 1; 0: %d",
                    own->loss_scale_interval, INTERVAL);
    if (!scaler->is_dynamic && !(asked >= 1 && asked <= FIXED_MOST && is_power_of_two(asked)))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "loss_scale is %g: a power of two from 1 to 2^32, YOKE_LOSS_SCALE_DYNAMIC, or "
                    "0: dynamic with float16, otherwise 1",
                    asked);
    if (scaler->is_dynamic && own->skip_finite_check)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "skip_finite_check with a dynamic loss_scale, which the check decides about: "
                    "leave one of the two out");
    own->loss_scale = asked;
    scaler->scale = scaler->is_dynamic ? FIRST_SCALE : asked;
    scaler->scale_before = scaler->scale;
    return YOKE_OK;
}

void yoke_loss_scaler_count(yoke_step *step) {
    yoke_loss_scaler *scaler = &step->scaler;
    scaler->scale_before = scaler->scale;
    scaler->good_before = scaler->good;
    if (!scaler->is_dynamic || ++scaler->good < (uint64_t)step->options.loss_scale_interval) return;
    if (scaler->scale <= LARGEST) scaler->scale *= FACTOR;
    scaler->good = 0;
}

void yoke_loss_scaler_take_back(yoke_step *step) {
    step->scaler.scale = step->scaler.scale_before;
    step->scaler.good = step->scaler.good_before;
}

yoke_status yoke_loss_scaler_skip(yoke_step *step) {
    yoke_loss_scaler *scaler = &step->scaler;
    if (scaler->scale <= SMALLEST)
        return FAIL(YOKE_ERROR_NUMERIC,
                    "step %llu: the gradient is not finite, even with a loss scale of %g",
                    (unsigned long long)step->steps, scaler->scale);
    scaler->scale /= FACTOR;
    scaler->good = 0;
    scaler->skipped++;
    step->steps++;
    scaler->latest = step->steps;
    return YOKE_OK;
}

bool yoke_loss_scaler_skipped(const yoke_step *step) {
    return step->scaler.latest > 0 && step->scaler.latest == step->steps;
}

void yoke_loss_scaler_set(yoke_step *step, const yoke_scale_state *state) {
    yoke_loss_scaler *scaler = &step->scaler;
    scaler->skipped = state->skipped;
    scaler->latest = 0;
    if (!scaler->is_dynamic) return;
    scaler->scale = state->scale;
    scaler->good = state->good;
}

uint64_t yoke_updates_of(const yoke_step *step) {
    return step->steps - step->scaler.skipped;
}

/* An update by a direction of weight 0. */
yoke_status yoke_scale_values(yoke_device *device, float *values, size_t elements, double factor) {
    float *const none[YOKE_UPDATE_STATES] = {NULL};
    const yoke_update_step scale = {.rule = YOKE_UPDATE_APPLY,
                                    .scalars = {.shrink = factor},
                                    .gradient_scale = 0,
                                    .applies = true};
    if (factor == 1) return YOKE_OK;
    return yoke_device_update(device, YOKE_STREAM_COMPUTE, &scale, values, values, none, elements);
}

void yoke_scale_on_host(float *values, size_t elements, double factor) {
    for (size_t i = 0; i < elements && factor != 1; i++)
        values[i] *= (float)factor;
}
