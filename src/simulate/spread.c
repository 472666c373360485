/* SPDX-License-Identifier: Apache-2.0 */
/* Plain arithmetic, so that every machine and every C library finds the same bits. */
#include "simulate/spread.h"

#include <math.h>

#define STEP (1.0 / 256)
#define FARTHEST 8 /* deviations */
#define DENSITY_AT_0 0.39894228040143267794
#define NOBODY (-1)

static double power(double base, int exponent) {
    double product = 1;
    for (; exponent > 0; exponent /= 2, base *= base)
        if (exponent % 2 == 1) product *= base;
    return product;
}

/* e^-x of a small x. */
static double decay(double x) {
    return 1 - x * (1 - x / 2 * (1 - x / 3 * (1 - x / 4)));
}

/* The integral of 1 - P^n - (1 - P)^n over x > 0, with P the distribution at x; both integrals by
 * the trapezoidal rule. The density at x + h is that at x, times e^(-x h - h h / 2). */
double yoke_largest_deviate(int count) {
    double density = DENSITY_AT_0, below = 0.5, sum = 0;
    double ratio = decay(STEP * STEP / 2), change = decay(STEP * STEP);
    for (double x = 0; x < FARTHEST; x += STEP) {
        double value = 1 - power(below, count) - power(1 - below, count);
        sum += STEP * (x > 0 ? value : value / 2);
        double next = density * ratio;
        below += STEP * (density + next) / 2;
        density = next;
        ratio *= change;
    }
    return sum;
}

yoke_paces yoke_paces_of(const yoke_topology *topology, int devices) {
    yoke_paces paces = {.slow = NOBODY, .straggler = NOBODY, .slowest = 1, .other = 1};
    if (topology->spread > 0 && devices > 1) {
        double behind = topology->spread * yoke_largest_deviate(devices);
        paces.slow = (devices < YOKE_SIMULATED_LANES ? devices : YOKE_SIMULATED_LANES) - 1;
        paces.slowest = 1 + behind;
        paces.other = 1 - behind / (devices - 1);
    }
    if (topology->straggler_factor > 0 && topology->straggler < devices) {
        paces.straggler = topology->straggler;
        paces.straggler_factor = topology->straggler_factor;
    }
    return paces;
}

double yoke_pace_of(const yoke_paces *paces, int device) {
    double own = device == paces->slow ? paces->slowest : paces->other;
    return device == paces->straggler ? fmax(own, paces->straggler_factor) : own;
}

double yoke_pace_slowest(const yoke_paces *paces) {
    return fmax(paces->slowest, paces->straggler_factor);
}
