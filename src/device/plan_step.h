/* SPDX-License-Identifier: Apache-2.0 */
/* What each pass of a plan gets, and what a loss gives. */
#ifndef DEVICE_PLAN_STEP_H
#define DEVICE_PLAN_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "device/update.h"

#define YOKE_UPDATE_SLOTS 32

/* The values that change from step to step. */
typedef struct yoke_plan_step {
    uint64_t seed, step;
    uint64_t first_row; /* global row of this shard's row 0, for dropout */
    float loss_scale;   /* 1 / what divides the whole batch's sum: its rows, or the weights of its
                           labels; the loss multiplies its gradient by it */
    bool mixed;         /* rows have second labels; not those of sequences */
    /* For batch norms with a norm_group. idle: this participant has no rows, and the plan only
     * takes part in the all-gather. alone: the plan gathers nothing and normalises its own rows. */
    bool idle, alone;
    bool again;     /* forward runs a second time in this step: running statistics stay */
    bool loss_only; /* nobody reads the outputs, only their loss */
    bool adds_parameter_gradients; /* backward adds to them, where the plan can */
    bool factors_only; /* a plan that has factors writes no gradient of its weight beside them */
    /* An engine that only predicts counts the changes of its parameters and running statistics
     * here: while the number stays, plans keep what they have made of them. 0: nobody counts. */
    uint64_t weights_version;
    /* What a recording of the whole step reads: scalars[scalar_count] of its updates, by slots, up
     * to YOKE_UPDATE_SLOTS; and whether the host knows what closed the gates of earlier steps. */
    const yoke_float_scalars *scalars;
    int scalar_count;
    bool settled;
    float unscale; /* 1 / the scale of the loss, which is a factor of loss_scale: for its gates */
} yoke_plan_step;

/* What a loss gives. */
typedef struct yoke_loss_scalars {
    double loss_sum; /* over rows and positions; with targets: of the row means */
    int32_t correct; /* rows and positions whose first largest output is the label */
} yoke_loss_scalars;

#endif
