/* SPDX-License-Identifier: Apache-2.0 */
/* What a model takes rows for: counts by class, and the wrong rows of the largest loss. Its memory
 * does not grow with the rows. */
#ifndef TRAIN_PREDICTIONS_H
#define TRAIN_PREDICTIONS_H

#include <stddef.h>
#include <stdint.h>

#include "model/model.h"
#include "yoke/dataset.h"

/* One wrong row; words of 64 bits, which ranks exchange. */
typedef struct yoke_wrong_row {
    int64_t row, label, predicted;
    double probability, loss;
} yoke_wrong_row;

typedef struct yoke_tally {
    int classes, capacity; /* classes 0: off */
    uint64_t step;         /* updates done */
    size_t rows;           /* all that were added; 0: none yet */
    int64_t among_five;    /* of these: their class is among the five largest outputs */
    int64_t *counts;       /* [classes, classes]: true class, predicted class; NULL: of more than
                              YOKE_COUNTS_CLASSES */
    size_t count_of_counts;
    yoke_wrong_row *worst; /* [capacity], by loss, the largest first, then by row */
    int worst_count;
} yoke_tally;

/* Takes a zeroed struct. MEMORY. */
yoke_status yoke_tally_create(yoke_tally *tally, int classes, int capacity);
void yoke_tally_end(yoke_tally *tally);

void yoke_tally_begin(yoke_tally *tally, uint64_t step);
/* Adds the rows of a batch with their outputs [rows, classes], except those with a label that is no
 * class, or that `model` ignores; NULL: no model. first: the row of the split where the batch of
 * all ranks begins. */
typedef struct yoke_tally_rows {
    const yoke_batch *batch;
    const float *outputs;
    const yoke_model *model;
    size_t first;
} yoke_tally_rows;
void yoke_tally_add(yoke_tally *tally, const yoke_tally_rows *rows);
/* Keeps the row if it is among the worst. */
void yoke_tally_add_wrong(yoke_tally *tally, const yoke_wrong_row *wrong);

#endif
