/* SPDX-License-Identifier: Apache-2.0 */
/* How far two modes are apart. */
#ifndef CLI_VERIFY_DIFFERENCE_H
#define CLI_VERIFY_DIFFERENCE_H

#include "cli/verify/verify_mode.h"

/* What two modes owe each other. */
typedef enum verify_bar {
    VERIFY_BITS,      /* equal bits */
    VERIFY_TOLERANCE, /* weights, buffers and gradients equal up to rounding */
    VERIFY_NOTHING    /* they compute different things */
} verify_bar;

/* One element that differs. */
typedef struct verify_element {
    int step;
    const char *tensor; /* borrowed from the model */
    bool gradient;      /* of this tensor */
    size_t index;
    double value, other;
    int64_t ulp;
} verify_element;

/* One mode's gradient of a tensor is the other's times a factor: what rounding never does. */
typedef struct verify_scale {
    int step;
    const char *tensor; /* borrowed from the model; NULL: there is none */
    double factor;
} verify_scale;

typedef struct verify_pair {
    const verify_mode *mode, *with;
    verify_bar bar;
    int steps, equal_steps; /* compared, without step 0; equal bit for bit */
    int64_t ulp;            /* the largest distance */
    /* The largest |a - b| / |b| of a tensor (Euclidean norms), where b is that of `with`. */
    double relative, gradient_relative; /* the second -1: no gradients */
    bool differs;
    verify_element first; /* if it differs */
    verify_scale scale;   /* the first one found */
} verify_pair;

/* Compares what both modes have read after a step. */
void verify_pair_compare(verify_pair *pair, const yoke_model *model, int step);
/* Whether all elements of a gradient, [count], are those of another times one factor that is not 1
 * within 1e-4. Rounding and a ReLU that switches move elements by factors of their own. */
bool verify_is_scaled(const double *values, const double *others, size_t count, double *factor);
/* Modes that were never compared, although they should agree, do not pass, nor does a scaled
 * gradient, whatever the tolerance. */
bool verify_pair_passes(const verify_pair *pair, double tolerance);

/* Float32 numbers between two, the second one included; -0 and 0 are neighbours. INT64_MAX where
 * only one is NaN. */
int64_t verify_ulp(float a, float b);

#endif
