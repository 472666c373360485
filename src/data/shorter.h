/* SPDX-License-Identifier: Apache-2.0 */
/* Batches without the padding that none of their rows needs: models of several numbers of positions
 * read them. For this room only. */
#ifndef DATA_SHORTER_H
#define DATA_SHORTER_H

#include "data/loader_slot.h"

/* Values of a row that a model reads; those of inputs that it does not read stay as they are. */
typedef struct yoke_row_sizes {
    size_t input, more[YOKE_INPUTS_LIMIT - 1], labels;
    size_t positions; /* the longest row that it holds */
} yoke_row_sizes;

yoke_row_sizes yoke_row_sizes_stored(const yoke_dataset *dataset);

/* models[0]: rows as they are stored. */
typedef struct yoke_shorter {
    yoke_row_sizes *models; /* [count]; NULL: rows are not cut */
    int count;
} yoke_shorter;

/* ARGUMENT: rows have no length in memory, or a model does not read the beginning of each. */
yoke_status yoke_shorter_open(yoke_shorter *shorter, const yoke_dataset *dataset,
                              const yoke_model *const *models, int count);
void yoke_shorter_close(yoke_shorter *shorter);
/* The shortest model that holds rows order[rows] of the dataset. */
int yoke_shorter_choose(const yoke_shorter *shorter, const yoke_dataset *dataset,
                        const int64_t *order, int rows);
/* Cuts the rows of a filled slot to those of slot->model. */
void yoke_shorter_cut(const yoke_shorter *shorter, const yoke_dataset *dataset,
                      yoke_loader_slot *slot);

/* Whether the dataset stores the length of each row, in inputs named "length" or "..._length"; the
 * longest of row `stored`. */
bool yoke_dataset_has_lengths(const yoke_dataset *dataset);
size_t yoke_dataset_length(const yoke_dataset *dataset, size_t stored);
/* Makes batches of rows of about one length: sorts windows of 50 batches of the given order, and
 * draws the order of the batches. A short last batch stays the last. */
yoke_status yoke_order_by_length(int64_t *order, const yoke_dataset *dataset, int batch,
                                 uint64_t seed);

#endif
