/* SPDX-License-Identifier: Apache-2.0 */
/* The test split of a run: one pass over it counts every row once, in order. */
#ifndef TRAIN_TEST_SPLIT_H
#define TRAIN_TEST_SPLIT_H

#include "train/custom_parts.h"
#include "train/predictions.h"
#include "train/run.h"

typedef struct yoke_test_split {
    yoke_rows rows;
    yoke_step_result last;         /* evaluation; rows 0: none yet */
    yoke_tally tally;              /* of the evaluation that goes on */
    yoke_tally predictions;        /* of the last complete one */
    uint8_t *misclassified_pixels; /* [misclassified] rows, where the dataset decodes files */
} yoke_test_split;

/* Opens the rows, their loader, and the tallies if the options want them, unless they are open. */
yoke_status yoke_test_split_open(yoke_test_split *test, yoke_run *run);
void yoke_test_split_close(yoke_test_split *test);
/* All ranks together. Sets `last`, the predictions, and the values of the host's metrics. */
yoke_status yoke_test_split_evaluate(yoke_test_split *test, yoke_run *run,
                                     yoke_custom_parts *parts);
/* As yoke_trainer_misclassified. */
yoke_status yoke_test_split_misclassified(const yoke_test_split *test, int index,
                                          yoke_misclassified *misclassified);

#endif
