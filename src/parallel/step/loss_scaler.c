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
    scaler->now.scale = scaler->is_dynamic ? FIRST_SCALE : asked;
    step->gradient.factor = scaler->now.scale;
    return YOKE_OK;
}

void yoke_loss_scaler_count(yoke_step *step) {
    yoke_loss_scaler *scaler = &step->scaler;
    yoke_scale_state *now = &scaler->now;
    scaler->before = *now;
    if (!scaler->is_dynamic || ++now->good < (uint64_t)step->options.loss_scale_interval) return;
    if (now->scale <= LARGEST) now->scale *= FACTOR;
    now->good = 0;
}

void yoke_loss_scaler_uncount(yoke_step *step) {
    step->scaler.now = step->scaler.before;
}

yoke_status yoke_loss_scaler_skip(yoke_step *step) {
    yoke_scale_state *now = &step->scaler.now;
    if (now->scale <= SMALLEST)
        return FAIL(YOKE_ERROR_NUMERIC,
                    "step %llu: the gradient is not finite, even with a loss scale of %g",
                    (unsigned long long)step->steps, now->scale);
    now->scale /= FACTOR;
    now->good = 0;
    now->skipped++;
    step->steps++;
    return YOKE_OK;
}

void yoke_loss_scaler_set(yoke_step *step, const yoke_scale_state *state) {
    yoke_loss_scaler *scaler = &step->scaler;
    double fixed = scaler->now.scale;
    scaler->now = *state;
    if (!scaler->is_dynamic) scaler->now = (yoke_scale_state){fixed, 0, state->skipped};
}

yoke_status yoke_loss_scaler_share(yoke_step *step) {
    yoke_scale_state *now = &step->scaler.now;
    int64_t words[] = {ilogb(now->scale), (int64_t)now->good, (int64_t)now->skipped};
    if (step->ranks.world == 1) return YOKE_OK;
    TRY(yoke_process_group_broadcast(step->ranks.process_group, words, 3, YOKE_ELEMENT_INT64, 0));
    *now = (yoke_scale_state){ldexp(1, (int)words[0]), (uint64_t)words[1], (uint64_t)words[2]};
    return YOKE_OK;
}

uint64_t yoke_updates_of(const yoke_step *step) {
    return step->steps - step->scaler.now.skipped;
}

/* On a device by an update in a direction of weight 0. */
static yoke_status multiply(yoke_device *device, float *values, size_t elements, double factor) {
    float *const none[YOKE_UPDATE_STATES] = {NULL};
    const yoke_update_step scale = {.rule = YOKE_UPDATE_APPLY,
                                    .scalars = {.shrink = factor},
                                    .gradient_scale = 0,
                                    .applies = true};
    if (factor == 1) return YOKE_OK;
    for (size_t i = 0; i < elements && device == NULL; i++)
        values[i] *= (float)factor;
    if (device == NULL) return YOKE_OK;
    return yoke_device_update(device, YOKE_STREAM_COMPUTE, &scale, values, values, none, elements);
}

yoke_status yoke_gradient_scale(const yoke_step *step, yoke_device *device, float *values,
                                size_t elements) {
    return multiply(device, values, elements, step->gradient.factor);
}

yoke_status yoke_gradient_unscale(const yoke_step *step, yoke_device *device, float *values,
                                  size_t elements) {
    return multiply(device, values, elements, 1 / step->gradient.factor);
}
