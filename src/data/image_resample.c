/* SPDX-License-Identifier: Apache-2.0 */
/* Bilinear resampling on the host, with the weights of device/resample.h. */
#include <math.h>
#include <stdlib.h>

#include "data/images.h"

void yoke_resampling_clear(yoke_resampling *plan) {
    yoke_free(plan->weights);
    yoke_free(plan->counts);
    yoke_free(plan->firsts);
    *plan = (yoke_resampling){0};
}

yoke_status yoke_resampling_plan(yoke_resampling *plan, const yoke_resampling_span *span) {
    int taps = 2 * (int)ceil(yoke_resampling_stretch(span)) + 1;
    *plan = (yoke_resampling){.outputs = span->outputs, .taps = taps};
    size_t outputs = (size_t)plan->outputs, weights = outputs * (size_t)taps;
    plan->firsts = yoke_malloc(outputs * sizeof *plan->firsts);
    plan->counts = yoke_malloc(outputs * sizeof *plan->counts);
    plan->weights = yoke_malloc(weights * sizeof *plan->weights);
    if (plan->firsts == NULL || plan->counts == NULL || plan->weights == NULL) {
        yoke_resampling_clear(plan);
        return FAIL_MEMORY(weights * sizeof *plan->weights, "the weights of a resampling");
    }
    for (int i = 0; i < span->outputs; i++)
        plan->counts[i] = yoke_resampling_weights(span, i, &plan->firsts[i],
                                                  plan->weights + (size_t)i * (size_t)taps);
    return YOKE_OK;
}

void yoke_resample_line(const yoke_resampling *plan, const uint8_t *line, uint8_t *output) {
    for (int i = 0; i < plan->outputs; i++) {
        const int32_t *weights = plan->weights + (size_t)i * (size_t)plan->taps;
        const uint8_t *from = line + 3 * (size_t)plan->firsts[i];
        int32_t red = YOKE_WEIGHT_HALF, green = red, blue = red;
        for (int k = 0; k < plan->counts[i]; k++, from += 3) {
            red += from[0] * weights[k];
            green += from[1] * weights[k];
            blue += from[2] * weights[k];
        }
        *output++ = yoke_resampling_pixel(red);
        *output++ = yoke_resampling_pixel(green);
        *output++ = yoke_resampling_pixel(blue);
    }
}

void yoke_resample_lines(const yoke_resampling *plan, int i, const uint8_t *lines, size_t values,
                         int32_t *sums, uint8_t *output) {
    const int32_t *weights = plan->weights + (size_t)i * (size_t)plan->taps;
    for (size_t x = 0; x < values; x++)
        sums[x] = YOKE_WEIGHT_HALF;
    for (int k = 0; k < plan->counts[i]; k++) {
        const uint8_t *line = lines + (size_t)(plan->firsts[i] + k) * values;
        for (size_t x = 0; x < values; x++)
            sums[x] += line[x] * weights[k];
    }
    for (size_t x = 0; x < values; x++)
        output[x] = yoke_resampling_pixel(sums[x]);
}
