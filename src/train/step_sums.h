/* SPDX-License-Identifier: Apache-2.0 */
/* What the steps of a run came to: the last one, times, and means over the latest epoch. */
#ifndef TRAIN_STEP_SUMS_H
#define TRAIN_STEP_SUMS_H

#include "train/metrics.h"

/* Over the steps that this run took in the latest epoch. */
typedef struct yoke_epoch_sums {
    bool is_over;                  /* the next step begins another */
    double loss, weight;           /* loss: times weight */
    int64_t rows, labels, correct; /* correct: -1 for regression */
    uint64_t ns;
    double learning_rate; /* of the last step */
} yoke_epoch_sums;

typedef struct yoke_step_sums {
    yoke_step_result last;           /* rows 0: none yet */
    uint64_t computed_ns, waited_ns; /* waited: for the loader */
    yoke_step_times times;           /* of the steps with whole batches */
    yoke_epoch_sums epoch;
} yoke_step_sums;

typedef struct yoke_step_cost {
    uint64_t computed_ns, waited_ns;
} yoke_step_cost;
void yoke_step_sums_add(yoke_step_sums *sums, const yoke_step_result *step, double rate,
                        yoke_step_cost cost);
/* Means over the labels of the epoch. NaN and -1: there are none. */
double yoke_epoch_loss(const yoke_epoch_sums *epoch);
double yoke_epoch_accuracy(const yoke_epoch_sums *epoch);

#endif
