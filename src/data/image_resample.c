/* Bilinear resampling with antialiasing, in the integers of Pillow's Resample.c. */
#include <math.h>
#include <stdlib.h>

#include "data/images.h"

#define WEIGHT_BITS 22 /* 8 bits of a pixel and 2 for what rounding adds leave these */

void yoke_resampling_clear(yoke_resampling *plan) {
    free(plan->weights);
    free(plan->counts);
    free(plan->firsts);
    *plan = (yoke_resampling){0};
}

static yoke_status reserve(yoke_resampling *plan) {
    size_t outputs = (size_t)plan->outputs, weights = outputs * (size_t)plan->taps;
    plan->firsts = malloc(outputs * sizeof *plan->firsts);
    plan->counts = malloc(outputs * sizeof *plan->counts);
    plan->weights = malloc(weights * sizeof *plan->weights);
    if (plan->firsts != NULL && plan->counts != NULL && plan->weights != NULL) return YOKE_OK;
    yoke_resampling_clear(plan);
    return FAIL_MEMORY(weights * sizeof *plan->weights, "the weights of a resampling");
}

static double triangle(double distance) {
    distance = fabs(distance);
    return distance < 1 ? 1 - distance : 0;
}

/* The triangle, as wide as `stretch` inputs to each side of the center, and of sum 1. */
static void set_weights(yoke_resampling *plan, int i, double center, double stretch, int inputs) {
    int first = (int)(center - stretch + 0.5), end = (int)(center + stretch + 0.5);
    if (first < 0) first = 0;
    if (end > inputs) end = inputs;
    int32_t *weights = plan->weights + (size_t)i * (size_t)plan->taps;
    double sum = 0;
    for (int k = first; k < end; k++)
        sum += triangle((k - center + 0.5) / stretch);
    for (int k = first; k < end; k++) {
        double weight = triangle((k - center + 0.5) / stretch);
        if (sum != 0) weight /= sum;
        weights[k - first] = (int32_t)(0.5 + weight * (1 << WEIGHT_BITS));
    }
    plan->firsts[i] = first;
    plan->counts[i] = end - first;
}

yoke_status yoke_resampling_plan(yoke_resampling *plan, const yoke_resampling_span *span) {
    double scale = (span->end - span->begin) / span->size, stretch = fmax(scale, 1);
    *plan = (yoke_resampling){.outputs = span->outputs, .taps = 2 * (int)ceil(stretch) + 1};
    TRY(reserve(plan));
    for (int i = 0; i < span->outputs; i++)
        set_weights(plan, i, span->begin + (span->first + i + 0.5) * scale, stretch, span->inputs);
    return YOKE_OK;
}

static uint8_t pixel(int32_t sum) {
    int32_t value = sum >> WEIGHT_BITS;
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

void yoke_resample_line(const yoke_resampling *plan, const uint8_t *line, uint8_t *output) {
    for (int i = 0; i < plan->outputs; i++) {
        const int32_t *weights = plan->weights + (size_t)i * (size_t)plan->taps;
        const uint8_t *from = line + 3 * (size_t)plan->firsts[i];
        int32_t red = 1 << (WEIGHT_BITS - 1), green = red, blue = red;
        for (int k = 0; k < plan->counts[i]; k++, from += 3) {
            red += from[0] * weights[k];
            green += from[1] * weights[k];
            blue += from[2] * weights[k];
        }
        *output++ = pixel(red);
        *output++ = pixel(green);
        *output++ = pixel(blue);
    }
}

void yoke_resample_lines(const yoke_resampling *plan, int i, const uint8_t *lines, size_t values,
                         int32_t *sums, uint8_t *output) {
    const int32_t *weights = plan->weights + (size_t)i * (size_t)plan->taps;
    for (size_t x = 0; x < values; x++)
        sums[x] = 1 << (WEIGHT_BITS - 1);
    for (int k = 0; k < plan->counts[i]; k++) {
        const uint8_t *line = lines + (size_t)(plan->firsts[i] + k) * values;
        for (size_t x = 0; x < values; x++)
            sums[x] += line[x] * weights[k];
    }
    for (size_t x = 0; x < values; x++)
        output[x] = pixel(sums[x]);
}
