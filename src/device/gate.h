/* SPDX-License-Identifier: Apache-2.0 */
/* What keeps a bad step from the weights where the host queues updates before it knows. */
#ifndef DEVICE_GATE_H
#define DEVICE_GATE_H

#include <stdbool.h>
#include <stdint.h>

/* What the updates of a step read in device memory, because the host queues them before it is
 * known. */
typedef struct yoke_gate {
    float gradient_scale;  /* from clipping, times the request's unscale */
    int32_t closed;        /* 1: a value is not finite, and updates change nothing */
    float found_nonfinite; /* 0, or NaN when closed: the sum of several gates' values is NaN if one
                              of them is */
    double norm;           /* of the gradient; 0 without clipping */
    uint64_t first_bad;    /* the smallest of the request's */
} yoke_gate;
/* gate = { unscale * min(1, clip_norm / (norm + 1e-6)), ... } with norm = unscale * sqrt(the sum of
 * square_sums), clip_norm 0: no clipping; closed when a loss or the norm is not finite, when
 * *found_nonfinite is not 0, or when one of first_bad is not YOKE_ALL_FINITE. All pointers are
 * device memory. Not where memory is shared. */
typedef struct yoke_gate_request {
    const double *losses, *square_sums;
    const float
        *found_nonfinite; /* closes the gate unless it is 0; may be the gate's own. NULL: none */
    const uint64_t *first_bad;
    int loss_count, square_sum_count, first_bad_count;
    double clip_norm;
    double unscale;      /* 1 / what all gradients are multiplied by, the scale of the loss; in a
                            recording yoke_plan_step.unscale counts */
    bool closed;         /* the host has found a loss that is not finite */
    bool stays_closed;   /* a closed gate does not open again, */
    bool unless_settled; /* but in a recording it does where yoke_plan_step.settled says so */
} yoke_gate_request;

#endif
