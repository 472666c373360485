/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the tensors of two modes, element by element. */
#include "cli/verify/verify_difference.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Numbers the floats in their order. */
static int64_t number_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    int64_t magnitude = bits & 0x7fffffffu;
    return bits >> 31 != 0 ? -magnitude - 1 : magnitude;
}

int64_t verify_ulp(float a, float b) {
    if (isnan(a) || isnan(b)) return isnan(a) && isnan(b) ? 0 : INT64_MAX;
    return llabs(number_of(a) - number_of(b));
}

/* One tensor of both modes. */
typedef struct tensor_pair {
    const double *values, *others;
    size_t count;
} tensor_pair;

static double norm_of(const double *values, size_t count) {
    double squares = 0;
    for (size_t i = 0; i < count; i++)
        squares += values[i] * values[i];
    return sqrt(squares);
}

/* |a - b| / |b|, Euclidean; infinite where a value is not finite. A tensor may be zero in one mode
 * and one rounding of its kin on another: |b| counts as at least `rounding`. */
static double relative_difference(tensor_pair both, double rounding) {
    double difference = 0, size = fmax(norm_of(both.others, both.count), rounding);
    for (size_t i = 0; i < both.count; i++) {
        double d = both.values[i] - both.others[i];
        difference += d * d;
    }
    if (!isfinite(difference)) return INFINITY;
    return difference == 0 ? 0 : sqrt(difference) / size;
}

/* One rounding of a mode's weights, or of its gradients, taken as one vector. */
static double rounding_of(const verify_mode *mode, const yoke_model *model, bool gradients) {
    const double *values = gradients ? mode->gradients : mode->weights;
    yoke_tensor_info info;
    double norm = 0;
    for (int next = 0; compare_next_tensor(model, &next, &info);) {
        if (info.trainable || !gradients) norm = hypot(norm, norm_of(values, info.count));
        values += info.count;
    }
    return FLT_EPSILON * norm;
}

#define SCALE_APART 1e-4 /* from 1: a hundred times what float32 sums of these models are apart */
#define SCALE_PURE 0.1   /* of that distance: what one factor may leave unexplained */
#define SCALE_FEWEST 8   /* elements: of fewer, chance can make a factor */

/* The factor is that of least squares: <values, others> / <others, others>. */
bool verify_is_scaled(const double *values, const double *others, size_t count, double *factor) {
    double product = 0, square = 0, rest = 0;
    for (size_t i = 0; i < count; i++) {
        product += values[i] * others[i];
        square += others[i] * others[i];
    }
    if (count < SCALE_FEWEST || !(square > 0) || !isfinite(product)) return false;
    *factor = product / square;
    for (size_t i = 0; i < count; i++) {
        double unexplained = values[i] - *factor * others[i];
        rest += unexplained * unexplained;
    }
    double apart = fabs(*factor - 1);
    return apart > SCALE_APART && sqrt(rest / square) < SCALE_PURE * apart;
}

static void note_scale(verify_pair *pair, tensor_pair both, verify_element place) {
    double factor;
    if (pair->scale.tensor != NULL) return;
    if (verify_is_scaled(both.values, both.others, both.count, &factor))
        pair->scale = (verify_scale){place.step, place.tensor, factor};
}

/* Whether all bits are equal; `found` gets value, other, index and ulp of the elements. */
static bool compare_tensor(verify_pair *pair, tensor_pair both, verify_element found) {
    bool equal = true;
    for (size_t i = 0; i < both.count; i++) {
        int64_t ulp = verify_ulp((float)both.values[i], (float)both.others[i]);
        if (ulp == 0) continue;
        equal = false;
        if (ulp > pair->ulp) pair->ulp = ulp;
        found.index = i;
        found.value = both.values[i];
        found.other = both.others[i];
        found.ulp = ulp;
        if (!pair->differs) pair->first = found;
        pair->differs = true;
    }
    return equal;
}

void verify_pair_compare(verify_pair *pair, const yoke_model *model, int step) {
    const verify_mode *a = pair->mode, *b = pair->with;
    bool gradients = a->has_gradients && b->has_gradients, equal = true;
    double rounding = rounding_of(b, model, false);
    double of_gradients = gradients ? rounding_of(b, model, true) : 0;
    yoke_tensor_info info;
    size_t offset = 0;
    for (int next = 0; compare_next_tensor(model, &next, &info);) {
        verify_element found = {.step = step, .tensor = info.name};
        tensor_pair weights = {a->weights + offset, b->weights + offset, info.count};
        tensor_pair of_loss = {a->gradients + offset, b->gradients + offset, info.count};
        offset += info.count;
        if (gradients && info.trainable) {
            found.gradient = true;
            equal = compare_tensor(pair, of_loss, found) && equal;
            pair->gradient_relative =
                fmax(pair->gradient_relative, relative_difference(of_loss, of_gradients));
            note_scale(pair, of_loss, found);
            found.gradient = false;
        }
        equal = compare_tensor(pair, weights, found) && equal;
        pair->relative = fmax(pair->relative, relative_difference(weights, rounding));
    }
    if (step == 0) return;
    pair->steps++;
    pair->equal_steps += equal;
}

bool verify_pair_passes(const verify_pair *pair, double tolerance) {
    if (pair->bar == VERIFY_NOTHING) return true;
    if (pair->steps == 0) return false;
    if (pair->bar == VERIFY_BITS) return !pair->differs;
    if (pair->scale.tensor != NULL) return false;
    return pair->relative <= tolerance && pair->gradient_relative <= tolerance;
}
